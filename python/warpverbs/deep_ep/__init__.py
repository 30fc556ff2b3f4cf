"""The names of DeepEP, V1 and its hybrid-ep branch, over Warpverbs: what engines import as ``deep_ep``.

The low-latency calls are here; the normal mode raises ``NotImplementedError`` when it is called. ``python/README.md`` lists every
argument: what is used, what is ignored, what is refused. Engines that look for a module named ``deep_ep`` find this one after
:func:`install`, or when the wheel ``warpverbs-as-deep-ep`` is installed.
"""

from __future__ import annotations

import sys

from .. import __version__
from ..errors import Refused
from ._torch import torch

# isort: split
from . import utils
from .buffer import Buffer
from .config import Config
from .utils.event import EventHandle, EventOverlap

__all__ = ["Buffer", "Config", "EventHandle", "EventOverlap", "__version__", "install", "topk_idx_t", "utils"]

#: Element type of expert ids.
topk_idx_t = torch.int64


def install() -> None:
    """Makes ``import deep_ep`` give this module, in this process; processes that it starts need the wheel ``warpverbs-as-deep-ep``."""
    present = sys.modules.get("deep_ep")
    if present is not None and getattr(present, "Buffer", None) is not Buffer:
        raise Refused(
            f"a module deep_ep is imported already, from {getattr(present, '__file__', 'nowhere')}; "
            "call warpverbs.deep_ep.install() before anything imports deep_ep"
        )
    own = sys.modules[__name__]
    # Its spec has the name under which it was found: `importlib.util.find_spec("deep_ep")` returns it as it is.
    sys.modules["deep_ep"] = own
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{__name__}."):
            sys.modules["deep_ep" + name.removeprefix(__name__)] = module
