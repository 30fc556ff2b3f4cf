"""Teams: ranks that have found each other."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

from . import _c10d, _native
from .errors import Error, Refused

__all__ = ["Team", "TeamEnd"]

log = logging.getLogger("warpverbs")

#: Settings by the name of their argument, each with its variable; those that Team names itself are not among them.
NAMED = {"rank", "ranks", "store", "run_id", "device", "gpu", "deadline", "join_timeout"}
SETTINGS = {field: variable for field, variable in _native.settings().items() if field not in NAMED}

_open: weakref.WeakSet[Team] = weakref.WeakSet()


def _milliseconds(name: str, seconds: float) -> str:
    if not seconds > 0:
        raise ValueError(f"{name} is {seconds} seconds; it must be positive")
    return str(max(1, round(seconds * 1000)))


class TeamEnd(NamedTuple):
    """What became of the QPs of a team that was closed."""

    #: QPs that were connected and have nothing left to send.
    drained: int
    #: QPs that were not connected.
    idle: int
    #: QPs that the HCA did not move to Err, or that had not drained in time, in words.
    refused: tuple[str, ...]
    #: QPs that the HCA did not destroy, and keys of windows that it did not take back. Their memory stays until the process ends.
    leaked: tuple[str, ...]


class Team:
    """The ranks of one program, each a process with a GPU (or the CPU) and its HCAs.

    Making one is collective: it returns when all ranks have met. After ``join_timeout`` seconds it raises, and names the ranks that did
    not come. Arguments that are not given come from ``WARPVERBS_*`` variables; rank and number of ranks also from those of torchrun,
    mpirun and srun.

    :param rank: this rank, below ``ranks``.
    :param ranks: number of ranks.
    :param store: where the ranks meet: ``file://DIRECTORY``, ``etcd://HOST:PORT/PREFIX`` or ``etcds://..``. A team of one needs none.
    :param run_id: separates runs that use the same store.
    :param device: RDMA device, or ``auto``; several, one per rail, separated by commas.
    :param gpu: ``auto``, ``simt`` (kernels on the CPU) or the number of a GPU.
    :param deadline: longest wait of a device call, seconds. Default 1.
    :param join_timeout: longest wait for other ranks while something is made together, seconds. Default 30.
    :param founders: ranks 0 to ``founders`` - 1 begin the team; the others come later, by :meth:`rejoin`. 0: all begin it.
    :param settings: any other variable of docs/configuration.md by the name of its field, such as ``mtu=1024`` or
        ``sharing="exclusive"``.

    A team is a context manager. After its block all ranks meet once more, so that no rank frees memory that another still writes. If the
    block raises, this rank publishes the error instead. If the program ends without closing its team, it publishes that. A rank that
    waits for a rank that has given up raises :class:`TeamError`, unless it has a group or a mask. If the ranks meet in a store of
    Python's, it waits as long as its deadline.
    """

    def __init__(
        self,
        rank: int | None = None,
        ranks: int | None = None,
        store: str | None = None,
        run_id: str | None = None,
        device: str | None = None,
        gpu: str | int | None = None,
        deadline: float | None = None,
        join_timeout: float | None = None,
        *,
        founders: int = 0,
        **settings: Any,
    ) -> None:
        # More than any team has would be a long list.
        if not 0 <= founders < 1 << 16:
            raise ValueError(f"founders is {founders}; it must be 0 to the number of ranks")
        self._start((rank, ranks, store, run_id, device, gpu, deadline, join_timeout), range(founders), False, settings)

    @classmethod
    def from_group(
        cls,
        process_group: Any = None,
        *,
        store: str | None = None,
        run_id: str | None = None,
        device: str | None = None,
        gpu: str | int | None = None,
        deadline: float | None = None,
        join_timeout: float | None = None,
        **settings: Any,
    ) -> Team:
        """The team of a process group of ``torch.distributed``: its ranks, which meet in the group's own store. All of them call it,
        in the same order where they make several. None: the group of all processes.

        That store can bring ranks together and carries no leases, so no :class:`Group` keeps such a team. For a group, name a ``store``
        (``file://`` or ``etcd://``, or ``WARPVERBS_STORE``). The process group then gives only the run id.
        """
        given = (store, run_id, device, gpu, deadline, join_timeout)
        return cls._from_group(process_group, given, (), settings)

    @classmethod
    def _from_group(cls, process_group: Any, given: tuple[Any, ...], founders: Sequence[int], settings: dict[str, Any]) -> Team:
        """The same of the ranks ``founders`` alone, if there are any: they make the team without the others, which keep their places."""
        _check_capture()
        store, run_id, device, gpu, deadline, join_timeout = given
        found = _c10d.ranks_of(process_group)
        if gpu is None and "WARPVERBS_GPU" not in os.environ:
            gpu = _c10d.current_gpu()
        place: tuple[object, str] | None = None
        if store is None and not os.environ.get("WARPVERBS_STORE"):
            place = found.meeting()
        elif run_id is None and "WARPVERBS_RUN_ID" not in os.environ:
            run_id = found.run_id(min(founders, default=0))
        team = cls.__new__(cls)
        team._start((found.rank, found.ranks, store, run_id, device, gpu, deadline, join_timeout), founders, False, settings, place)
        return team

    @classmethod
    def rejoin(
        cls,
        rank: int | None = None,
        ranks: int | None = None,
        store: str | None = None,
        run_id: str | None = None,
        device: str | None = None,
        gpu: str | int | None = None,
        deadline: float | None = None,
        join_timeout: float | None = None,
        **settings: Any,
    ) -> Team:
        """Takes a free place, of a rank that is gone or has never come, as its next generation. Waits for no rank.

        Then make the same layers as the others, start a :class:`Group`, and wait until it serves, before the first call.
        """
        team = cls.__new__(cls)
        team._start((rank, ranks, store, run_id, device, gpu, deadline, join_timeout), (), True, settings)
        return team

    def _start(
        self,
        given: tuple[Any, ...],
        founders: Sequence[int],
        joins: bool,
        settings: dict[str, Any],
        place: tuple[object, str] | None = None,
    ) -> None:
        _check_capture()
        rank, ranks, store, run_id, device, gpu, deadline, join_timeout = given
        if (rank is None) != (ranks is None):
            raise ValueError("rank and ranks are given together, or neither")
        variables: dict[str, str] = {}
        plain = {
            "WARPVERBS_RANK": rank,
            "WARPVERBS_RANKS": ranks,
            "WARPVERBS_STORE": store,
            "WARPVERBS_RUN_ID": run_id,
            "WARPVERBS_DEVICE": device,
            "WARPVERBS_GPU": gpu,
        }
        variables.update({name: str(value) for name, value in plain.items() if value is not None})
        if deadline is not None:
            variables["WARPVERBS_DEADLINE_MS"] = _milliseconds("deadline", deadline)
        if join_timeout is not None:
            variables["WARPVERBS_JOIN_TIMEOUT_MS"] = _milliseconds("join_timeout", join_timeout)
        for name, value in settings.items():
            if name not in SETTINGS:
                raise TypeError(f"Team got the unknown argument {name!r}; settings are {', '.join(SETTINGS)}")
            variables[SETTINGS[name]] = str(int(value) if isinstance(value, bool) else value)
        self._hold(_native.Team(variables, list(founders), joins, place), joins, place is not None)

    def _hold(self, native: _native.Team, joins: bool, borrowed: bool) -> None:
        self._native, self._joins, self._borrowed = native, joins, borrowed
        #: Groups that keep this rank a member. With one, the ranks do not meet at the end.
        self._groups = 0
        #: What :meth:`set_deadline` has said.
        self._deadline: float | None = None
        #: Whether it was closed. Its layers then make no further call.
        self._is_over = False
        self._shown = (native.rank, native.ranks, native.device, native.gpu)
        _open.add(self)

    @property
    def rank(self) -> int:
        """This rank."""
        return self._shown[0]

    @property
    def ranks(self) -> int:
        """Number of ranks of the team, members or not."""
        return self._shown[1]

    @property
    def device(self) -> str:
        """``simt``, or the name of the GPU."""
        return self._shown[2]

    @property
    def generation(self) -> int:
        """Which process of this rank this is: 1 is the first."""
        return self._native.generation

    @property
    def on_cpu(self) -> bool:
        """Whether kernels run on the CPU."""
        return self.gpu is None

    @property
    def gpu(self) -> int | None:
        """CUDA's number of the GPU that kernels run on; None for the CPU."""
        return self._shown[3]

    @property
    def control_heap(self) -> tuple[int, int]:
        """Bytes of the control heap that queues and doorbell records use, and its size; of the first HCA."""
        return self._native.control_heap

    def barrier(self, name: str) -> None:
        """Waits until every founder has called it with the same ``name``, which is used once."""
        self._native.barrier(name)

    def check(self) -> None:
        """Raises :class:`TeamError` if another rank has given up, or a thread of this one does not run any more."""
        self._native.check()

    def abort(self) -> None:
        """Ends the waits of all kernels of this rank, from any thread."""
        self._native.abort()

    def _end_if_others_failed(self, doubt: bool = False) -> bool:
        """Ends the waits of this rank and raises, if another rank has given up or its process has ended. The end of a process is doubtful
        at first, because its last words may be on their way. Returns whether a doubt is left. A group goes on without the rank. A store
        of Python's is not asked while calls go on, because it may end with the rank that holds it."""
        if self._native.closed or self._groups:
            return False
        try:
            if not self._borrowed:
                self._native.check()
            gone = self._native.ended_process()
            if gone is not None and doubt:
                raise gone
        except Error:
            self._native.abort()
            raise
        return gone is not None

    def set_deadline(self, seconds: float) -> None:
        """Sets the longest wait of device calls, for layers that are made from now on. One that is there keeps its own, which
        :meth:`Moe.set_deadlines` sets."""
        if not 0 < seconds < 1e9:
            raise Refused(f"deadline is {seconds} seconds; it must be positive and below 10^9")
        self._native.set_deadline(seconds)
        self._deadline = seconds

    def close(self) -> TeamEnd | None:
        """Gives HCAs and memory back. Waits for no rank. Layers that still exist make no further call, and keep what they need; the result
        is None then. Without any, QPs drain before they are destroyed, at most for ``deadline``, and the result says what became of them.

        A rank that waits for this one hears of it and raises :class:`TeamError`. If the ranks met in the store of a process group, which
        is not asked while calls run, it waits as long as its deadline; the last to close deletes what the team has written there."""
        if not (self._native.closed or self._joins or self._groups or self._borrowed or self.ranks == 1):
            self._native.tell_closed()
        return self._close(drain=True)

    def _close(self, drain: bool) -> TeamEnd | None:
        self._is_over = True
        end = self._native.close(drain)
        _open.discard(self)
        return None if end is None else TeamEnd(end[0], end[1], tuple(end[2]), tuple(end[3]))

    def __enter__(self) -> Team:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._native.closed:
                return
            if error is not None:
                # No handle that goes out of scope after this block waits for a kernel that waits for another rank.
                self._native.abort()
                self._native.give_up(f"{type(error).__name__}: {error}")
            elif not self._joins and not self._groups:
                self._native.barrier("close")
        finally:
            self._close(drain=error is None)

    def __repr__(self) -> str:
        state = ", closed" if self._native.closed else ""
        return f"<warpverbs.Team rank {self.rank} of {self.ranks} on {self.device}{state}>"


def _end_all() -> None:
    """At the end of the interpreter: ends kernels that wait for other ranks, waits for none, and publishes the end to the others."""
    for team in list(_open):
        if team._native.closed:
            continue
        try:
            team._native.abort()
            if team.ranks > 1 and not (team._joins or team._groups or team._borrowed):
                team._native.give_up("its process has ended without closing the team")
        except Exception as error:  # the process ends whatever happens here
            log.warning("%r could not be aborted at exit: %s", team, error)
        team._close(drain=False)


atexit.register(_end_all)


def _check_capture() -> None:
    """Refuses a team inside a capture, before any other rank hears of it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise Refused(
            "this team begins inside a CUDA graph capture, where no memory can be registered; make it, or the Buffer that makes it, before "
            "the capture"
        )
