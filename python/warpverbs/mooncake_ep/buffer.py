"""Mooncake's ``Buffer``."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

import torch

from .. import _arrays
from ..deep_ep._calls import Arguments, Calls, format_of, one_of, size_hint
from ..deep_ep._layers import Handle, Hook, Layer, Shape
from ..deep_ep.utils.event import EventOverlap
from ..errors import MoeError, Refused
from ..group import View
from ..moe import Call
from ._places import Elastic, Fixed

__all__ = ["Buffer"]

log = logging.getLogger("warpverbs.mooncake_ep")

_arguments = Arguments(log, "those of Mooncake EP")


class Buffer(Calls):
    """The ranks of a process group, with the memory by which they exchange tokens.

    Making one is collective. So is the first dispatch of each H, E and K, and a dispatch with a larger maxT than any before. It makes
    memory for its calls, for those of the other format and for smaller ones. Buffers of one group share that memory. ``rank``,
    ``group_size`` and ``group`` are those of the process group.
    With ``active_ranks`` the ranks that are left make the memory of a new shape without those that are gone.

    Nothing traps. A missing rank is cleared in ``active_ranks``, and the others go on.

    :param deadline: longest wait of a phase for other ranks where ``timeout_us`` is -1, seconds.
    :param join_timeout: longest wait for other ranks in this call, while the memory of a shape is made, and in
        :meth:`update_ep_member`; seconds.
    :param store: ``file://`` or ``etcd://`` in place of the store of the group. Its leases let ranks that have died be started again;
        such a buffer shares nothing, and its first dispatch has the largest maxT. ``WARPVERBS_STORE`` has the same effect.
    :param run_id: separates runs that use the same ``store``. A rank that is started again needs the one of the others.
    :param lease: how long a rank that does not renew its lease counts as living, seconds; with ``store``.
    :param rejoin: this process takes the place of a rank that has died; waits for no rank. Of ``group`` it asks ``rank()`` and
        ``size()`` alone, so any object with these will do. With ``store``.
    """

    _dispatches_by = "dispatch"

    def __init__(
        self,
        group: Any,
        num_ep_buffer_bytes: int = 0,
        disable_p2p: bool = False,
        *,
        deadline: float = 3600.0,
        join_timeout: float | None = None,
        store: str | None = None,
        run_id: str | None = None,
        lease: float = 2.0,
        rejoin: bool = False,
        **unknown: object,
    ) -> None:
        _arguments.unknown("Buffer", unknown)
        if group is None:
            raise ValueError("group is None; pass a process group of torch.distributed")
        _arguments.ignore("Buffer", {"num_ep_buffer_bytes": (num_ep_buffer_bytes, 0)})
        if not 0 < deadline < 1e9:
            raise Refused(f"deadline is {deadline} seconds; it must be positive and below 10^9")
        self.num_ep_buffer_bytes, self.disable_p2p, self.deadline = num_ep_buffer_bytes, disable_p2p, deadline
        modes = {"direct": False} if disable_p2p else {}
        self._open: Fixed | Elastic | None
        if store is not None or os.environ.get("WARPVERBS_STORE"):
            self._open = Elastic(group, store, run_id, lease, join_timeout, rejoin, modes)
        elif rejoin or run_id is not None:
            name = "rejoin" if rejoin else "run_id"
            raise Refused(
                f"{name} is given without store; ranks are started again in a store with leases: pass store=file://DIRECTORY or "
                "etcd://HOST:PORT/PREFIX"
            )
        else:
            place = Fixed.of(group, None, join_timeout, False, **modes)
            assert isinstance(place, Fixed)
            if place.modes != modes:
                raise Refused(
                    f"disable_p2p is {disable_p2p}, and the buffers of this group that were made before have {not disable_p2p}; "
                    "they share their memory, so pass the same, or another process group"
                )
            self._open = place
        team = self._open.team
        self.group, self.rank, self.group_size = group, team.rank, team.ranks
        self._run_on(team)

    @property
    def _place(self) -> Fixed | Elastic:
        if self._open is None:
            raise Refused("the buffer was destroyed")
        if self._open.fate.lost is not None:
            raise self._open.fate.again()
        return self._open

    def destroy(self) -> None:
        """Gives the buffer back. With a store of its own, the other ranks go on without this one. Otherwise its memory goes with the
        process group."""
        place, self._open = self._open, None
        if isinstance(place, Elastic):
            place.leave()

    @staticmethod
    def get_ep_buffer_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int, num_topk: int | None = None
    ) -> int:
        """Bytes that a layer of this shape takes at each rank. Only a number: memory is taken at the first dispatch.

        :param num_topk: choices of a token. None: min(num_experts, 16).
        """
        return size_hint(num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts, num_topk)

    def warm_up(
        self,
        num_max_dispatch_tokens_per_rank: int,
        hidden: int,
        num_experts: int,
        num_topk: int,
        use_fp8: bool | None = None,
        active_ranks: Any = None,
    ) -> None:
        """Makes the layer of a shape, together with the other ranks: before the capture of a CUDA graph that dispatches it. A rank that
        was started again becomes a member by it.

        :param active_ranks: as in :meth:`dispatch`: ranks that are gone have no part in the layer. None: all ranks make it.
        """
        self._check_active(active_ranks)
        form = format_of(use_fp8 is not False)
        self._place.layer(Shape(num_max_dispatch_tokens_per_rank, hidden, num_experts, num_topk, form), active_ranks)

    def dispatch(
        self,
        x: Any,
        topk_idx: Any,
        active_ranks: Any,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        timeout_us: int,
        use_fp8: bool | None = None,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        **unknown: object,
    ) -> tuple[Any, Any, Handle, EventOverlap, Hook | None]:
        """Sends tokens to the ranks of their experts, and receives: ``(x or (x, scales), counts, handle, event, hook)``.

        Up to two batches may be in flight. A third dispatch takes the place of a batch that was not combined. It is refused while the
        hook of the oldest batch has not been called. Batches are received in their order: a hook that is called before that of an older
        batch receives both. Combining a batch ends older batches that were not combined.

        :param active_ranks: i32 ``[R]``: 1 for each rank that takes part. The entry of a rank whose tokens have not come becomes 0, in
            stream order after the received tokens. None: all ranks take part, and the log names a missing one. On the CPU
            such a call raises :class:`warpverbs.RankLost` if the process of a rank that it waits for has ended.
        :param timeout_us: longest wait of each phase of this dispatch; -1: ``deadline``.
        :param use_fp8: None is true.
        """
        _arguments.unknown("dispatch", unknown)
        one_of(async_finish, return_recv_hook)
        deadline = self._seconds(timeout_us)
        self._check_active(active_ranks)
        hidden, top_k = self._check_tokens(x, topk_idx)
        form = format_of(use_fp8 is not False)
        place = self._place
        served = place.served(active_ranks, num_max_dispatch_tokens_per_rank, hidden, num_experts, top_k, form)
        refused = self._look(place, served.layer, active_ranks)
        if refused is not None:
            raise refused
        received, handle, event, hook = self._dispatch(
            served, x, topk_idx, active_ranks, None, None, deadline, async_finish, return_recv_hook
        )
        used = (x, topk_idx, active_ranks, received.x, received.scales, received.counts, *handle[:2])
        rows = received.x if form == "bf16" else (received.x, received.scales)
        return rows, received.counts, handle, EventOverlap(event, used if async_finish else None), hook

    def combine(
        self,
        x: Any,
        topk_idx: Any,
        topk_weights: Any,
        active_ranks: Any,
        timeout_us: int,
        handle: tuple[Any, ...],
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Any = None,
        **unknown: object,
    ) -> tuple[Any, EventOverlap, Hook | None]:
        """Sends back the experts' results of a batch, and adds them up with weights, in ascending k: ``(sums, event, hook)``.

        :param active_ranks: i32 ``[R]``. The entry of a rank whose rows were not added becomes 0. The ranks that take part are those
            of the dispatch: a rank that was cleared since is added if its rows come.
        :param timeout_us: longest wait of each phase of this combine; -1: ``deadline``.
        """
        _arguments.unknown("combine", unknown)
        one_of(async_finish, return_recv_hook)
        deadline = self._seconds(timeout_us)
        self._check_active(active_ranks)
        place = self._place
        batch = self._to_combine(handle, topk_idx, active_ranks, deadline)
        layer = batch.layer
        refused = self._look(place, layer, active_ranks, batch.call)
        if refused is not None:
            self._send_last(batch, x, zero_copy)
            raise refused
        self._check_choices(batch, topk_idx)
        _arrays.address("topk_weights", topk_weights, "f32", (batch.tokens, batch.shape.top_k), self._gpu)
        if out is None:
            out = torch.empty((batch.tokens, batch.shape.hidden), dtype=torch.bfloat16, device=self._device)
        event, hook = self._combine(batch, x, out, topk_weights, active_ranks, None, zero_copy, async_finish, return_recv_hook, deadline)
        used = (x, topk_idx, topk_weights, active_ranks, *handle[:2], out)
        return out, EventOverlap(event, used if async_finish else None), hook

    def get_next_combine_buffer(self, handle: tuple[Any, ...]) -> Any:
        """The memory that combine of this handle sends from with ``zero_copy=True``: BF16 ``[L, R * maxT, H]``."""
        _ = self._place
        return self._next_combine_buffer(handle)

    def update_ep_member(self, ranks: Iterable[int] | None = None) -> View:
        """Waits until ranks that were started again are members, and returns the view that has them. Nothing moves: layers, handles
        and captured graphs stay valid. Then the caller sets their entries in ``active_ranks`` to 1.

        Needs ``store``, whose leases tell living ranks from dead ones.

        :param ranks: these must be members. None: all ranks.
        """
        place = self._place
        if not isinstance(place, Elastic):
            raise Refused(
                "update_ep_member waits for ranks that are started again, which needs leases: make the Buffer with "
                "store=file://DIRECTORY or etcd://HOST:PORT/PREFIX. A rank whose process still runs takes part again when its entry of "
                "active_ranks is 1, without this call"
            )
        place.check()
        return place.wait_for(range(self.group_size) if ranks is None else ranks)

    def __repr__(self) -> str:
        state = ", destroyed" if self._open is None else ""
        return f"<warpverbs.mooncake_ep.Buffer rank {self.rank} of {self.group_size} on {self._device}{state}>"

    # Steps of the calls.

    def _look(self, place: Fixed | Elastic, layer: Layer, active_ranks: Any, call: Call | None = None) -> MoeError | None:
        """Logs ranks that earlier phases of the layer have missed; raises if this rank is out, if ranks differ in their arguments, or if a
        hook was not called. Returns why the newest phase of this rank was refused, if it was. ``call`` is to be combined."""
        if isinstance(place, Elastic):
            place.check()
        layer.differ(active_ranks)
        refused = layer.check(True, call)
        if refused is None:
            layer.settle()
        return refused

    def _check_active(self, active_ranks: Any) -> None:
        if active_ranks is None:
            return
        if not isinstance(active_ranks, torch.Tensor):
            kind = type(active_ranks).__name__
            raise Refused(f"active_ranks is a {kind}; it must be a tensor of torch, i32 [{self.group_size}], or None")
        if not active_ranks.is_contiguous():
            raise Refused("active_ranks is not contiguous, and is written in place; pass a tensor that is")
        _arrays.address("active_ranks", active_ranks, "i32", (self.group_size,), self._gpu)

    def _seconds(self, timeout_us: int) -> float:
        if timeout_us == -1:
            return self.deadline
        if not 0 < timeout_us < 1e15:
            raise Refused(f"timeout_us is {timeout_us}; it must be positive and below 10^15, or -1 for the deadline of the buffer")
        return timeout_us / 1e6
