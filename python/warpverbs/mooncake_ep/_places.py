"""Where the layers of Mooncake's buffers lie: in a fixed team, or in one whose ranks may be started again."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import Iterable
from typing import Any, ClassVar

from .. import _c10d
from ..deep_ep._layers import Layer, Layers, Names, Place, Shape, can_be_made
from ..errors import Error, RankLost, Refused, TimeoutError
from ..group import Group, View
from ..team import Team

__all__ = ["Elastic", "Fixed"]

NAMES = Names("warpverbs.mooncake_ep", "", "and pass active_ranks to the dispatches that shall")
#: Leases after which a rank that has died is no member any more.
PATIENCE = 3


class Fixed(Place):
    """The ranks of a process group, which meet in its store."""

    _all: ClassVar[weakref.WeakKeyDictionary[Any, Place]] = weakref.WeakKeyDictionary()
    names: ClassVar[Names] = NAMES


class Elastic(Layers):
    """A team whose store carries leases, with the one layer that its group keeps."""

    def __init__(
        self,
        group: Any,
        store: str | None,
        run_id: str | None,
        lease: float,
        join_timeout: float | None,
        rejoin: bool,
        modes: dict[str, Any],
    ) -> None:
        super().__init__()
        if rejoin:
            gpu = None if "WARPVERBS_GPU" in os.environ else _c10d.current_gpu()
            self.team = Team.rejoin(group.rank(), group.size(), store, run_id, gpu=gpu, join_timeout=join_timeout, **modes)
        else:
            self.team = Team.from_group(group, store=store, run_id=run_id, join_timeout=join_timeout, **modes)
        self._lease = lease
        self._limit = self.team._native.join_timeout
        self._layer: Layer | None = None
        self._members: Group | None = None
        #: Whether the newest call asked for another layer.
        self._refused = False

    def layer(self, shape: Shape, active: Any) -> Layer:
        """The layer, which the first use makes: founders together, and a rank that was started again on its own. A group keeps its members,
        whatever the mask."""
        if self._layer is None:
            can_be_made(self.team, shape)
            layer = Layer(self.team, shape, NAMES, self.fate)
            self._members = Group(self.team, layer.moe, lease=self._lease)
            self._members.wait("serving", self._limit)
            self._layer = layer
        if not shape.fits(self._layer.shape):
            # The others may be in a call, and miss this rank.
            self._want(shape.arguments())
            self._refused = True
            raise Refused(
                f"the shape is {shape}, and it was made for {self._layer.shape} and less; a buffer with a store of its own has "
                "one layer, since its group serves one: begin with the largest maxT, and make another Buffer for other numbers"
            )
        return self._layer

    def holds(self, layer: Layer) -> bool:
        """Whether ``layer`` is its own."""
        return self._layer is layer

    def _want(self, arguments: list[tuple[str, str]]) -> None:
        """Tells ranks that miss this one in a call that it asks for something else; no arguments take that back."""
        try:
            self.team._native.wants("another layer", arguments)
        except Error as error:
            logging.getLogger(NAMES.log).warning("other ranks do not learn what rank %s asks for: %s", self.team.rank, error)

    def check(self) -> None:
        """Raises if this rank is no member any more. A call follows that its layer serves."""
        if self._refused:
            self._refused = False
            self._want([])
        state = None if self._members is None else self._members.state
        if state in ("expelled", "left", "broken"):
            rank = self.team.rank
            raise RankLost(f"rank {rank} is no member of its group any more ({state}); start it again, with rejoin=True", (rank,))

    def wait_for(self, ranks: Iterable[int]) -> View:
        """Waits until this rank serves in a view that has all these ranks."""
        wanted = sorted(set(ranks))
        most = self.team.ranks - 1
        if not all(0 <= rank <= most for rank in wanted):
            raise Refused(f"ranks are {wanted}; the group has ranks 0 to {most}")
        if self._members is None:
            raise Refused(
                "this buffer has no layer yet, so it has no members; call warm_up(..) with its shape, or dispatch, before update_ep_member"
            )
        start = time.monotonic()
        view = self._members.wait_view(0, self._limit)
        # A rank that kernels have missed, and that is still a member: a dead one goes with its lease, and a living one stays.
        doubted = {rank: view.members[rank] for rank in self._suspected() if rank in view.members}
        while True:
            missing = [rank for rank in wanted if rank not in view.members]
            doubtful = [rank for rank in wanted if rank in doubted and view.members.get(rank) == doubted[rank]]
            if not missing and not doubtful:
                return view
            limit = self._limit if missing else PATIENCE * self._lease
            try:
                view = self._members.wait_view(view.epoch + 1, max(start + limit - time.monotonic(), 0.001))
            except TimeoutError as error:
                self.check()
                if not missing:
                    return view
                raise TimeoutError(
                    f"ranks {missing} are not members after {self._limit} s (join_timeout); a rank that was started again comes with "
                    f"rejoin=True and warm_up(..) of the same shape; pass ranks=.. to go on without one: {error}"
                ) from error

    def _suspected(self) -> list[int]:
        return [] if self._layer is None else self._layer.moe.suspected()

    def leave(self) -> None:
        """The others go on without this rank."""
        if self._members is not None:
            self._members.close()
        self.team.close()
