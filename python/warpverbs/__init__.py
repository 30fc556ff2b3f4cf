"""MoE dispatch and combine by GPU-initiated RDMA, for ranks that may die and come back.

``Team`` brings the ranks together, and ``Moe`` is a layer's shape with its memory. ``Call`` is one dispatch and combine, and ``Group``
lets ranks leave and come back while calls run. ``warpverbs.deep_ep`` and ``warpverbs.mooncake_ep`` offer the same under the names that
engines know. ``Engine`` moves memory of the host between processes, without a team. The package imports no other one; a program that
passes torch tensors has imported torch.
"""

from __future__ import annotations

import sys as _sys

# `python -m warpverbs.doctor` imports this package first, and must run where what follows does not load. While Python looks for
# such a module, argv[0] is `-m`. A Python that is too old has no orig_argv.
_asked = getattr(_sys, "orig_argv", ["warpverbs.doctor"]) if _sys.argv[:1] == ["-m"] else []
if not any(word.endswith("warpverbs.doctor") for word in _asked):
    from . import _log, errors  # noqa: F401, the first that ends at exit is the last that begins
    from ._native import Transfer, __version__
    from .engine import (
        Closed,
        Counter,
        Engine,
        Mirror,
        Notice,
        Operation,
        Peer,
        Prepared,
        Rail,
        Region,
        RemoteRegion,
        SharedMemory,
        SliceCounts,
        Stalled,
        State,
        Statistics,
        TransferReport,
    )
    from .errors import (
        ConfigError,
        EngineError,
        Error,
        GroupError,
        MoeError,
        PeerGone,
        RankLost,
        Refused,
        TeamError,
        TimeoutError,
        WouldBlock,
    )
    from .group import Change, Counters, Group, View
    from .moe import Call, Combined, Moe, Received, Report
    from .team import Team, TeamEnd

__all__ = [
    "Call",
    "Change",
    "Closed",
    "Combined",
    "ConfigError",
    "Counter",
    "Counters",
    "Engine",
    "EngineError",
    "Error",
    "Group",
    "GroupError",
    "Mirror",
    "Moe",
    "MoeError",
    "Notice",
    "Operation",
    "Peer",
    "PeerGone",
    "Prepared",
    "Rail",
    "RankLost",
    "Received",
    "Refused",
    "Region",
    "RemoteRegion",
    "Report",
    "SharedMemory",
    "SliceCounts",
    "Stalled",
    "State",
    "Statistics",
    "Team",
    "TeamEnd",
    "TeamError",
    "TimeoutError",
    "Transfer",
    "TransferReport",
    "View",
    "WouldBlock",
    "__version__",
    "errors",
]
