"""MoE dispatch and combine by GPU-initiated RDMA, for ranks that may die and come back.

``Team`` brings the ranks together, ``Moe`` is a layer's shape with its memory, ``Call`` one dispatch and combine, ``Group`` lets
ranks leave and come back under running calls. ``warpverbs.deep_ep`` and ``warpverbs.mooncake_ep`` offer the same under the names
that engines know. The package imports no other one; a program that passes torch tensors has imported torch.
"""

from __future__ import annotations

import sys as _sys

# `python -m warpverbs.doctor` imports this package first, and must run where what follows does not load. While Python looks for
# such a module, argv[0] is `-m`. A Python that is too old has no orig_argv.
_asked = getattr(_sys, "orig_argv", ["warpverbs.doctor"]) if _sys.argv[:1] == ["-m"] else []
if not any(word.endswith("warpverbs.doctor") for word in _asked):
    from . import errors
    from ._native import __version__
    from .errors import (
        ConfigError,
        Error,
        GroupError,
        MoeError,
        RankLost,
        Refused,
        TeamError,
        TimeoutError,
    )
    from .group import Change, Group, View
    from .moe import Call, Combined, Moe, Received, Report
    from .team import Team

__all__ = [
    "Call",
    "Change",
    "Combined",
    "ConfigError",
    "Error",
    "Group",
    "GroupError",
    "Moe",
    "MoeError",
    "RankLost",
    "Received",
    "Refused",
    "Report",
    "Team",
    "TeamError",
    "TimeoutError",
    "View",
    "__version__",
    "errors",
]
