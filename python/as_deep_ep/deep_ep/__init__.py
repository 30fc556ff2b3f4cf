"""DeepEP's module name, over `warpverbs.deep_ep`. A real DeepEP cannot stand beside it: both would own these files."""

import importlib.metadata as _metadata
import importlib.util as _util
import sys as _sys
from pathlib import Path as _Path


def _real() -> str:
    """What a real DeepEP has left here, or nothing."""
    if "deep_ep_cpp" in _sys.modules or _util.find_spec("deep_ep_cpp") is not None:
        return "the module deep_ep_cpp"
    if any(_Path(__file__).parent.glob("_C*.so")):
        return "its native module beside this file"
    try:
        return f"the distribution deep_ep {_metadata.version('deep_ep')}"
    except _metadata.PackageNotFoundError:
        return ""


if _found := _real():
    raise ImportError(
        f"warpverbs-as-deep-ep and a real DeepEP are both installed ({_found}), and both are the module deep_ep; uninstall one of them"
    )

from warpverbs.deep_ep import *  # noqa: E402, F403
from warpverbs.deep_ep import install as _install  # noqa: E402

# The one module under both names: classes, and what `utils` holds, are the same.
del _sys.modules["deep_ep"]
_install()
