"""Ranks that compare the low-latency calls of `warpverbs.deep_ep` with plain torch, and show what else they promise."""

from __future__ import annotations

import gc
import itertools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import groups
import oracle
import pytest
import torch
import torch.distributed as dist
from refusals import Told
from torch.utils._python_dispatch import TorchDispatchMode

import warpverbs
from warpverbs import deep_ep

FORMATS = ("bf16", "fp8", "fp8-pow2", "fp8-ue8m0")
#: Experts are no multiple of 2, 4 or 5 ranks.
CASE = oracle.Case(hidden=1024, experts=7, top_k=3, max_tokens=8, returns="rows")
CHOICES = ("random", "holes", "one", "empty")


@dataclass(frozen=True)
class Arguments:
    """One combination of what the calls take."""

    format: str = "bf16"
    #: ``plain``, ``async`` or ``hook``.
    mode: str = "plain"
    zero_copy: bool = False
    out: bool = False
    statistics: bool = False
    shrink: bool = False


def combinations() -> list[Arguments]:
    flags = (False, True)
    return [Arguments(*each) for each in itertools.product(FORMATS, ("plain", "async", "hook"), flags, flags, flags, flags)]


def quantized(x: torch.Tensor, form: str) -> tuple[torch.Tensor, torch.Tensor]:
    """FP8 and scales of rows, as the documents of DeepEP and of this library say."""
    groups_of = x.float().unflatten(-1, (-1, 128))
    largest = groups_of.abs().amax(-1).clamp(min=torch.tensor(1e-4).item())
    scale, inverse = largest / 448, torch.tensor(448.0) / largest
    if form != "fp8":
        bits = scale.view(torch.int32)
        exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
        scale = (exponent << 23).to(torch.int32).view(torch.float32)
        inverse = ((254 - exponent) << 23).to(torch.int32).view(torch.float32)
        if form == "fp8-ue8m0":
            packed = exponent.to(torch.uint8).contiguous().view(torch.int32)
            codes = (groups_of * inverse.unsqueeze(-1)).clamp(-448, 448)
            return codes.flatten(-2).to(torch.float8_e4m3fn), packed
    codes = (groups_of * inverse.unsqueeze(-1)).clamp(-448, 448)
    return codes.flatten(-2).to(torch.float8_e4m3fn), scale


def dequantized(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Rows in BF16 again."""
    if scales.dtype == torch.int32:
        exponents = scales.contiguous().view(torch.uint8)
        scales = (exponents.to(torch.int32) << 23).view(torch.float32)
    return (codes.float().unflatten(-1, (-1, 128)) * scales.unsqueeze(-1)).flatten(-2).to(torch.bfloat16)


def check_rows(
    form: str, rows: Any, handle: Any, counts: torch.Tensor, all_batches: list[oracle.Batch], rank: int, case: oracle.Case
) -> None:
    """Each expert of this rank has exactly the rows of the tokens that chose it, to the bit."""
    ranks = len(all_batches)
    src_info, layout_range, most, hidden, experts = handle
    assert (most, hidden, experts) == (case.max_tokens, case.hidden, case.experts)
    x, scales = rows if form != "bf16" else (rows, None)
    room = -(-experts // ranks)
    places = (room, ranks * most)
    assert tuple(x.shape) == (*places, hidden)
    assert tuple(src_info.shape) == places
    assert (tuple(layout_range.shape), layout_range.dtype) == ((room, ranks), torch.int64)
    assert (tuple(counts.shape), counts.dtype, src_info.dtype) == ((room,), torch.int32, torch.int32)
    if scales is not None:
        words = hidden // 512 if form == "fp8-ue8m0" else hidden // 128
        assert tuple(scales.shape) == (*places, words)
        assert scales.stride() == (words * places[1], 1, places[1])
        assert scales.dtype == (torch.int32 if form == "fp8-ue8m0" else torch.float32)
    own = [number for number, home in enumerate(oracle.homes(case, ranks)) if home == rank]
    for local, number in enumerate(own):
        at = 0
        for source, batch in enumerate(all_batches):
            tokens = oracle.rows_of(batch, number)
            begin, count = divmod(int(layout_range[local, source]), 1 << 32)
            assert count == len(tokens), (number, source, count, tokens)
            found = src_info[local, begin : begin + count].tolist()
            assert sorted(found) == tokens, (number, source)
            if scales is None:
                assert torch.equal(x[local, begin : begin + count], batch.x[found]), (number, source)
            else:
                codes, wanted = quantized(batch.x[found], form)
                got = x[local, begin : begin + count]
                assert torch.equal(got.view(torch.uint8), codes.view(torch.uint8)), (number, source)
                assert torch.equal(scales[local, begin : begin + count], wanted), (number, source)
            at += count
        assert int(counts[local]) == at
    assert counts[len(own) :].tolist() == [0] * (room - len(own))


def worked(form: str, rows: Any, counts: torch.Tensor, all_ranks: int, rank: int, case: oracle.Case) -> torch.Tensor:
    """What the experts of this rank make of their rows."""
    seen = rows if form == "bf16" else dequantized(*rows)
    y = torch.zeros(seen.shape, dtype=torch.bfloat16)
    own = [number for number, home in enumerate(oracle.homes(case, all_ranks)) if home == rank]
    for local, number in enumerate(own):
        count = int(counts[local])
        y[local, :count] = oracle.expert(number, seen[local, :count])
    return y


def expected(form: str, batch: oracle.Batch, ranks: int, case: oracle.Case) -> torch.Tensor:
    seen = batch.x if form == "bf16" else dequantized(*quantized(batch.x, form))
    return oracle.combined(case, batch, ranks, seen)


def in_format(form: str) -> dict[str, bool]:
    return {"use_fp8": form != "bf16", "round_scale": form in ("fp8-pow2", "fp8-ue8m0"), "use_ue8m0": form == "fp8-ue8m0"}


class Sent:
    """A dispatch with all that is needed to check and combine it. Ranks of ``without`` are masked, and mask this one."""

    def __init__(self, buffer: deep_ep.Buffer, arguments: Arguments, case: oracle.Case, seed: int, without: Sequence[int] = ()) -> None:
        self.buffer, self.arguments, self.case = buffer, arguments, case
        self.all_batches = oracle.batches(case, buffer.group_size, seed)
        self.own = self.all_batches[buffer.rank]
        for rank in without:
            unseen = self.all_batches[rank]
            self.all_batches[rank] = oracle.Batch(unseen.x, torch.full_like(unseen.experts, -1), unseen.weights)
        gone = torch.tensor([home in without for home in oracle.homes(case, buffer.group_size)])
        chosen = self.own.experts.clone()
        chosen[gone[chosen.long()] & (chosen >= 0)] = -1
        self.left = oracle.Batch(self.own.x, chosen, self.own.weights)
        self.ids = self.own.experts.to(deep_ep.topk_idx_t)
        room = -(-case.experts // buffer.group_size)
        self.stats = torch.full((room,), 3, dtype=torch.int32) if arguments.statistics else None
        #: Ranks that take part beside this one.
        self.others = [rank for rank in range(buffer.group_size) if rank != buffer.rank and rank not in without]
        self.waited = self.counter()
        x = self.own.x.clone()
        self.rows, self.counts, self.handle, self.event, self.hook = buffer.low_latency_dispatch(
            x,
            self.ids,
            case.max_tokens,
            case.experts,
            self.stats,
            self.waited,
            async_finish=arguments.mode == "async",
            return_recv_hook=arguments.mode == "hook",
            **in_format(arguments.format),
        )
        # The caller may write again what it has passed.
        x.fill_(float("nan"))
        assert (self.hook is not None) == (arguments.mode == "hook")
        assert (self.event.event is not None) == (arguments.mode == "async")

    def counter(self) -> torch.Tensor | None:
        """Nanoseconds by rank that a call adds to."""
        return torch.full((self.buffer.group_size,), 5, dtype=torch.int64) if self.arguments.statistics else None

    def check_waited(self, waited: torch.Tensor | None) -> None:
        """A call has added the time that it waited for each rank that takes part, and nothing for the own one."""
        if waited is not None:
            assert int(waited[self.buffer.rank]) == 5, waited
            assert all(int(waited[rank]) > 5 for rank in self.others), waited

    def receive(self) -> None:
        if self.hook is not None:
            self.hook()
        elif self.event.event is not None:
            self.event.current_stream_wait()
        buffer, form = self.buffer, self.arguments.format
        check_rows(form, self.rows, self.handle, self.counts, self.all_batches, buffer.rank, self.case)
        if self.stats is not None:
            assert torch.equal(self.stats, self.counts + 3)
        self.check_waited(self.waited)
        self.y = worked(form, self.rows, self.counts, buffer.group_size, buffer.rank, self.case)

    def back(self) -> None:
        """Sends back, to be finished by `finish`."""
        arguments, y = self.arguments, self.y
        if arguments.zero_copy:
            place = self.buffer.get_next_low_latency_combine_buffer(self.handle)
            assert (place.shape, place.dtype) == (y.shape, y.dtype)
            place.copy_(y)
            y = torch.full_like(y, float("nan"))
        out = torch.full((len(self.own.x), self.case.hidden), float("nan"), dtype=torch.bfloat16) if arguments.out else None
        self.waited = self.counter()
        self.sums, self.event, self.hook = self.buffer.low_latency_combine(
            y,
            self.ids,
            self.own.weights,
            self.handle,
            zero_copy=arguments.zero_copy,
            async_finish=arguments.mode == "async",
            return_recv_hook=arguments.mode == "hook",
            out=out,
            combine_wait_recv_cost_stats=self.waited,
        )
        assert out is None or self.sums is out

    def finish(self) -> None:
        if self.hook is not None:
            self.hook()
        elif self.event.event is not None:
            with self.event:
                pass
        wanted = expected(self.arguments.format, self.left, self.buffer.group_size, self.case)
        assert torch.equal(self.sums, wanted), (self.sums.float() - wanted.float()).abs().max()
        self.check_waited(self.waited)


def whole(
    buffer: deep_ep.Buffer, arguments: Arguments = Arguments(), case: oracle.Case = CASE, seed: int = 0, without: Sequence[int] = ()
) -> None:
    sent = Sent(buffer, arguments, case, seed, without)
    sent.receive()
    sent.back()
    sent.finish()


def grid(step: str, seeds: str) -> None:
    """Every `step`-th combination of arguments, with so many seeds each; prints how many calls were right."""
    with groups.world() as group:
        buffers = {shrink: deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=shrink) for shrink in (False, True)}
        done = 0
        for number, arguments in enumerate(combinations()):
            if number % int(step):
                continue
            for seed in range(int(seeds)):
                case = replace(CASE, choices=CHOICES[(number // int(step) + seed) % len(CHOICES)])
                try:
                    whole(buffers[arguments.shrink], arguments, case, seed * 1000 + number)
                except AssertionError as error:
                    raise AssertionError(f"rank {dist.get_rank()}, {arguments}, {case}, seed {seed * 1000 + number}: {error}") from error
                done += 1
        mask = torch.full((buffers[True].group_size,), 7, dtype=torch.int32)
        buffers[True].low_latency_query_mask_buffer(mask)
        assert mask.tolist() == [0] * buffers[True].group_size
        if dist.get_rank() == 0:
            print(json.dumps(done), flush=True)


def masked_grid(step: str) -> None:
    """Every `step`-th combination of arguments, while the last rank and the others mask each other; then all of them are whole again."""
    with groups.world() as group:
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True, join_timeout=groups.LONG)
        rank, alone = buffer.rank, buffer.group_size - 1
        others = [each for each in range(buffer.group_size) if (each == alone) != (rank == alone)]
        asked = [arguments for arguments in combinations() if arguments.shrink][:: int(step)]
        for form in FORMATS:
            whole(buffer, Arguments(form), CASE, 1)
        dist.barrier()
        for other in others:
            buffer.low_latency_update_mask_buffer(other, True)
        for number, arguments in enumerate(asked):
            case = replace(CASE, choices=CHOICES[number % len(CHOICES)])
            try:
                whole(buffer, arguments, case, number, others)
            except AssertionError as error:
                raise AssertionError(f"rank {rank}, {arguments}, {case}, seed {number}: {error}") from error
        dist.barrier()
        buffer.low_latency_clean_mask_buffer()
        for form in FORMATS:
            whole(buffer, Arguments(form), replace(CASE, choices="random"), 2)
        if rank == 0:
            print(json.dumps(len(asked)), flush=True)


def hooks() -> None:
    """A hook is called once, may be called late, and is missed when it never was; what comes in the wrong order is refused."""
    arguments = Arguments(mode="hook")
    with groups.world() as group:
        buffer = deep_ep.Buffer(group, low_latency_mode=True)
        sent = Sent(buffer, arguments, CASE, 1)
        hook = sent.hook
        with pytest.raises(warpverbs.Refused, match="the hook of low_latency_dispatch of batch 0 has not been called"):
            buffer.low_latency_combine(torch.zeros(1), sent.ids, sent.own.weights, sent.handle)
        # Late: another batch is dispatched and received before.
        other = Sent(buffer, arguments, CASE, 2)
        other.receive()
        with pytest.raises(warpverbs.Refused, match="two batches are in flight: the hook of low_latency_dispatch of batch 0"):
            Sent(buffer, arguments, CASE, 3)
        sent.receive()
        assert hook is not None
        with pytest.raises(warpverbs.Refused, match="has been called already"):
            hook()
        sent.back()
        with pytest.raises(warpverbs.Refused, match="the hook of low_latency_combine of batch 0 has not been called"):
            buffer.low_latency_combine(sent.y, sent.ids, sent.own.weights, sent.handle)
        with pytest.raises(warpverbs.Refused, match="two batches are in flight: the hook of low_latency_combine of batch 0"):
            Sent(buffer, arguments, CASE, 3)
        other.back()
        sent.finish()
        other.finish()
        # Never: the hook is collected.
        lost = Sent(buffer, arguments, CASE, 4)
        lost.hook = None
        gc.collect()
        with pytest.raises(warpverbs.Refused, match=r"the hook of low_latency_dispatch of batch 2 was never called"):
            Sent(buffer, arguments, CASE, 5)
        whole(buffer, arguments, CASE, 6)
        lost = Sent(buffer, arguments, CASE, 7)
        lost.receive()
        lost.back()
        lost.hook = None
        gc.collect()
        with pytest.raises(warpverbs.Refused, match=r"the hook of low_latency_combine of batch \d+ was never called"):
            Sent(buffer, arguments, CASE, 8)
        whole(buffer, arguments, CASE, 9)


def batches() -> None:
    """Two micro-batches overlap. A batch can be combined more than once. A batch that is not combined makes room. Choices are those of
    dispatch."""
    with groups.world() as group:
        buffer = deep_ep.Buffer(group, low_latency_mode=True)
        for mode in ("hook", "plain", "async"):
            one, two = (Sent(buffer, Arguments("fp8", mode), CASE, seed) for seed in (1, 2))
            one.receive()
            two.receive()
            one.back()
            two.back()
            one.finish()
            two.finish()
            # Both once more, and the older one again: the newer first, and from memory of the buffer.
            two.arguments = replace(two.arguments, zero_copy=True)
            for again in (two, one, one):
                again.back()
                again.finish()
        many = [Sent(buffer, Arguments(), CASE, seed) for seed in range(6)]
        for sent in many[-2:]:
            sent.receive()
        with pytest.raises(warpverbs.Refused, match="two later dispatches have taken its place; combine batches in their order"):
            buffer.low_latency_combine(many[-1].y, many[0].ids, many[0].own.weights, many[0].handle)
        last = many[-1]
        with pytest.raises(warpverbs.Refused, match="topk_idx is not that of the dispatch"):
            buffer.low_latency_combine(last.y, (last.ids + 1) % 7, last.own.weights, last.handle)
        with pytest.raises(warpverbs.Refused, match="handle is a tuple; pass what low_latency_dispatch has returned"):
            buffer.low_latency_combine(last.y, last.ids, last.own.weights, tuple(last.handle))
        last.back()
        last.finish()
        with pytest.raises(warpverbs.Refused, match="a later one was combined before it"):
            many[-2].back()
        one, two = (Sent(buffer, Arguments(mode="hook"), CASE, seed) for seed in (1, 2))
        for sent in (two, one):
            sent.receive()
        for sent in (one, two):
            sent.back()
        for sent in (two, one):
            sent.finish()


def shapes() -> None:
    """A buffer takes shapes as they come, more than a team has room for; ids in 32 bits pass; too large ones are refused."""
    with groups.world() as group:
        buffer = deep_ep.Buffer(group, low_latency_mode=True)
        for tokens in range(1, 8):
            whole(buffer, Arguments(), replace(CASE, max_tokens=tokens), tokens)
        assert len(buffer._place.teams) == 2
        buffer.warm_up(CASE.max_tokens, CASE.hidden, CASE.experts, CASE.top_k, use_fp8=False)
        own = oracle.batches(CASE, buffer.group_size, 1)[buffer.rank]
        _, counts, *_ = buffer.low_latency_dispatch(own.x, own.experts, CASE.max_tokens, CASE.experts, use_fp8=False)
        every = torch.cat([batch.experts.flatten() for batch in oracle.batches(CASE, buffer.group_size, 1)])
        homes = oracle.homes(CASE, buffer.group_size)
        held = [number for number, home in enumerate(homes) if home == buffer.rank]
        assert counts[: len(held)].tolist() == [int((every == number).sum()) for number in held]
        # 2^32 is no expert 0, whatever its low half says.
        ids = torch.full((1, CASE.top_k), -1, dtype=torch.int64)
        ids[0, 0] = 1 << 32
        x = torch.ones(1, CASE.hidden, dtype=torch.bfloat16)
        buffer.low_latency_dispatch(x, ids, CASE.max_tokens, CASE.experts, use_fp8=False)
        with pytest.raises(warpverbs.MoeError, match="an earlier call was not complete"):
            buffer.low_latency_dispatch(x, ids, CASE.max_tokens, CASE.experts, use_fp8=False)


def one_memory() -> None:
    """Calls of every format and of smaller maxT go through the memory of one layer, two of different shapes at a time."""
    largest = replace(CASE, max_tokens=16)
    with groups.world() as group:
        for reuse in (False, True):
            buffer = deep_ep.Buffer(group, low_latency_mode=True, reuse_outputs=reuse)
            buffer.warm_up(16, CASE.hidden, CASE.experts, CASE.top_k, use_fp8=True)
            for number, (tokens, form) in enumerate(itertools.product((16, 5, 1, 15), FORMATS)):
                arguments = Arguments(form, ("plain", "hook")[number % 2], zero_copy=number % 3 == 0)
                whole(buffer, arguments, replace(CASE, max_tokens=tokens, choices=CHOICES[number % 4]), number)
            shapes = itertools.permutations([("bf16", largest), ("fp8", replace(CASE, max_tokens=3)), ("fp8-ue8m0", largest)], 2)
            for number, pair in enumerate(shapes):
                sent = [Sent(buffer, Arguments(form, "hook", zero_copy=number % 2 == 0), case, 30 + number) for form, case in pair]
                for step in (Sent.receive, Sent.back, Sent.finish):
                    for each in sent:
                        step(each)
            assert len(buffer._place._layers) == 1
            with pytest.raises(warpverbs.Refused, match="x has 2 tokens; max_tokens of the call is 1"):
                buffer.low_latency_dispatch(torch.ones(2, 1024).bfloat16(), torch.zeros(2, CASE.top_k).long(), 1, CASE.experts)
        whole(buffer, Arguments("fp8"), replace(CASE, max_tokens=17), 99)
        assert len(buffer._place._layers) == 2


class Ops(TorchDispatchMode):
    """What torch is asked to compute in its block."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func.overloadpacket))
        return func(*args, **(kwargs or {}))


def nothing_is_converted() -> None:
    """Ids of 64 bits, statistics of 32 and masks are those of the caller: of torch only memory is asked."""
    with groups.world() as group:
        for reuse in (False, True):
            buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True, reuse_outputs=reuse)
            own = oracle.batches(CASE, buffer.group_size, 1)[buffer.rank]
            ids, sums = own.experts.long(), torch.empty_like(own.x)
            stats = torch.zeros(-(-CASE.experts // buffer.group_size), dtype=torch.int32)
            waited = torch.zeros(buffer.group_size, dtype=torch.int64)
            kept = []
            for hooks in (False, True, False):
                with Ops() as ops:
                    rows, counts, handle, _, hook = buffer.low_latency_dispatch(
                        own.x, ids, CASE.max_tokens, CASE.experts, stats, waited, use_fp8=False, return_recv_hook=hooks
                    )
                    (hook or int)()
                    *_, hook = buffer.low_latency_combine(rows, ids, own.weights, handle, out=sums, return_recv_hook=hooks)
                    (hook or int)()
                kept.append((ops.names, rows.data_ptr()))
            assert [names for names, _ in kept] == [{"aten.empty"}] * 3
            assert torch.equal(stats, 3 * counts)
            assert (len({at for _, at in kept}) == 1) or not reuse
        for seed in range(3):
            for mode in ("plain", "async", "hook"):
                for form in FORMATS:
                    whole(buffer, Arguments(form, mode), CASE, seed)


def one_stops(shrink: str) -> None:
    """A rank that stops calling is masked, or named with its phase by the next call; later calls of the buffer name it again."""
    rank, _ = groups.start()
    buffer = deep_ep.Buffer(
        dist.group.WORLD, low_latency_mode=True, enable_shrink=shrink == "shrink", deadline=0.5, warm_deadline=0.5, join_timeout=groups.LONG
    )
    case = replace(CASE, choices="random")
    whole(buffer, Arguments(), case, 1)
    dist.barrier()
    if rank == 1:
        # It stays, and does not call.
        dist.barrier()
        return
    own = oracle.batches(case, 2, 2)[0]
    ids = own.experts.to(torch.int64)

    def dispatch() -> Any:
        return buffer.low_latency_dispatch(own.x, ids, case.max_tokens, case.experts, use_fp8=False)

    _, counts, handle, _, _ = dispatch()
    if shrink == "shrink":
        mask = torch.empty(2, dtype=torch.int32)
        buffer.low_latency_query_mask_buffer(mask)
        assert mask.tolist() == [0, 1]
        assert handle[1][:, 1].bitwise_and(0xFFFFFFFF).tolist() == [0] * len(counts)
        y = worked("bf16", dispatch()[0], counts, 2, 0, case)
        assert y.shape[0] == len(counts)
        buffer.low_latency_clean_mask_buffer()
        buffer.low_latency_query_mask_buffer(mask)
        assert mask.tolist() == [0, 0]
    else:
        for _ in range(2):
            with pytest.raises(warpverbs.RankLost, match=r"dispatch receive of call .* rank 1: no word before the deadline") as raised:
                dispatch()
            assert (raised.value.ranks, raised.value.phase) == ((1,), 1)
    dist.barrier()


def masks() -> None:
    """Ranks mask one that masks them; it is in no result; when the masks are taken back, everything is whole again."""
    case = replace(CASE, choices="random")
    with groups.world() as group:
        buffer = deep_ep.Buffer(group, low_latency_mode=True, enable_shrink=True, join_timeout=groups.LONG)
        rank, ranks = buffer.rank, buffer.group_size
        whole(buffer, Arguments(), case, 1)
        alone = ranks - 1
        others = [each for each in range(ranks) if (each == alone) != (rank == alone)]
        for other in others:
            buffer.low_latency_update_mask_buffer(other, True)
        mask = torch.empty(ranks, dtype=torch.int32)
        buffer.low_latency_query_mask_buffer(mask)
        assert mask.tolist() == [int(each in others) for each in range(ranks)]
        all_batches = oracle.batches(case, ranks, 2)
        own = all_batches[rank]
        ids = own.experts.to(torch.int64)
        rows, counts, handle, _, _ = buffer.low_latency_dispatch(own.x, ids, case.max_tokens, case.experts, use_fp8=False)
        homes = oracle.homes(case, ranks)
        held = [number for number, home in enumerate(homes) if home == rank]
        for local, number in enumerate(held):
            for source in range(ranks):
                tokens = [] if source in others else oracle.rows_of(all_batches[source], number)
                assert int(handle[1][local, source]) & 0xFFFFFFFF == len(tokens), (number, source)
        y = worked("bf16", rows, counts, ranks, rank, case)
        sums, _, _ = buffer.low_latency_combine(y, ids, own.weights, handle)
        gone = torch.tensor([home in others for home in homes])
        left = own.experts.clone()
        left[gone[left.long()]] = -1
        assert torch.equal(sums, oracle.combined(case, oracle.Batch(own.x, left, own.weights), ranks, own.x))
        dist.barrier()
        buffer.low_latency_clean_mask_buffer()
        whole(buffer, Arguments(), case, 3)
        buffer.low_latency_query_mask_buffer(mask)
        assert mask.tolist() == [0] * ranks


def resources() -> tuple[int, int]:
    """Open descriptors, and resident memory in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGE_SIZE")


def many_buffers(count: str) -> None:
    """Buffers come and go, each hundredth with all that it took from the machine, and nothing stays behind."""
    with groups.world() as group:
        before = None
        for number in range(int(count)):
            buffer = deep_ep.Buffer(group, low_latency_mode=True, explicitly_destroy=True, enable_shrink=number % 2 == 0)
            if number % 100 == 0:
                whole(buffer, Arguments(), CASE, number)
            if number % 20 == 0:
                buffer.destroy()
                with pytest.raises(warpverbs.Refused, match="the buffer was destroyed"):
                    buffer.low_latency_clean_mask_buffer()
                buffer.destroy()
            else:
                # Dropped; its place is given back by the next one that is destroyed.
                del buffer
            if number == int(count) // 5 // 20 * 20:
                gc.collect()
                before = resources()
        # The end is as the place where it was counted: after a buffer that was destroyed.
        buffer = deep_ep.Buffer(group, low_latency_mode=True, explicitly_destroy=True)
        buffer.destroy()
        gc.collect()
        after = resources()
        assert before is not None
        assert after[0] <= before[0] + 4, (before, after)
        assert after[1] <= before[1] + (16 << 20), (before, after)


def set_of_a_gpu() -> None:
    """On a GPU the host reads which memory a combine sends from when the GPU has run the dispatch, and not before. Here are the steps of
    a GPU on the CPU."""
    x = torch.ones(2, 128, dtype=torch.bfloat16)
    ids, weights = torch.tensor([[0, 1], [1, 0]]), torch.full((2, 2), 0.5)
    steps: list[str] = []

    class Behind:
        """An event after the launches of a layer."""

        def synchronize(self) -> None:
            steps.append("wait")

    with groups.world() as group:
        buffer = deep_ep.Buffer(group, low_latency_mode=True)
        _, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 4, 2, use_fp8=False)
        batch = handle.batch
        with pytest.MonkeyPatch.context() as patch:
            report = batch.call.report
            patch.setattr(type(batch.call), "report", lambda _: (steps.append("report"), report())[1])
            patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
            patch.setattr(buffer, "_on_cpu", False)
            batch.layer._last = (None, Behind())
            memory = buffer.get_next_low_latency_combine_buffer(handle)
        batch.layer._last = None
        assert steps == ["wait", "report"]
        memory.zero_()
        memory[:, :2] = 1
        sums, *_ = buffer.low_latency_combine(memory, ids, weights, handle, zero_copy=True)
        assert torch.equal(sums, x)


def forked() -> None:
    """A child that was forked after a buffer is refused, whether it uses that one or makes another."""
    groups.start()
    group = dist.group.WORLD
    buffer = deep_ep.Buffer(group, low_latency_mode=True)
    whole(buffer)
    own = oracle.batches(CASE, 1, 1)[0]
    child = os.fork()
    if child == 0:
        refusals = 0
        uses: list[Callable[[], Any]] = [
            lambda: buffer.low_latency_dispatch(own.x, own.experts.long(), CASE.max_tokens, CASE.experts, use_fp8=False),
            lambda: deep_ep.Buffer(group, low_latency_mode=True),
        ]
        for use in uses:
            try:
                use()
            except warpverbs.Refused as error:
                refusals += "forked" in str(error)
        os._exit(0 if refusals == len(uses) else 1)
    assert os.waitpid(child, 0)[1] == 0
    whole(buffer)
    groups.finish()


def refused() -> None:
    """What each refused or ignored argument says; prints it as JSON."""
    told = Told()
    tried = told.of

    with groups.world() as group:
        own = oracle.batches(CASE, 1, 1)[0]
        x, ids = own.x, own.experts.long()

        def make(**more: Any) -> Callable[[], Any]:
            return lambda: deep_ep.Buffer(group, low_latency_mode=True, **more)

        ignored = {
            "num_nvl_bytes": 1,
            "num_rdma_bytes": 1,
            "num_qps_per_rank": 8,
            "allow_nvlink_for_low_latency_mode": False,
            "allow_nvlink_for_normal_mode": False,
            "allow_mnnvl": True,
            "use_fabric": True,
            "num_nvl_peers": 8,
        }
        tried("Buffer low_latency_mode", lambda: deep_ep.Buffer(group))
        for name, value in ignored.items():
            for time in ("", " again"):
                tried(f"Buffer {name}{time}", make(**{name: value}))
        tried("Buffer comm", make(comm=object()))
        tried("Buffer deadline", make(deadline=0))
        tried("Buffer colour", make(colour=None))
        tried("Buffer colour red", make(colour="red"))
        tried("Buffer group", lambda: deep_ep.Buffer(None))
        buffer = deep_ep.Buffer(group, low_latency_mode=True)
        tried("destroy", buffer.destroy)
        tried("mask", lambda: buffer.low_latency_query_mask_buffer(torch.zeros(1, dtype=torch.int32)))

        def dispatch(**more: Any) -> Callable[[], Any]:
            return lambda: buffer.low_latency_dispatch(x, ids, CASE.max_tokens, CASE.experts, **more)

        for name, value in {"topk_weights": own.weights, "x_global_scale": x, "use_nvfp4": True, "use_ue8m0_for_sf": True}.items():
            tried(f"low_latency_dispatch {name}", dispatch(**{name: value}))
        tried("low_latency_dispatch use_ue8m0", dispatch(use_ue8m0=True))
        tried("low_latency_dispatch both", dispatch(async_finish=True, return_recv_hook=True))
        tried("low_latency_dispatch many tokens", lambda: buffer.low_latency_dispatch(x, ids, 1, CASE.experts))
        for most in (None, 16.0):
            tried(f"low_latency_dispatch maxT {most}", lambda most=most: buffer.low_latency_dispatch(x, ids, most, CASE.experts))
        tried("low_latency_dispatch gradient", lambda: buffer.low_latency_dispatch(x.clone().requires_grad_(), ids, 16, CASE.experts))
        assert buffer.local_experts(CASE.experts) == list(range(CASE.experts))
        tried("low_latency_dispatch f32", lambda: buffer.low_latency_dispatch(x.float(), ids, CASE.max_tokens, CASE.experts))
        tried("low_latency_dispatch f32 ids", lambda: buffer.low_latency_dispatch(x, ids.float(), CASE.max_tokens, CASE.experts))
        wrong = torch.zeros(99, dtype=torch.int32)
        tried("low_latency_dispatch statistics", dispatch(cumulative_local_expert_recv_stats=wrong))
        handle = dispatch(use_fp8=False)()[2]
        y = torch.zeros(CASE.experts, CASE.max_tokens, CASE.hidden, dtype=torch.bfloat16)

        def combine(**more: Any) -> Callable[[], Any]:
            return lambda: buffer.low_latency_combine(y, ids, own.weights, handle, **more)

        for name in ("use_logfmt", "overlap"):
            tried(f"low_latency_combine {name}", combine(**{name: True}))
        tried("low_latency_combine y", lambda: buffer.low_latency_combine(y[:1], ids, own.weights, handle))
        tried("low_latency_combine gradient", lambda: buffer.low_latency_combine(y.clone().requires_grad_(), ids, own.weights, handle))
        tried("low_latency_combine weights", lambda: buffer.low_latency_combine(y, ids, own.weights.double(), handle))
        tried("low_latency_combine out", combine(out=torch.empty(1, 1, dtype=torch.bfloat16)))
        combine()()
        signals = ("src_signals", "src_signal_expect_value", "packed_recv_count", "comp_signal", "block_m", "threshold", "num_sms")
        for name in signals:
            for time in ("", " again"):
                handle = dispatch(use_fp8=False)()[2]
                tried(f"low_latency_combine {name}{time}", combine(**{name: 1}))
        handle = dispatch(use_fp8=False)()[2]
        tried("low_latency_combine all again", combine(**dict.fromkeys(signals, 2), overlap=False))
        for name in ("internode_dispatch", "internode_combine", "dispatch_pcie", "combine_pcie"):
            tried(name, getattr(buffer, name))
        tried("get_dispatch_layout", lambda: buffer.get_dispatch_layout(ids, CASE.experts))
        tried("dispatch", lambda: buffer.dispatch(x))
        tried("combine", lambda: buffer.combine(x, None))
        for time in ("", " again"):
            tried(
                f"get_local_buffer_tensor use_rdma_buffer{time}",
                lambda: buffer.get_local_buffer_tensor(torch.int8, use_rdma_buffer=True).zero_(),
            )
        assert buffer.get_local_buffer_tensor(torch.float32, torch.Size([3, 5]), 2).shape == (3, 5)
        whole(buffer)
        assert buffer.get_comm_stream() is None
        deep_ep.Buffer.capture().current_stream_wait()
    print(told.as_json())
