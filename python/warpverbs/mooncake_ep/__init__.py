"""The names of Mooncake EP over Warpverbs: what engines import as ``mooncake.mooncake_ep_buffer``.

``python/README.md`` lists every argument: what is used, what is ignored, what is refused. Engines find this module under Mooncake's
name after :func:`install`. The rest of Mooncake, its process group above all, is neither here nor touched.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import types

from .. import __version__
from ..deep_ep.utils.event import EventOverlap
from ..errors import Refused
from .buffer import Buffer

__all__ = ["Buffer", "EventOverlap", "__version__", "install"]

#: The package of Mooncake, and the module of it that engines import.
_PACKAGE = "mooncake"
_NAME = "mooncake.mooncake_ep_buffer"


def install() -> None:
    """Makes ``import mooncake.mooncake_ep_buffer`` give this module, in this process; each process of an engine calls it. Where Mooncake
    is installed, its other modules stay what they are."""
    present = sys.modules.get(_NAME)
    if present is not None and getattr(present, "Buffer", None) is not Buffer:
        raise Refused(
            f"a module {_NAME} is imported already, from {getattr(present, '__file__', 'nowhere')}; "
            "call warpverbs.mooncake_ep.install() before anything imports it"
        )
    own = sys.modules[__name__]
    if _PACKAGE not in sys.modules and importlib.util.find_spec(_PACKAGE) is None:
        package = types.ModuleType(_PACKAGE, "Holds mooncake_ep_buffer of Warpverbs, and nothing else of Mooncake.")
        package.__spec__ = importlib.machinery.ModuleSpec(_PACKAGE, None, is_package=True)
        package.__path__ = []
        sys.modules[_PACKAGE] = package
    vars(importlib.import_module(_PACKAGE))["mooncake_ep_buffer"] = own
    # Its spec has the name under which it was found: `importlib.util.find_spec` returns it as it is.
    sys.modules[_NAME] = own
