"""torch, or why it cannot be had."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["torch"]


def _import() -> Any:
    try:
        module = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(f"warpverbs.deep_ep works on tensors of torch, which cannot be imported here: {error}") from error
    if not hasattr(module, "float8_e4m3fn"):
        raise ImportError(f"warpverbs.deep_ep needs torch 2.1 or newer; this is torch {module.__version__}")
    return module


torch = _import()
