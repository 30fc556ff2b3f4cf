"""Exceptions of Warpverbs. The text of each names the value, the limit and what to do."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from types import MappingProxyType

__all__ = [
    "ConfigError",
    "EngineError",
    "Error",
    "GroupError",
    "MoeError",
    "PeerGone",
    "RankLost",
    "Refused",
    "TeamError",
    "TimeoutError",
    "WouldBlock",
]


class Error(RuntimeError):
    """Anything that the runtime fails at."""


class ConfigError(Error, ValueError):
    """A ``WARPVERBS_*`` variable or an argument of ``Team`` has a value that is not allowed."""


class Refused(Error, ValueError):
    """An argument that the runtime does not take, or an object that cannot be used any more. Nothing has been launched."""


class TeamError(Error):
    """The ranks did not meet, do not agree on something, or one of them has given up.

    ``ranks`` is the rank that has given up, or whose process has ended; empty for other errors. ``ended`` says that its process has.
    """

    ranks: tuple[int, ...] = ()
    ended: bool = False


class TimeoutError(Error, builtins.TimeoutError):
    """Something did not happen within its limit."""


class GroupError(Error):
    """A group could not be started, or its threads have ended."""


class EngineError(Error):
    """A host engine or a connection of it cannot do what is asked, now or at all."""


class WouldBlock(EngineError):
    """All slots of an engine have a transfer. Nothing was done: submit again when one was released."""


class PeerGone(EngineError):
    """The connection to a peer has ended."""


class MoeError(Error):
    """A call that did not go through for all ranks.

    ``ranks`` are the ranks whose part is missing. ``phase`` is the phase with the first fault, 0 to 3: dispatch send, dispatch receive,
    combine send, combine receive. ``call`` is the number of the call.

    If ranks pass arguments that differ, ``argument`` is the name of one, and ``values`` has two ranks with the value of each, in words.
    ``ranks`` are then those of which something is missing here for that reason. They live, and no mask has changed. If the ranks were
    making the memory of a shape, ``call`` is None.
    """

    argument: str | None = None
    values: Mapping[int, str] = MappingProxyType({})
    #: Name of the layer of ``call``, where ranks were in that and this one made another.
    _layer: str = ""

    def __init__(self, text: str, ranks: tuple[int, ...] = (), phase: int | None = None, call: int | None = None) -> None:
        super().__init__(text)
        self.ranks = ranks
        self.phase = phase
        self.call = call


class RankLost(MoeError):
    """A rank that this program needs is gone, and the program has not said that it can go on without it."""
