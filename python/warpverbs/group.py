"""Groups: ranks die, leave and come back while the calls of a layer go on."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, NamedTuple

from . import _native
from .errors import Refused
from .moe import Moe
from .team import Team

__all__ = ["Change", "Counters", "Group", "View"]

#: States after which nothing changes any more.
_OVER = ("expelled", "left", "broken")


class View(NamedTuple):
    """Which ranks belong to a group from one call on."""

    #: Number of the view.
    epoch: int
    #: First call that runs in it.
    first: int
    #: Generation of each member, by rank.
    members: dict[int, int]
    #: Pairs of members that exchange no tokens in it, because a QP between them has failed.
    parted: list[tuple[int, int]]

    def active(self, ranks: int) -> list[bool]:
        """For each of ``ranks``, whether it is a member."""
        return [rank in self.members for rank in range(ranks)]


class Counters(NamedTuple):
    """How often each of these has happened to this rank since its group was started, and how many pairs are parted now."""

    #: Views that its kernels were given.
    views: int
    #: Proposals that it has put into the store.
    proposals: int
    #: Proposals that it has promised.
    promises: int
    #: Times that it has begun to suspect a rank.
    suspicions: int
    #: Times that the QPs to a rank were connected: to newcomers, and to ranks from which it was parted.
    connections: int
    #: Times that the store was lost.
    store_losses: int
    #: Pairs of members that the newest view parts.
    parted: int
    #: Pairs that a view has parted and the view before had not.
    partings: int
    #: Parted pairs that a later view has united.
    unions: int


class Change(NamedTuple):
    """A group after a change of its state, its view, or the ranks for which its kernels do not wait."""

    #: Changes so far. Where it grows by more than one, several came at once.
    number: int
    state: str
    view: View | None


class Group:
    """Puts the calls of ``moe`` under views that all members agree on. Its threads need no GIL.

    :param lease: how long a rank that does not renew its lease counts as living, seconds.
    :param stall: how long a living rank may be without contact to the larger side before the group expels it, seconds.
    :param error: how long a QP to a rank is in error before the pair parts, seconds.
    :param promise: how long a living rank may leave a proposal unanswered, seconds.
    :param found: longest wait of the founders for each other, seconds.

    A group is a context manager: after its block this rank leaves at once, and the others go on without it.
    """

    def __init__(
        self,
        team: Team,
        moe: Moe,
        *,
        lease: float = 2.0,
        stall: float | None = None,
        error: float | None = None,
        promise: float | None = None,
        found: float | None = None,
    ) -> None:
        for name, value, of in (("team", team, Team), ("moe", moe, Moe)):
            if not isinstance(value, of):
                raise Refused(f"{name} is a {type(value).__name__}; it must be a warpverbs.{of.__name__}")
        self.team, self.moe = team, moe
        self._native = _native.Group(team._native, moe._native, lease, stall, error, promise, found)
        team._groups += 1
        self._active: Any = None
        self._iterated = self._closed = False

    @property
    def active(self) -> Any:
        """1 for each rank whose rows the newest combine has added: i32 ``[R]``, a tensor of torch on the layer's device. Each combine
        of the layer that is given no tensor of its own writes it, in stream order; all are 1 before the first."""
        if self._active is None:
            torch = self.moe._torch()
            self._active = torch.ones((self.team.ranks,), dtype=torch.int32, device=self.moe._device)
            self.moe._active = self._active
        return self._active

    @property
    def state(self) -> str:
        """``joining``, ``serving``, ``changing``, ``expelled``, ``left`` or ``broken``."""
        return self._native.state

    @property
    def view(self) -> View | None:
        """The newest view that the kernels of this rank have; None before the first. No sync with a device."""
        found = self._native.view()
        if found is None:
            return None
        pairs = [(low, high) for low, high in found["parted"]]
        return View(found["epoch"], found["first"], dict(found["members"]), pairs)

    @property
    def counters(self) -> Counters:
        """How often things have happened so far. No sync with a device, and no call of the store."""
        return Counters(**self._native.counters())

    def events(self) -> list[tuple[float, str]]:
        """The events since the last call: seconds since the start of the group, and the event in words. They begin with its kind, as
        ``waits: generation 1 of rank 2 is a member still; ..``; docs/newcomer.md has all kinds, what they mean and what to do."""
        return list(self._native.events())

    def wait(self, state: str, timeout: float) -> None:
        """Waits until this rank is in ``state``, at most ``timeout`` seconds. Raises :class:`warpverbs.TimeoutError` after that, or at
        once if it can no longer come to ``state``."""
        self._native.wait(state, timeout)

    def wait_view(self, epoch: int, timeout: float) -> View:
        """Waits until this rank serves in a view of at least ``epoch``."""
        self._native.wait_view(epoch, timeout)
        view = self.view
        assert view is not None, "a rank that serves has a view"
        return view

    def fileno(self) -> int:
        """A descriptor for ``select`` and event loops: readable from a change until :meth:`clear_changes`, and at first. The group
        closes it. :meth:`changes` clears it, too: use one of the two."""
        return self._native.fileno()

    def clear_changes(self) -> Change:
        """The group as it is now. A later change makes :meth:`fileno` readable again, so none is missed."""
        return Change(self._native.clear_changes(), self.state, self.view)

    async def changes(self) -> AsyncIterator[Change]:
        """The group as it is now, and then after each change, in an event loop of asyncio. Changes that come faster than the loop reads
        them are read as one; the last is always read. Ends after the last state of this rank, or when the group is closed. One loop at a
        time iterates."""
        import asyncio  # noqa: PLC0415 Late: it takes most of the time that the import of the package would take.

        if self._iterated:
            raise Refused("the changes of this group are read by another iteration; only one at a time is possible")
        loop, changed, descriptor = asyncio.get_running_loop(), asyncio.Event(), self._native.eventfd()

        def tell() -> None:
            # It stays readable until the change is read, and would wake the loop until then.
            loop.remove_reader(descriptor)
            changed.set()

        self._iterated = True
        try:
            last = None
            while not self._closed:
                try:
                    change = self.clear_changes()
                except Refused:
                    if self._closed:  # By another thread, just now.
                        return
                    raise
                if change.number != last:
                    last = change.number
                    yield change
                if change.state in _OVER:
                    return
                changed.clear()
                loop.add_reader(descriptor, tell)
                await changed.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._iterated = False

    def suspect(self, rank: int, why: str) -> None:
        """Says that ``rank`` is not reached, and why. Kernels of this rank do not wait for it from now on. After the bound ``error`` the
        pair parts and is connected anew. Neither rank loses its place by that."""
        own, ranks = self.team.rank, self.team.ranks
        if rank == own or not 0 <= rank < ranks:
            raise Refused(f"rank {rank} cannot be suspected here: the team has ranks 0 to {ranks - 1}, and this is rank {own}")
        self._native.suspect(rank, why)

    def leave(self, timeout: float) -> None:
        """Asks the others to go on without this rank, and waits until they do. Another thread goes on making calls meanwhile, so
        that no token is lost. Ctrl-C ends the wait; the others still go on without it."""
        self._native.leave(timeout)

    def close(self) -> None:
        """Ends this rank's part. The others go on without it."""
        self._closed = True
        self._native.close()

    def __enter__(self) -> Group:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        view = None if self._closed else self.view
        ranks = [] if view is None else sorted(view.members)
        state = "closed" if self._closed else self.state
        members = "" if self._closed else f", members {ranks}"
        return f"<warpverbs.Group rank {self.team.rank} of {self.team.ranks} on {self.team.device}, {state}{members}>"
