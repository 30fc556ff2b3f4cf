"""torch, or why it cannot be had."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["OLDEST", "torch"]

#: The first version whose stores say whether a key exists, which the ranks of a process group ask to meet.
OLDEST = (2, 5)


def _import() -> Any:
    try:
        module = importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(f"warpverbs.deep_ep works on tensors of torch, which cannot be imported here: {error}") from error
    version = str(module.__version__)
    if tuple(map(int, version.split(".")[:2])) < OLDEST:
        raise ImportError(f"warpverbs.deep_ep needs torch {OLDEST[0]}.{OLDEST[1]} or newer; this is torch {version}")
    return module


torch = _import()
