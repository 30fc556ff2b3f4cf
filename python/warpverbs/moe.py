"""Layers and calls: dispatch of tokens to experts, and combine of what comes back."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

from . import _arrays, _native
from ._numbers import check_whole
from .errors import Error, MoeError, Refused, TeamError, TimeoutError
from .team import Team

__all__ = ["Call", "Combined", "Moe", "Received", "Report"]

#: Formats by the names that ``Moe(format=..)`` takes.
FORMATS = ("bf16", "fp8", "fp8-pow2", "fp8-ue8m0")
#: How long a wait goes on before it looks whether another rank has given up, seconds.
LOOK = 0.5
#: Channels that share a scale.
GROUP = 128
#: The newest phase of a call, in words.
NEW, SENT, DISPATCHED, RETURNED, COMBINED = "none", "dispatch_send", "a whole dispatch", "combine_send", "a whole combine"


_Result = TypeVar("_Result")

log = logging.getLogger("warpverbs")


class Report(NamedTuple):
    """How a call went, by the phases that have ended."""

    #: Number of the call.
    call: int
    #: Number of the view in which it ran; 0 without a group.
    epoch: int
    #: Whether every phase so far went through for every rank.
    complete: bool
    #: Ranks that something is missing of.
    ranks: tuple[int, ...]
    #: The phase in which the first fault showed, 0 to 3; None without a fault.
    phase: int | None
    #: All of it in words.
    text: str
    #: Whether its dispatch has offered the layer's own memory for a combine with ``staging=True``.
    offered: bool
    #: Calls of the layer, up to this one, that found no free send buffer and so sent nothing.
    unbuffered: int


class Received:
    """The rows that a dispatch has laid out: by local expert (``layout="expert"``) or by source rank (``layout="rank"``).

    ``L`` is the number of expert slots of each rank, ``R`` the number of ranks. ``T`` is ``max_tokens``, ``K`` is ``top_k``, ``H`` is
    ``hidden``.
    """

    __slots__ = (
        "active",
        "active_in_place",
        "counts",
        "experts",
        "layout_range",
        "scales",
        "scales_memory",
        "src_info",
        "stats",
        "wait_ns",
        "weights",
        "x",
    )

    def __init__(
        self,
        x: Any,
        counts: Any,
        src_info: Any,
        *,
        scales_memory: Any = None,
        scales: Any = None,
        layout_range: Any = None,
        experts: Any = None,
        weights: Any = None,
        stats: Any = None,
        wait_ns: Any = None,
        active: Any = None,
        active_in_place: bool = False,
    ) -> None:
        #: Tokens: ``[L, R·T, H]`` by expert, with the first ``counts[e]`` rows of each written; or ``[R, T, H]`` by rank.
        self.x = x
        #: Rows of each local expert, or of each rank: i32.
        self.counts = counts
        #: The row of the source rank's input from which each row comes: i32, in the shape of the rows.
        self.src_info = src_info
        #: Scales as they lie in memory: FP8 by expert has the rows innermost.
        self.scales_memory = scales_memory
        #: Scales in the order of the rows, a view of :attr:`scales_memory`.
        self.scales = scales
        #: By expert: begin << 32 | count of the rows of each rank: i64 ``[L, R]``.
        self.layout_range = layout_range
        #: By rank: local experts of each row, -1 none: i32 ``[R, T, K]``.
        self.experts = experts
        #: By rank: their weights: f32 ``[R, T, K]``.
        self.weights = weights
        #: Added to: rows of each local expert: i64 or i32 ``[L]``.
        self.stats = stats
        #: Added to: ns waited for each rank: i64 ``[R]``.
        self.wait_ns = wait_ns
        #: 1 for each rank whose rows have arrived, 0 for the others: i32 ``[R]``.
        self.active = active
        #: Whether :attr:`active` is the caller's own mask, for example the one passed to the dispatch. Entries of ranks whose rows did
        #: not arrive become 0, and the others stay as they are.
        self.active_in_place = active_in_place

    def _tensors(self) -> tuple[Any, ...]:
        """All of them, in the order of the native module."""
        x, scales, source, active = self.x, self.scales_memory, self.src_info, self.active
        return x, scales, self.counts, source, self.layout_range, self.experts, self.weights, self.stats, self.wait_ns, active

    def __repr__(self) -> str:
        return f"<warpverbs.Received {_shown(self.x)}>"


class Combined(NamedTuple):
    """What a combine has added up."""

    #: BF16 ``[tokens, H]``.
    out: Any
    #: 1 for each token all of whose experts contributed: u8 ``[tokens]``.
    token_valid: Any
    #: 1 for each rank whose rows were added: i32 ``[R]``, or the caller's own mask without ranks whose rows were not. In a group it is
    #: :attr:`Group.active` where the call gives no tensor.
    active: Any
    #: Added to: ns waited for each rank: i64 ``[R]``. None: not kept.
    wait_ns: Any

    def __repr__(self) -> str:
        return f"<warpverbs.Combined {_shown(self.out)}>"


def _shown(array: Any) -> str:
    """Shape, bytes and device of an array, and nothing that waits for a device."""
    shape = getattr(array, "shape", None)
    if shape is None:
        return type(array).__name__
    bytes, device = getattr(array, "nbytes", None), getattr(array, "device", None)
    held = "" if bytes is None else f", {bytes} bytes"
    return f"{list(shape)} {array.dtype}{held}" + ("" if device is None else f" on {device}")


class _Output(NamedTuple):
    """What a tensor that a dispatch writes must be."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    align: int


class CallShape(NamedTuple):
    """What the tensors of a call are sized by: those of its layer, or its own."""

    format: str
    max_tokens: int
    #: Format and max_tokens as the native module takes them; 0: the layer's.
    native: tuple[int, int]
    #: What its dispatch writes, in the order of the native module: what comes before the statistics, and what after.
    before: list[_Output]
    behind: list[_Output]
    #: Looks at tensors of torch in the native module. None: torch is older than that, or was not imported when this was made.
    form: _native.Form | None


def _address(name: str, value: Any, dtype: str, shape: tuple[int | None, ...], moe: Moe, align: int = 0) -> int:
    return _arrays.address(name, value, dtype, shape, moe.gpu, align or None)


class Moe:
    """A MoE layer's shape, with the memory that its calls need; one serves all layers of a model that have this shape.

    Making one is collective: all ranks make their layers in the same order, with the same ``name`` and shape.

    :param hidden: BF16 elements of a token: a multiple of 8, of 128 for FP8, at most 16,384.
    :param experts: experts of all ranks together, at most 4,096.
    :param top_k: experts that a token may choose, 1 to 32.
    :param max_tokens: most tokens that a rank dispatches in one call, 1 to 65,534. A call may pass fewer, and another format that takes
        no more bytes.
    :param format: ``bf16``, ``fp8``, ``fp8-pow2``, ``fp8-ue8m0`` or ``(bytes, scale bytes)``. FP8 is e4m3 with a scale for each 128
        channels: f32, f32 rounded up to a power of two, or its exponent byte. The library does not read the contents of tokens of the
        last form.
    :param layout: ``expert`` or ``rank``: how dispatch lays out what it received.
    :param returns: ``sums``: combine sends back one row for each rank, weighted by dispatch's weights; ``rows``: one for each expert,
        weighted at combine.
    :param local_experts: places for experts that each rank has. 0: as many as the placement uses.
    :param failing_links: links to peers that may fail within the patience of the HCA while calls with all others go on, 0 to 14. Each
        takes two more send buffers of ``max_tokens`` tokens.
    :param placement: the experts of each rank, in the order of their local numbers. None: contiguous blocks.
    """

    def __init__(
        self,
        team: Team,
        name: str,
        *,
        hidden: int,
        experts: int,
        top_k: int,
        max_tokens: int,
        format: str | tuple[int, int] = "bf16",
        layout: str = "expert",
        returns: str = "sums",
        local_experts: int = 0,
        failing_links: int = 1,
        placement: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.team = team
        self.name = name
        self.hidden, self.experts, self.top_k, self.max_tokens = hidden, experts, top_k, max_tokens
        self.layout, self.returns = layout, returns
        shape = _shape(hidden, experts, top_k, max_tokens, format, layout, returns, local_experts, failing_links)
        self.format = shape[4]
        self._payload, self._scale_bytes = shape[5], shape[6]
        table = None if placement is None else [list(held) for held in placement]
        self._native = _native.Moe(team._native, name, shape, table)
        self._bytes = _native.required_bytes(shape, team.ranks)
        if team._deadline is not None:
            self.set_deadlines(team._deadline)
        #: Places for experts that each rank has: the first dimension of what dispatch lays out by expert.
        self.room: int = self._native.room
        #: Whether its kernels run on the CPU.
        self.on_cpu: bool = team.on_cpu
        #: CUDA's number of the GPU that its tensors lie on; None for the CPU.
        self.gpu: int | None = team.gpu
        #: Ranks whose processes have ended, and for which no call waits any more.
        self._dead: set[int] = set()
        self._shapes: dict[tuple[str | None, int | None], CallShape] = {}
        self._own = self._shape_of(None, None)
        #: What combine writes as ``active`` where a call gives no tensor: that of the layer's group.
        self._active: Any = None

    @staticmethod
    def required_bytes(
        ranks: int,
        *,
        hidden: int,
        experts: int,
        top_k: int,
        max_tokens: int,
        format: str | tuple[int, int] = "bf16",
        layout: str = "expert",
        returns: str = "sums",
        local_experts: int = 0,
        failing_links: int = 1,
    ) -> dict[str, int]:
        """Bytes of device memory that a layer of this shape takes at each of ``ranks``, without making it. The library allocates
        ``slots``, ``staging``, ``signals``, ``state`` and ``handle`` (for each call). The caller allocates ``recv_x``, ``recv_scales``
        and ``y``."""
        shape = _shape(hidden, experts, top_k, max_tokens, format, layout, returns, local_experts, failing_links)
        return dict(_native.required_bytes(shape, ranks))

    def call(self) -> Call:
        """A handle of one call at a time. A program with two calls open at once has two."""
        if self.team._is_over:
            self._refuse_closed()
        return Call(self)

    def _refuse_closed(self) -> NoReturn:
        raise Refused(f"the team of layer {self.name!r} is closed; a call needs an open one")

    def local_experts(self) -> list[int]:
        """Experts of this rank in the newest view, in the order of their local numbers."""
        return list(self._native.local_experts())

    def set_deadlines(self, steady: float, warm: float | None = None, warm_calls: int = 0, change: float | None = None) -> None:
        """Sets how long a phase waits for other ranks, seconds: ``steady`` in general, ``warm`` in the first ``warm_calls`` calls.
        ``change`` is how long calls are held while members change, before they are lost: 10 s, or ``steady`` if that is longer."""
        warm, change = steady if warm is None else warm, max(steady, 10.0) if change is None else change
        for name, seconds in {"steady": steady, "warm": warm, "change": change}.items():
            if not 0 < seconds < 1e9:
                raise Refused(f"{name} is {seconds} seconds; it must be positive and below 10^9")
        self._native.set_deadlines(steady, warm, warm_calls, change)

    def set_placement_policy(self, policy: str) -> None:
        """Sets the ranks of the experts in the views of a group. ``fixed``: they stay where they are, so no rank serves the experts of a
        rank that is gone. ``spread``: in contiguous blocks over the members, as far as ``local_experts`` has room. All ranks make the
        same call before their :class:`Group`."""
        self._native.set_placement_policy(policy)

    def set_placement_of(self, members: Sequence[int], placement: Sequence[Sequence[int]] | None) -> None:
        """Sets the experts of each rank, in the order of their local numbers, for views of these members; None: by the policy. All ranks
        call it alike, before a view has these members."""
        table = None if placement is None else [list(held) for held in placement]
        self._native.set_placement_of(list(members), table)

    def set_active(self, active: Sequence[bool]) -> None:
        """Sets with which ranks later calls exchange, where a call brings no mask of its own."""
        self._native.set_active([bool(each) for each in active])

    def progress(self) -> tuple[int, int]:
        """Numbers of the newest calls that have started and ended. Reads host memory, without a sync."""
        started, ended = self._native.progress()
        return started, ended

    def suspected(self) -> list[int]:
        """Ranks for which kernels have waited in vain, and from which nothing has arrived since. Reads host memory, without a sync."""
        return list(self._native.suspected())

    def last_fault(self) -> str | None:
        """The newest fault in words; None if no call had one. Reads host memory, without a sync."""
        return self._native.last_fault()

    @property
    def unbuffered(self) -> int:
        """Calls so far that found no free send buffer, and so sent nothing: links to more ranks than ``failing_links`` failed within the
        patience of the HCA. Reads host memory, without a sync."""
        return self._native.unbuffered

    def staging(self, set: int) -> Any:
        """The memory from which combine sends with ``staging=True``, as a torch tensor ``[L, R·T, H]``, or ``[R, T, H]`` by rank. ``set``
        is the number of the call modulo 2. The tensor keeps the layer. Needs ``returns="rows"`` or ``layout="rank"``."""
        memory, (blocks, rows, _) = self._native.staging(set)
        torch = self._torch()
        flat = torch.from_dlpack(memory) if self.on_cpu else torch.as_tensor(memory, device=self._device)
        return flat.view(torch.bfloat16).view(blocks, rows, self.hidden)

    def received(
        self,
        *,
        stats: bool = False,
        wait_ns: bool = False,
        active: bool = True,
        format: str | None = None,
        max_tokens: int | None = None,
    ) -> Received:
        """Makes the tensors of one dispatch with torch, to be passed as ``out`` again and again. ``format`` and ``max_tokens`` are those of
        the dispatch."""
        return self._received(self._shape_of(format, max_tokens), stats, wait_ns, active)

    def _received(self, shape: CallShape, stats: bool = False, wait_ns: bool = False, active: bool = True) -> Received:
        torch = self._torch()
        device = self._device
        ranks, lead = self.team.ranks, self._lead(shape.max_tokens)
        widths = {"bf16": (torch.bfloat16, self.hidden), "opaque": (torch.uint8, self._payload)}
        dtype, width = widths.get(shape.format, (torch.float8_e4m3fn, self.hidden))

        def empty(shape: tuple[int, ...], of: Any) -> Any:
            return torch.empty(shape, dtype=of, device=device)

        memory = scales = None
        if shape.format not in ("bf16", "opaque") or self._scale_bytes:
            places, kind = self._scales(shape.format, lead)
            memory = empty(places, {"f32": torch.float32, "i32": torch.int32, "u8": torch.uint8}[kind])
            by_expert = self.layout == "expert" and shape.format != "opaque"
            scales = memory.transpose(1, 2) if by_expert else memory
        out = Received(
            empty((*lead, width), dtype),
            empty(lead[:1], torch.int32),
            empty(lead, torch.int32),
            scales_memory=memory,
            scales=scales,
            active=empty((ranks,), torch.int32) if active else None,
        )
        if self.layout == "expert":
            out.layout_range = empty((self.room, ranks), torch.int64)
        else:
            out.experts = empty((*lead, self.top_k), torch.int32)
            out.weights = empty((*lead, self.top_k), torch.float32)
        if stats:
            out.stats = torch.zeros((self.room,), dtype=torch.int64, device=device)
        if wait_ns:
            out.wait_ns = torch.zeros((ranks,), dtype=torch.int64, device=device)
        return out

    def _shape_of(self, format: str | None, max_tokens: int | None) -> CallShape:
        """That of a call; None is the layer's."""
        shape = self._shapes.get((format, max_tokens))
        if shape is None:
            shape = self._shapes[format, max_tokens] = self._new_shape(format, max_tokens)
        return shape

    def _new_shape(self, format: str | None, max_tokens: int | None) -> CallShape:
        if format is not None and format != self.format and format not in FORMATS:
            raise Refused(f"format is {format!r}; that of a call is one of {', '.join(FORMATS)}, or None for that of the layer")
        rows = self.max_tokens if max_tokens is None else max_tokens
        check_whole("max_tokens of a call", rows, 1, self.max_tokens)
        own = format is not None and format != self.format
        native = (FORMATS.index(format) + 1 if format is not None and own else 0, 0 if rows == self.max_tokens else rows)
        if any(native):
            self._native.announce(*native)
        form = self.format if format is None else format
        before, behind = self._outputs(form, rows)
        return CallShape(form, rows, native, before, behind, self._form(form, rows, before, native))

    def _mark_dead(self, rank: int) -> None:
        if rank not in self._dead:
            self._native.mark_dead(rank)
            self._dead.add(rank)

    def _form(self, format: str, rows: int, outputs: list[_Output], native: tuple[int, int]) -> _native.Form | None:
        torch = _arrays.torch()
        if torch is None or format == "opaque":
            return None
        sizes = rows, self.hidden, self.top_k, self.room, self.team.ranks
        written = [(dtype, list(places), align) for _, dtype, places, align in outputs]
        return _native.Form.of(torch.Tensor, self.gpu, sizes, written, native)

    def _lead(self, rows: int) -> tuple[int, int]:
        """The first dimensions of what a dispatch writes."""
        ranks = self.team.ranks
        return (self.room, ranks * rows) if self.layout == "expert" else (ranks, rows)

    def _outputs(self, format: str, rows: int) -> tuple[list[_Output], list[_Output]]:
        ranks, lead = self.team.ranks, self._lead(rows)
        widths = {"bf16": ("bf16", self.hidden), "opaque": ("u8", self._payload)}
        dtype, width = widths.get(format, ("fp8", self.hidden))
        scales, kind = self._scales(format, lead)
        picks = (*lead, self.top_k)
        before = [
            _Output("out.x", dtype, (*lead, width), 16),
            _Output("out.scales_memory", kind, scales, 4),
            _Output("out.counts", "i32", lead[:1], 4),
            _Output("out.src_info", "i32", lead, 4),
            _Output("out.layout_range", "i64", (self.room, ranks), 8),
            _Output("out.experts", "i32", picks, 4),
            _Output("out.weights", "f32", picks, 4),
        ]
        return before, [_Output("out.wait_ns", "i64", (ranks,), 8), _Output("out.active", "i32", (ranks,), 4)]

    def _scales(self, format: str, lead: tuple[int, int]) -> tuple[tuple[int, ...], str]:
        """Shape and element type of the scales of a dispatch, as they lie in memory."""
        if format == "opaque":
            return (*lead, self._scale_bytes), "u8"
        words, kind = _scale_words(self.hidden, format)
        return ((lead[0], words, lead[1]) if self.layout == "expert" else (*lead, words)), kind

    @property
    def _device(self) -> str:
        """That of its tensors, as torch names it."""
        return _arrays.device_of(self.gpu)

    @staticmethod
    def _torch() -> Any:
        torch = _arrays.torch()
        if torch is None:
            raise Refused("out is None, and torch is not imported; pass a Received with tensors of your library")
        return torch

    def __repr__(self) -> str:
        library = sum(self._bytes[name] for name in ("slots", "staging", "signals", "state"))
        return (
            f"<warpverbs.Moe {self.name!r} rank {self.team.rank} of {self.team.ranks}: {self.experts} experts, top {self.top_k}, "
            f"{self.max_tokens} x {self.hidden} {self.format}, {library} bytes on {self.team.device}>"
        )


def _scale_words(hidden: int, format: str) -> tuple[int, str]:
    """Words of 4 bytes that hold the scales of an FP8 token, and their element type."""
    groups = -(-hidden // GROUP)
    return (-(-groups // 4), "i32") if format == "fp8-ue8m0" else (groups, "f32")


def _shape(
    hidden: int,
    experts: int,
    top_k: int,
    max_tokens: int,
    format: str | tuple[int, int],
    layout: str,
    returns: str,
    local_experts: int,
    failing_links: int,
) -> tuple[int, int, int, int, str, int, int, str, str, int, int]:
    """The shape as the native module takes it."""
    if isinstance(format, str):
        word, payload, scale = format, 0, 0
        if word not in FORMATS:
            raise Refused(f"format is {format!r}; it must be one of {', '.join(FORMATS)}, or (bytes, scale bytes)")
    else:
        word, (payload, scale) = "opaque", format
    numbers = {
        "hidden": hidden,
        "experts": experts,
        "top_k": top_k,
        "max_tokens": max_tokens,
        "bytes of format": payload,
        "scale bytes of format": scale,
        "local_experts": local_experts,
        "failing_links": failing_links,
    }
    for name, value in numbers.items():
        check_whole(name, value, 0, (1 << 32) - 1)
    return hidden, experts, top_k, max_tokens, word, payload, scale, layout, returns, local_experts, failing_links


def _nanoseconds(deadline: float | None) -> int:
    """The caller's deadline in ns; 0 without one."""
    if deadline is None:
        return 0
    if not 0 < deadline < 1e9:
        raise Refused(f"deadline is {deadline} seconds; it must be positive and below 10^9")
    return max(1, int(deadline * 1e9))


class Call:
    """One call at a time: dispatch, then combine. Every rank makes the same phases in the same order.

    On a GPU each phase is one launch, and returns at once. It runs in torch's current stream, or in ``stream``, a ``cudaStream_t`` as a
    number. The CPU has no streams. Phases that receive, ``dispatch`` and ``combine`` have ended when they return. A phase that sends
    returns at once, and its input must not be written before the next phase has returned.
    """

    def __init__(self, moe: Moe) -> None:
        self.moe = moe
        self._native = moe._native.call()
        self._tokens = 0
        self._shape = moe._own
        #: Whether the caller has named the ranks that take part, and so goes on without others.
        self._masked = False
        #: Whether every weight counts as 1 in the combine that was sent.
        self._unweighted = False
        #: The newest phase that was launched, and whether a combine follows the dispatch.
        self._stage, self._combines = NEW, True

    def dispatch_send(
        self,
        x: Any,
        experts: Any,
        weights: Any = None,
        *,
        scales: Any = None,
        active: Any = None,
        deadline: float | None = None,
        combine: bool = True,
        format: str | None = None,
        max_tokens: int | None = None,
        stream: int | None = None,
    ) -> _native.Event:
        """Sends tokens to the ranks of their experts.

        :param x: ``[tokens, H]`` in BF16, which an FP8 layer casts; or in the layer's own format, with ``scales``.
        :param experts: choices, i32 or i64 ``[tokens, K]``, -1 for none. No token chooses one expert twice.
        :param weights: f32 ``[tokens, K]``. None: all are 1. A layer that returns rows takes them at combine.
        :param active: u32 ``[ranks]``, 0 for ranks that do not take part. None: all members.
        :param deadline: longest wait of each phase of this call, seconds. None: the layer's.
        :param combine: False: no combine follows.
        :param format: what the tokens of this call are made of, the same at all ranks. None: what the layer was made for.
        :param max_tokens: most tokens that a rank has in this call, the same at all ranks. The outputs of its dispatch, and ``y``, are as
            long as in a layer made for that number. None: those of the layer.
        """
        at = self._stream(stream)
        shape = self.moe._shape_of(format, max_tokens)
        if weights is None and scales is None and combine:
            event = self._send_tensors(shape, (x, experts, active), deadline, at)
            if event is not None:
                return event
        given = self._input(x, experts, weights, scales, active, deadline, combine, shape)
        event = self._native.dispatch_send(given, at, (x, experts, weights, scales, active))
        self._stage = SENT
        return event

    def dispatch_receive(self, out: Received | None = None, *, stream: int | None = None) -> Received:
        """Waits for the tokens of every rank and lays them out, in ``out`` where it is given."""
        if self._stage != SENT:
            self._refuse_phase("dispatch_receive", "dispatch_send")
        at = self._stream(stream)
        out = out or self.moe._received(self._shape)
        form, event = self._shape.form, None
        if form is not None:
            event = self._native.receive_tensors(form, out._tensors(), out.active_in_place, at)
        if event is None:
            event = self._native.dispatch_receive(self._output(out), at, out)
        self._stage = DISPATCHED
        return self._ended(event, out)

    def dispatch(
        self,
        x: Any,
        experts: Any,
        weights: Any = None,
        *,
        scales: Any = None,
        active: Any = None,
        deadline: float | None = None,
        combine: bool = True,
        format: str | None = None,
        max_tokens: int | None = None,
        out: Received | None = None,
        stream: int | None = None,
    ) -> Received:
        """:meth:`dispatch_send` and :meth:`dispatch_receive` as one launch."""
        given = self._input(x, experts, weights, scales, active, deadline, combine, self.moe._shape_of(format, max_tokens))
        out = out or self.moe._received(self._shape)
        return self._dispatch(given, x, (experts, weights, scales, active), out, stream)

    def combine_send(
        self,
        y: Any = None,
        *,
        staging: bool = False,
        unweighted: bool = False,
        deadline: float | None = None,
        stream: int | None = None,
    ) -> _native.Event:
        """Sends back what the experts made of the rows, to the ranks that they came from.

        :param y: BF16 in the places of ``Received.x``.
        :param staging: it lies in the layer's own memory (:meth:`staging`) already, so nothing is copied; ``y`` is then None.
        :param unweighted: every weight counts as 1, and combine takes no others.
        :param deadline: longest wait of each phase of this combine, seconds. None: that of its dispatch.
        """
        at = self._stream(stream)
        given = self._returned(y, staging, unweighted, deadline)
        self._check_combine("combine_send")
        event = self._native.combine_send(given, at, y)
        self._unweighted, self._stage = unweighted, RETURNED
        return event

    def combine_receive(
        self,
        out: Any = None,
        weights: Any = None,
        *,
        token_valid: Any = None,
        active: Any = None,
        active_in_place: bool = False,
        wait_ns: Any = None,
        renormalise: bool = False,
        stream: int | None = None,
    ) -> Combined:
        """Waits for every rank and adds up the returned rows.

        :param out: BF16 ``[tokens, H]``, for as many tokens as were dispatched. None: torch makes it.
        :param weights: f32 ``[tokens, K]``, in a layer that returns rows. None: those of dispatch.
        :param active_in_place: ``active`` is the caller's own mask: entries of ranks whose rows were not added become 0, and the others
            stay as they are.
        :param renormalise: a token that lost experts is divided by the share of its weights that is left.
        """
        if self._stage != RETURNED:
            self._refuse_phase("combine_receive", "combine_send")
        at = self._stream(stream)
        combined = self._combined(out, token_valid, active, active_in_place, wait_ns)
        given = self._sums(combined, weights, active_in_place, renormalise, self._unweighted)
        event = self._native.combine_receive(given, at, (combined, weights))
        self._stage = COMBINED
        return self._ended(event, combined)

    def combine(
        self,
        y: Any = None,
        out: Any = None,
        weights: Any = None,
        *,
        staging: bool = False,
        unweighted: bool = False,
        deadline: float | None = None,
        token_valid: Any = None,
        active: Any = None,
        active_in_place: bool = False,
        wait_ns: Any = None,
        renormalise: bool = False,
        stream: int | None = None,
    ) -> Combined:
        """:meth:`combine_send` and :meth:`combine_receive` as one launch."""
        at = self._stream(stream)
        given = self._returned(y, staging, unweighted, deadline)
        combined = self._combined(out, token_valid, active, active_in_place, wait_ns)
        sums = self._sums(combined, weights, active_in_place, renormalise, unweighted)
        if given[0] and self._tokens:
            _arrays.apart("out", combined.out, "y", y)
        self._check_combine("combine")
        event = self._native.combine(given, sums, at, (y, combined, weights))
        self._stage = COMBINED
        return self._ended(event, combined)

    def abandon(self, *, stream: int | None = None) -> None:
        """Ends a call that turns out to have no combine: after its dispatch, at all ranks alike. A change of members does not wait for
        it any more. A call whose combine has begun goes on."""
        self._ended(self._native.abandon(self._stream(stream)), None)

    def report(self) -> Report:
        """How the call went so far. The phases that it speaks of have ended."""
        found = self._native.report()
        words = found["phase"], found["text"], found["offered"], found["unbuffered"]
        return Report(found["call"], found["epoch"], found["complete"], tuple(found["ranks"]), *words)

    def check(self) -> Report:
        """The same; raises :class:`MoeError` unless everything went through for every rank. Then it asks the store whether ranks pass
        arguments that differ."""
        report = self.report()
        if not report.complete:
            differs = self._native.difference()
            if differs is not None:
                raise differs
            raise MoeError(report.text, report.ranks, report.phase, report.call)
        return report

    def staging(self) -> Any:
        """The tensor that this call's combine sends from with ``staging=True``; see :meth:`Moe.staging`. Its dispatch has ended. None
        while an HCA still reads that memory: the combine of this call takes ``y``."""
        self._check_staging()
        report = self.report()
        return self.moe.staging(report.call % 2) if report.offered else None

    def _send_tensors(
        self,
        shape: CallShape,
        tensors: tuple[Any, Any, Any],
        deadline: float | None,
        stream: int,
        waits: bool = False,
        written: tuple[Any, ...] | None = None,
    ) -> _native.Event | None:
        """:meth:`dispatch_send` of x in BF16, choices and mask, which the native module looks at, and at what its receive phase will be
        given. None: it has launched nothing, because it does not know one of them, or something is wrong."""
        sent = None if shape.form is None else self._native.send_tensors(shape.form, tensors, deadline, stream, waits, written)
        if sent is None:
            return None
        self._tokens, event = sent
        self._masked, self._shape = tensors[2] is not None, shape
        self._stage, self._combines = SENT, True
        return event

    def _send_for(self, out: Received, shape: CallShape, x: Any, experts: Any, deadline: float) -> None:
        """:meth:`dispatch_send` by the names of DeepEP's calls, before :meth:`dispatch_receive` into ``out``. On the CPU it has ended
        then: what follows in torch may write ``x``."""
        stream, tensors = self._stream(None), (x, experts, out.active)
        event = self._send_tensors(shape, tensors, deadline, stream, True, out._tensors())
        if event is None:
            given = self._input(x, experts, None, None, out.active, deadline, True, shape, "topk_idx")
            self._output(out)
            event = self._native.dispatch_send(given, stream, tensors)
            self._stage = SENT
        self._ended(event, None)

    def _dispatch(self, given: tuple[Any, ...], x: Any, used: tuple[Any, ...], out: Received, stream: int | None = None) -> Received:
        at = self._stream(stream)
        written = self._output(out)
        if given[0]:
            _arrays.apart("out.x", out.x, "x", x)
        event = self._native.dispatch(given, written, at, (x, used, out))
        self._stage = DISPATCHED
        return self._ended(event, out)

    def _check_combine(self, phase: str) -> None:
        """Refuses a combine that does not follow its dispatch."""
        if self._stage != DISPATCHED:
            self._refuse_phase(phase, "dispatch or dispatch_receive")
        if not self._combines:
            raise Refused(f"{phase} follows a dispatch that was given combine=False; dispatch again without it")

    def _refuse_phase(self, phase: str, before: str) -> NoReturn:
        raise Refused(f"{phase} follows {before}; the newest phase of this call is {self._stage}")

    def _stream(self, stream: int | None) -> int:
        if self.moe.team._is_over:
            self.moe._refuse_closed()
        if stream is not None or self.moe.on_cpu:
            return stream or 0
        torch = _arrays.torch()
        return 0 if torch is None else int(torch.cuda.current_stream(self.moe.gpu).cuda_stream)

    def _ended(self, event: _native.Event, result: _Result) -> _Result:
        if event.ended or not self.moe.on_cpu:
            return result
        doubt = False
        gone: list[int] = []
        while True:
            try:
                event.wait(LOOK)
            except TimeoutError:
                # Without a group or a mask, a rank that has given up would be waited for in vain.
                if self._masked:
                    gone = self._leave(self._ended_ranks() + self._closed_ranks(), gone)
                else:
                    doubt = self._look_at_others(event, doubt)
                    gone = self._leave(self._closed_ranks(), gone)
                continue
            if gone and not self._masked:
                self._raise_closed(gone)
            return result

    def _leave(self, gone: list[int], before: list[int]) -> list[int]:
        """Ends the waits for ranks that are ``gone``, where that was so at the look ``before``, too: a rank's last words may be on their
        way at first. Returns the ranks that are gone."""
        for rank in gone:
            if rank in before:
                self.moe._mark_dead(rank)
        return gone

    def _ended_ranks(self) -> list[int]:
        """Ranks whose processes have ended. A group looks for them itself, among its members."""
        team = self.moe.team
        return [] if team._native.closed or team._groups else team._native.ended_ranks()

    def _closed_ranks(self) -> list[int]:
        """Ranks that have closed their team. A store of Python's is not asked while calls go on."""
        team = self.moe.team
        if team._native.closed or team._groups or team._borrowed:
            return []
        try:
            return team._native.closed_ranks()
        except Error as error:
            log.debug("the store does not say which ranks have closed the team: %s", error)
            return []

    def _raise_closed(self, closed: list[int]) -> None:
        """Raises if a phase that has ended has missed one of the ranks that have ``closed`` their team."""
        report = self.report()
        missed = sorted(set(report.ranks) & set(closed))
        if missed:
            raised = TeamError(f"rank {missed[0]} has closed its team, and this call waits for it: {report.text}")
            raised.ranks = tuple(missed)
            raise raised

    def _look_at_others(self, event: _native.Event, doubt: bool) -> bool:
        """Raises if another rank has given up while this one waits for ``event``; see :meth:`Team._end_if_others_failed`."""
        return self.moe.team._end_if_others_failed(doubt)

    def _input(
        self,
        x: Any,
        experts: Any,
        weights: Any,
        scales: Any,
        active: Any,
        deadline: float | None,
        combine: bool,
        shape: CallShape,
        experts_are: str = "experts",
    ) -> tuple[Any, ...]:
        moe, form = self.moe, shape.format
        given = _arrays.shape_of("x", x)
        if len(given) != 2:
            raise Refused(f"x has {len(given)} dimensions; it must have 2: [tokens, hidden]")
        tokens = given[0]
        if tokens > shape.max_tokens:
            of = "layer" if shape.max_tokens == moe.max_tokens else "call"
            raise Refused(f"x has {tokens} tokens; max_tokens of the {of} is {shape.max_tokens}")
        quantized = scales is not None and form != "opaque"
        if quantized and form == "bf16":
            raise Refused("scales are given; a layer of BF16 takes none: make it with an fp8 format")
        if form == "opaque":
            dtype, width = "u8", moe._payload
        else:
            dtype, width = ("fp8" if quantized else "bf16"), moe.hidden
        at_x = _arrays.address("x", x, dtype, (tokens, width), moe.gpu, 16) if tokens else 0
        at_scales = 0
        if form == "opaque" and moe._scale_bytes:
            if scales is None:
                raise Refused(f"scales are None; tokens of this layer have {moe._scale_bytes} bytes of them")
            at_scales = _address("scales", scales, "u8", (tokens, moe._scale_bytes), moe, 4)
        elif quantized:
            words, kind = _scale_words(moe.hidden, form)
            at_scales = _address("scales", scales, kind, (tokens, words), moe)
        at_experts, wide = _arrays.integers(experts_are, experts, (tokens, moe.top_k), moe.gpu) if tokens else (0, False)
        at_weights = 0 if weights is None or not tokens else _address("weights", weights, "f32", (tokens, moe.top_k), moe)
        at_active = 0 if active is None else _address("active", active, "i32", (moe.team.ranks,), moe)
        ns = _nanoseconds(deadline)
        self._tokens, self._masked, self._shape, self._combines = tokens, active is not None, shape, combine
        return at_x, at_scales, at_experts, at_weights, at_active, tokens, ns, quantized, not combine, wide, *shape.native

    def _output(self, out: Received) -> tuple[tuple[int, ...], bool, bool, int]:
        address, gpu, shape = _arrays.address, self.moe.gpu, self._shape
        before = [address(name, getattr(out, name[4:]), dtype, places, gpu, align) for name, dtype, places, align in shape.before]
        at_stats, wide = (0, False) if out.stats is None else _arrays.integers("out.stats", out.stats, (self.moe.room,), gpu)
        behind: Sequence[int] = (0, 0)
        if out.wait_ns is not None or out.active is not None:
            behind = [address(name, getattr(out, name[4:]), dtype, places, gpu, align) for name, dtype, places, align in shape.behind]
        return (*before, at_stats, *behind), at_stats != 0 and not wide, out.active_in_place, shape.native[0]

    def _returned(self, y: Any, staging: bool, unweighted: bool, deadline: float | None) -> tuple[int, bool, bool, int]:
        moe, ns = self.moe, _nanoseconds(deadline)
        if staging:
            if y is not None:
                raise Refused("y is given with staging=True; write into call.staging() and pass None")
            self._check_staging()
            return 0, True, unweighted, ns
        if y is None:
            raise Refused("y is None; pass what the experts made, or staging=True")
        places = (*moe._lead(self._shape.max_tokens), moe.hidden)
        return _address("y", y, "bf16", places, moe, 16), False, unweighted, ns

    def _check_staging(self) -> None:
        own, most = self._shape.max_tokens, self.moe.max_tokens
        if own != most:
            raise Refused(f"the layer's own memory is for calls of max_tokens {most}, and this one has {own}; pass y")

    def _combined(self, out: Any, token_valid: Any, active: Any, active_in_place: bool, wait_ns: Any) -> Combined:
        moe = self.moe
        if active is None:
            if active_in_place:
                raise Refused("active is None with active_in_place=True; pass the mask")
            active = moe._active
        if out is not None and token_valid is not None:
            return Combined(out, token_valid, active, wait_ns)
        torch = moe._torch()
        device = moe._device
        if out is None:
            out = torch.empty((self._tokens, moe.hidden), dtype=torch.bfloat16, device=device)
        if token_valid is None:
            token_valid = torch.empty((self._tokens,), dtype=torch.uint8, device=device)
        if active is None:
            active = torch.empty((moe.team.ranks,), dtype=torch.int32, device=device)
        return Combined(out, token_valid, active, wait_ns)

    def _sums(self, combined: Combined, weights: Any, active_in_place: bool, renormalise: bool, unweighted: bool) -> tuple[Any, ...]:
        moe, tokens = self.moe, self._tokens
        if unweighted and weights is not None:
            raise Refused("weights are given with unweighted=True, where every weight counts as 1; pass one of both")
        # A rank without tokens has nothing to write, and torch gives empty tensors no address.
        out = _address("out", combined.out, "bf16", (tokens, moe.hidden), moe, 16) or 16
        valid = _address("token_valid", combined.token_valid, "u8", (tokens,), moe) or 1
        return (
            out,
            valid,
            _address("weights", weights, "f32", (tokens, moe.top_k), moe) if tokens else 0,
            _address("wait_ns", combined.wait_ns, "i64", (moe.team.ranks,), moe),
            _address("active", combined.active, "i32", (moe.team.ranks,), moe),
            active_in_place,
            renormalise,
        )

    def __repr__(self) -> str:
        moe = self.moe
        return (
            f"<warpverbs.Call of {moe.name!r}, rank {moe.team.rank} of {moe.team.ranks}, {moe._bytes['handle']} bytes on {moe.team.device}>"
        )
