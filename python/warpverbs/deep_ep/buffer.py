"""DeepEP's ``Buffer``: the low-latency calls."""

from __future__ import annotations

import logging
import math
from typing import Any, NoReturn

import torch

from .. import _arrays
from ..errors import MoeError, Refused
from ..moe import Call
from ._calls import Arguments, Calls, format_of, one_of, refuse, size_hint
from ._compiled import Compiled
from ._layers import Handle, Hook, Layer, Place, Shape
from .config import Config, combine_config, dispatch_config
from .utils.event import EventHandle, EventOverlap

__all__ = ["Buffer"]

log = logging.getLogger("warpverbs.deep_ep")

#: Dispatches of a buffer that wait as long as other ranks may need to compile and load.
WARM_CALLS = 8

_arguments = Arguments(log, "those of DeepEP V1 and its branch hybrid-ep")


class Buffer(Calls):
    """The ranks of a process group, with the memory by which they exchange tokens.

    Making one is collective. So is the first dispatch of each H, E and K, and a dispatch with a larger maxT than any before. It makes
    memory for its calls, for those of other formats and for smaller ones. Buffers of one group share that memory. ``rank``,
    ``group_size`` and ``group`` are those of the process group.
    With ``enable_shrink`` the ranks that are left make the memory of a new shape without those that are gone.
    In a function that ``torch.compile`` compiles, also with ``fullgraph=True``, both calls are operators of torch. They have neither event
    nor hook there, and a combine goes with a dispatch that was compiled.

    :param deadline: longest wait of a phase for other ranks, seconds. Nothing traps. With ``enable_shrink`` a missing rank is masked;
        without it the next call raises :class:`warpverbs.RankLost` with the rank and the phase. On the CPU the call that waits for it
        does, as soon as the process of that rank is known to have ended.
    :param warm_deadline: the same in the first dispatches of the buffer, while other ranks may still load or compile.
    :param join_timeout: longest wait for other ranks in this call, and while the memory of a shape is made; seconds.
    :param store: ``file://`` or ``etcd://`` in place of the store of the group.
    :param reuse_outputs: a later dispatch of the same shape writes its results over those of an earlier one whose batch is over. That
        saves the allocations.
    """

    #: Of the normal mode.
    num_sms: int = 20

    def __init__(
        self,
        group: Any,
        num_nvl_bytes: int = 0,
        num_rdma_bytes: int = 0,
        low_latency_mode: bool = False,
        num_qps_per_rank: int = 24,
        allow_nvlink_for_low_latency_mode: bool = True,
        allow_mnnvl: bool = False,
        explicitly_destroy: bool = False,
        enable_shrink: bool = False,
        comm: Any = None,
        *,
        allow_nvlink_for_normal_mode: bool = True,
        use_fabric: bool = False,
        num_nvl_peers: int | None = None,
        deadline: float = 100.0,
        warm_deadline: float = 300.0,
        join_timeout: float | None = None,
        store: str | None = None,
        reuse_outputs: bool = False,
        **unknown: object,
    ) -> None:
        _arguments.unknown("Buffer", unknown)
        if comm is not None:
            refuse("comm", "is a communicator of MPI, which Warpverbs does not use; pass group, a process group of torch.distributed")
        if group is None:
            raise ValueError("group is None; pass a process group of torch.distributed")
        ignored = {
            "num_nvl_bytes": (num_nvl_bytes, 0),
            "num_rdma_bytes": (num_rdma_bytes, 0),
            "num_qps_per_rank": (num_qps_per_rank, 24),
            "allow_nvlink_for_low_latency_mode": (allow_nvlink_for_low_latency_mode, True),
            "allow_nvlink_for_normal_mode": (allow_nvlink_for_normal_mode, True),
            "allow_mnnvl": (allow_mnnvl, False),
            "use_fabric": (use_fabric, False),
            "num_nvl_peers": (num_nvl_peers, None),
        }
        _arguments.ignore("Buffer", ignored)
        if not low_latency_mode:
            refuse(
                "low_latency_mode",
                "is False, and such a buffer serves DeepEP's normal mode alone, which is not here yet; pass low_latency_mode=True",
            )
        if not 0 < deadline < 1e9 or not 0 < warm_deadline < 1e9:
            raise Refused(f"deadline is {deadline} and warm_deadline {warm_deadline} seconds; they must be positive and below 10^9")
        self.num_nvl_bytes, self.num_rdma_bytes = num_nvl_bytes, num_rdma_bytes
        self.low_latency_mode = low_latency_mode
        self.explicitly_destroy, self.enable_shrink = explicitly_destroy, enable_shrink
        self._goes_on = enable_shrink
        self.deadline, self.warm_deadline = deadline, warm_deadline
        self._reuses = reuse_outputs
        self._dispatches = 0
        self._open: Place | None = Place.of(group, store, join_timeout, explicitly_destroy)
        team = self._open.team
        self.group, self.rank, self.group_size = group, team.rank, team.ranks
        self._run_on(team)
        #: 1 for each rank that takes part: the other way round than DeepEP's mask.
        self._active = torch.ones(self.group_size, dtype=torch.int32, device=self._device)
        self._scratch: Any = None
        self._compiled = Compiled(self, self._device)

    @property
    def _place(self) -> Place:
        if self._open is None:
            raise Refused("the buffer was destroyed")
        if self._open.fate.lost is not None:
            raise self._open.fate.again()
        return self._open

    def destroy(self) -> None:
        """Gives the buffer back, together with the other ranks; needs ``explicitly_destroy=True``. The memory goes with the last
        buffer of its group."""
        if not self.explicitly_destroy:
            raise Refused("destroy() needs a buffer made with explicitly_destroy=True; others go with their process group")
        if self._open is not None:
            place, self._open = self._open, None
            for layer in place.made():
                layer.wait()
                missed = layer.check(self.enable_shrink)
                if missed is not None:
                    log.warning("a buffer is destroyed, and no call has raised this: %s", missed)
            place.leave()

    def check(self) -> None:
        """Raises what calls have missed that no call has raised yet. Engines do not know this name. It waits until a GPU has run what was
        launched. With ``enable_shrink`` the mask says which ranks were missed, and so does the log."""
        for layer in self._place.made():
            layer.wait()
            missed = self._look(layer)
            if missed is not None:
                raise missed

    def __del__(self) -> None:
        # A collected buffer meets no other rank. Its memory goes with the next buffer of its group that is destroyed, or with the group.
        place = getattr(self, "_open", None)
        if place is not None and self.explicitly_destroy:
            place.users -= 1

    # The low-latency calls.

    @staticmethod
    def get_low_latency_rdma_size_hint(
        num_max_dispatch_tokens_per_rank: int, hidden: int, num_ranks: int, num_experts: int, num_topk: int | None = None
    ) -> int:
        """Bytes that a layer of this shape takes at each rank. Only a number: memory is taken at the first dispatch.

        :param num_topk: choices of a token. None: min(num_experts, 16).
        """
        return size_hint(num_max_dispatch_tokens_per_rank, hidden, num_ranks, num_experts, num_topk)

    def clean_low_latency_buffer(self, num_max_dispatch_tokens_per_rank: int, hidden: int, num_experts: int) -> None:
        """Nothing: signals have numbers, so nothing needs cleaning."""
        _ = self._place

    def warm_up(
        self,
        num_max_dispatch_tokens_per_rank: int,
        hidden: int,
        num_experts: int,
        num_topk: int,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
    ) -> None:
        """Makes the layer of a shape, together with the other ranks: before the capture of a CUDA graph that dispatches it. Where one rank
        cannot, as it has no memory, all of them raise with its reason, and all can call it again."""
        form = format_of(use_fp8, round_scale, use_ue8m0)
        active = self._active if self.enable_shrink else None
        self._place.layer(Shape(num_max_dispatch_tokens_per_rank, hidden, num_experts, num_topk, form), active)

    def low_latency_dispatch(
        self,
        x: Any,
        topk_idx: Any,
        num_max_dispatch_tokens_per_rank: int,
        num_experts: int,
        cumulative_local_expert_recv_stats: Any = None,
        dispatch_wait_recv_cost_stats: Any = None,
        use_fp8: bool = True,
        round_scale: bool = False,
        use_ue8m0: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        *,
        topk_weights: Any = None,
        x_global_scale: Any = None,
        use_nvfp4: bool = False,
        use_ue8m0_for_sf: bool = False,
        **unknown: object,
    ) -> tuple[Any, Any, Handle, EventOverlap, Hook | None]:
        """Sends tokens to the ranks of their experts, and receives: ``(x or (x, scales), counts, handle, event, hook)``.

        Up to two batches may be in flight. A third dispatch takes the place of a batch that was not combined. It is refused while the
        hook of the oldest batch has not been called. Batches are received in their order: a hook that is called before that of an older
        batch receives both. Combining a batch ends older batches that were not combined.
        """
        if torch.compiler.is_dynamo_compiling():
            formed = use_fp8, round_scale, use_ue8m0
            stats = cumulative_local_expert_recv_stats, dispatch_wait_recv_cost_stats
            others = *stats, async_finish, return_recv_hook, topk_weights, x_global_scale, use_nvfp4, use_ue8m0_for_sf, self._reuses
            return self._compiled.dispatch(x, topk_idx, num_max_dispatch_tokens_per_rank, num_experts, formed, others)
        if unknown:
            _arguments.unknown("low_latency_dispatch", unknown)
        if topk_weights is not None:
            refuse("topk_weights", "at dispatch returns weights by row, which the low-latency mode here does not; pass them to combine")
        if use_nvfp4 or x_global_scale is not None or use_ue8m0_for_sf:
            name = "use_nvfp4" if use_nvfp4 else "x_global_scale" if x_global_scale is not None else "use_ue8m0_for_sf"
            refuse(name, "quantises to FP4 inside dispatch; quantise before, and use warpverbs.Moe(.., format=(bytes, scale bytes))")
        one_of(async_finish, return_recv_hook)
        hidden, top_k = self._check_tokens(x, topk_idx)
        stats = cumulative_local_expert_recv_stats
        form = format_of(use_fp8, round_scale, use_ue8m0)
        place = self._place
        active = self._active if self.enable_shrink else None
        served = place.served(active, num_max_dispatch_tokens_per_rank, hidden, num_experts, top_k, form)
        layer = served.layer
        missed = self._look(layer)
        if missed is not None:
            raise missed
        if stats is not None:
            _arrays.address("cumulative_local_expert_recv_stats", stats, "i32", (layer.moe.room,), self._gpu)
        if dispatch_wait_recv_cost_stats is not None:
            _arrays.address("dispatch_wait_recv_cost_stats", dispatch_wait_recv_cost_stats, "i64", (self.group_size,), self._gpu)
        deadline = self.warm_deadline if self._dispatches < WARM_CALLS else self.deadline
        received, handle, event, hook = self._dispatch(
            served, x, topk_idx, active, dispatch_wait_recv_cost_stats, stats, deadline, async_finish, return_recv_hook
        )
        self._dispatches += 1
        used = (x, topk_idx, received.x, received.scales, received.counts, *handle[:2], stats) if async_finish else None
        rows = (received.x, received.scales) if use_fp8 else received.x
        return rows, received.counts, handle, EventOverlap(event, used), hook

    def low_latency_combine(
        self,
        x: Any,
        topk_idx: Any,
        topk_weights: Any,
        handle: tuple[Any, ...],
        use_logfmt: bool = False,
        zero_copy: bool = False,
        async_finish: bool = False,
        return_recv_hook: bool = False,
        out: Any = None,
        combine_wait_recv_cost_stats: Any = None,
        *,
        overlap: bool = False,
        src_signals: Any = None,
        src_signal_expect_value: int = 0,
        packed_recv_count: Any = None,
        comp_signal: Any = None,
        block_m: int | None = None,
        threshold: int | None = None,
        num_sms: int | None = None,
        **unknown: object,
    ) -> tuple[Any, EventOverlap, Hook | None]:
        """Sends back what the experts made of a batch, and adds it up with weights, in ascending k: ``(sums, event, hook)``.

        A batch that was combined can be combined again, at all ranks alike and with the same choices. That dispatches them once more, with
        tokens that nobody gets."""
        if torch.compiler.is_dynamo_compiling():
            others = use_logfmt, zero_copy, async_finish, return_recv_hook, out, combine_wait_recv_cost_stats, overlap
            return self._compiled.combine(x, topk_idx, topk_weights, handle, others)
        _arguments.unknown("low_latency_combine", unknown)
        if use_logfmt:
            refuse("use_logfmt", "packs rows into 10 bits, which combine here does not: it sends BF16; pass use_logfmt=False")
        if overlap:
            refuse("overlap", "sends rows while the GEMM runs, by signals of its blocks; pass overlap=False and overlap two micro-batches")
        ignored = {
            "src_signals": (src_signals, None),
            "src_signal_expect_value": (src_signal_expect_value, 0),
            "packed_recv_count": (packed_recv_count, None),
            "comp_signal": (comp_signal, None),
            "block_m": (block_m, None),
            "threshold": (threshold, None),
            "num_sms": (num_sms, None),
        }
        _arguments.ignore("low_latency_combine", ignored)
        one_of(async_finish, return_recv_hook)
        active = self._active if self.enable_shrink else None
        batch = self._to_combine(handle, topk_idx, active, self.deadline)
        layer = batch.layer
        missed = self._look(layer, batch.call)
        if missed is not None:
            self._send_last(batch, x, zero_copy)
            raise missed
        self._check_choices(batch, topk_idx)
        _arrays.address("topk_weights", topk_weights, "f32", (batch.tokens, batch.shape.top_k), self._gpu)
        if out is None:
            out = torch.empty((batch.tokens, batch.shape.hidden), dtype=torch.bfloat16, device=self._device)

        waited = combine_wait_recv_cost_stats
        if waited is not None:
            _arrays.address("combine_wait_recv_cost_stats", waited, "i64", (self.group_size,), self._gpu)
        event, hook = self._combine(batch, x, out, topk_weights, active, waited, zero_copy, async_finish, return_recv_hook)
        used = (x, topk_idx, topk_weights, *handle[:2], out)
        return out, EventOverlap(event, used if async_finish else None), hook

    def get_next_low_latency_combine_buffer(self, handle: tuple[Any, ...]) -> Any:
        """The memory that combine of this handle sends from with ``zero_copy=True``: BF16 ``[L, R * maxT, H]``."""
        _ = self._place
        return self._next_combine_buffer(handle)

    # Masks: 1 is a rank that takes no part.

    def low_latency_update_mask_buffer(self, rank_to_mask: int, mask: bool = False) -> None:
        """Leaves ``rank_to_mask`` out of later calls, or takes it in again."""
        active = self._mask("low_latency_update_mask_buffer")
        if not 0 <= rank_to_mask < self.group_size:
            raise Refused(f"rank_to_mask is {rank_to_mask}; the group has ranks 0 to {self.group_size - 1}")
        active[rank_to_mask] = int(not mask)

    def low_latency_query_mask_buffer(self, mask_status: Any) -> None:
        """Writes the mask into ``mask_status``, i32 ``[R]``, in the current stream."""
        active = self._mask("low_latency_query_mask_buffer")
        _arrays.address("mask_status", mask_status, "i32", (self.group_size,), self._gpu)
        mask_status.copy_(1 - active)

    def low_latency_clean_mask_buffer(self) -> None:
        """Takes all ranks in again."""
        self._mask("low_latency_clean_mask_buffer").fill_(1)

    # What belongs to both modes.

    def get_comm_stream(self) -> Any:
        """The stream of calls without a hook; None on the CPU."""
        return self._comm_stream

    def get_local_buffer_tensor(self, dtype: Any, size: Any = None, offset: int = 0, use_rdma_buffer: bool = False) -> Any:
        """Memory of this buffer that nothing else uses: slots and signals are not handed out, so zeroing it breaks nothing."""
        _ = self._place
        _arguments.ignore("get_local_buffer_tensor", {"use_rdma_buffer": (use_rdma_buffer, False)})
        width = torch.empty((), dtype=dtype).element_size()
        elements = 4096 // width if size is None else math.prod(size)
        needed = offset * width + elements * width
        if self._scratch is None or self._scratch.numel() < needed:
            self._scratch = torch.zeros(max(needed, 4096), dtype=torch.uint8, device=self._device)
        part = self._scratch[offset * width : needed].view(dtype)
        return part if size is None else part.view(size)

    @staticmethod
    def capture() -> EventOverlap:
        """An event of what torch's current stream has done until now."""
        return EventOverlap(EventHandle())

    @staticmethod
    def is_sm90_compiled() -> bool:
        """Whether the package has kernels for SM 9.0: always."""
        return True

    @staticmethod
    def set_num_sms(new_num_sms: int) -> None:
        """Sets :attr:`num_sms`, which only the normal mode would read."""
        if new_num_sms % 2 or new_num_sms < 0:
            raise ValueError(f"new_num_sms is {new_num_sms}; it must be even, and not negative")
        Buffer.num_sms = new_num_sms

    @staticmethod
    def get_dispatch_config(num_ranks: int) -> Config:
        """Of the normal mode."""
        return dispatch_config(Buffer.num_sms, num_ranks)

    @staticmethod
    def get_combine_config(num_ranks: int) -> Config:
        """Of the normal mode."""
        return combine_config(Buffer.num_sms, num_ranks)

    # The normal mode.

    def get_dispatch_layout(
        self,
        topk_idx: Any,
        num_experts: int,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> NoReturn:
        """Not here yet."""
        _normal("get_dispatch_layout")

    def dispatch(
        self,
        x: Any,
        handle: Any = None,
        num_tokens_per_rank: Any = None,
        num_tokens_per_rdma_rank: Any = None,
        is_token_in_rank: Any = None,
        num_tokens_per_expert: Any = None,
        topk_idx: Any = None,
        topk_weights: Any = None,
        expert_alignment: int = 1,
        num_worst_tokens: int = 0,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> NoReturn:
        """Not here yet."""
        _normal("dispatch")

    def combine(
        self,
        x: Any,
        handle: Any,
        topk_weights: Any = None,
        bias: Any = None,
        config: Config | None = None,
        previous_event: EventOverlap | None = None,
        async_finish: bool = False,
        allocate_on_comm_stream: bool = False,
    ) -> NoReturn:
        """Not here yet."""
        _normal("combine")

    def internode_dispatch(self, *_: Any, **__: Any) -> NoReturn:
        """Not here yet."""
        _normal("internode_dispatch")

    def internode_combine(self, *_: Any, **__: Any) -> NoReturn:
        """Not here yet."""
        _normal("internode_combine")

    def dispatch_pcie(self, *_: Any, **__: Any) -> NoReturn:
        """Not here yet."""
        _normal("dispatch_pcie")

    def combine_pcie(self, *_: Any, **__: Any) -> NoReturn:
        """Not here yet."""
        _normal("combine_pcie")

    def __repr__(self) -> str:
        state = ", destroyed" if self._open is None else ""
        return f"<warpverbs.deep_ep.Buffer rank {self.rank} of {self.group_size} on {self._device}{state}>"

    # Steps of the calls.

    def _look(self, layer: Layer, call: Call | None = None) -> MoeError | None:
        """Raises what earlier phases of the layer have left: ranks that differ in their arguments, and hooks that were not called. Returns
        what they have missed. ``call`` is to be combined."""
        layer.differ(self._active if self.enable_shrink else None)
        missed = layer.check(self.enable_shrink, call)
        if missed is None:
            layer.settle()
        return missed

    def _mask(self, call: str) -> Any:
        _ = self._place
        if not self.enable_shrink:
            raise Refused(f"{call} needs a buffer made with enable_shrink=True")
        return self._active


def _normal(name: str) -> NoReturn:
    refuse(name, "belongs to DeepEP's normal mode, which is not here yet; use low_latency_dispatch and low_latency_combine")
