"""torch, or why it cannot be had."""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    raise ImportError(f"warpverbs.deep_ep works on tensors of torch, which cannot be imported here: {error}") from error
if not hasattr(torch, "float8_e4m3fn"):
    raise ImportError(f"warpverbs.deep_ep needs torch 2.1 or newer; this is torch {torch.__version__}")

__all__ = ["torch"]
