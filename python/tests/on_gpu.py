"""Ranks that compare the low-latency calls on tensors of a GPU with plain torch: streams, graphs, and memory of every kind."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import groups
import oracle
import torch
import torch.distributed as dist
from low_latency import CASE, FORMATS, dequantized, expected, in_format

from warpverbs import deep_ep

#: Replays of each graph.
REPLAYS = 100
#: Calls that are timed.
TIMED = 200


@contextmanager
def buffer_of_world(backend: str = "gloo") -> Iterator[deep_ep.Buffer]:
    """A buffer of all ranks, each on a GPU of its own if the machine has enough."""
    rank, _ = groups.start(backend=backend)
    if torch.cuda.is_available():
        gpu = rank % torch.cuda.device_count()
        torch.cuda.set_device(gpu)
        os.environ["WARPVERBS_GPU"] = str(gpu)
    yield deep_ep.Buffer(dist.group.WORLD, low_latency_mode=True, join_timeout=groups.LONG)
    groups.finish()


class Step:
    """Dispatch, the experts and combine of one batch, whose tensors stay where they are."""

    def __init__(self, buffer: deep_ep.Buffer, form: str, mode: str = "plain", case: oracle.Case = CASE, zero_copy: bool = False) -> None:
        self.buffer, self.form, self.mode, self.case, self.zero_copy = buffer, form, mode, case, zero_copy
        tokens, device = case.max_tokens, buffer._device
        self.x = torch.zeros(tokens, case.hidden, dtype=torch.bfloat16, device=device)
        self.ids = torch.full((tokens, case.top_k), -1, dtype=torch.int64, device=device)
        self.weights = torch.zeros(tokens, case.top_k, device=device)
        self.sums = torch.zeros_like(self.x)
        self.own = oracle.Batch(self.x[:0], self.ids[:0], self.weights[:0])

    def fill(self, seed: int) -> None:
        """Another batch. Tokens that it has fewer of choose no expert."""
        self.own = oracle.batches(self.case, self.buffer.group_size, seed)[self.buffer.rank]
        count = len(self.own.x)
        self.ids.fill_(-1)
        self.x[:count].copy_(self.own.x)
        self.ids[:count].copy_(self.own.experts)
        self.weights[:count].copy_(self.own.weights)

    def run(self) -> None:
        """Nothing here waits for the device."""
        buffer, case = self.buffer, self.case
        way = {"async_finish": self.mode == "async", "return_recv_hook": self.mode == "hook"}
        rows, _, handle, *ends = buffer.low_latency_dispatch(self.x, self.ids, case.max_tokens, case.experts, **in_format(self.form), **way)
        end(*ends)
        seen = rows if self.form == "bf16" else dequantized(*rows)
        y = torch.zeros(seen.shape, dtype=torch.bfloat16, device=seen.device)
        own = [number for number, home in enumerate(oracle.homes(case, buffer.group_size)) if home == buffer.rank]
        for local, number in enumerate(own):
            y[local] = seen[local] * (1 + number / 4) + number
        if self.zero_copy:
            # Where the call takes its rows from; what is given instead would spoil every sum.
            buffer.get_next_low_latency_combine_buffer(handle).copy_(y)
            y = torch.full_like(y, float("nan"))
        _, *ends = buffer.low_latency_combine(y, self.ids, self.weights, handle, out=self.sums, zero_copy=self.zero_copy, **way)
        end(*ends)

    def check(self) -> None:
        wanted = expected(self.form, self.own, self.buffer.group_size, self.case)
        got = self.sums.cpu()
        assert torch.equal(got[: len(wanted)], wanted), (self.form, self.mode)
        assert not got[len(wanted) :].any()


def end(event: Any, hook: Callable[[], None] | None) -> None:
    if hook is not None:
        hook()
    elif event.event is not None:
        event.current_stream_wait()


def streams(which: str) -> None:
    """Each format and way to wait, in the caller's stream or in one beside it."""
    with buffer_of_world() as buffer:
        beside: AbstractContextManager[Any] = torch.cuda.stream(torch.cuda.Stream()) if which == "beside" else nullcontext()
        with beside:
            several_steps(buffer)


def backend(name: str) -> None:
    """Steps of a buffer whose process group has the backends that ``name`` says."""
    with buffer_of_world(name) as buffer:
        several_steps(buffer)


def several_steps(buffer: deep_ep.Buffer) -> None:
    for number, form in enumerate(FORMATS):
        for mode in ("plain", "async", "hook"):
            step = Step(buffer, form, mode, replace(CASE, choices=("random", "holes", "one", "empty")[number]))
            for seed in range(3):
                step.fill(seed)
                step.run()
                step.check()


def graph(calls: str) -> None:
    """A graph of so many calls, which is replayed with other tokens each time."""
    with buffer_of_world() as buffer:
        buffer.warm_up(CASE.max_tokens, CASE.hidden, CASE.experts, CASE.top_k, use_fp8=False)
        steps = [Step(buffer, "bf16", "hook") for _ in range(int(calls))]
        for step in steps:
            step.fill(0)
            step.run()
        torch.cuda.synchronize()
        dist.barrier()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            for step in steps:
                step.run()
        for replay in range(REPLAYS):
            for number, step in enumerate(steps):
                step.fill(1 + replay * len(steps) + number)
            recorded.replay()
            for step in steps:
                step.check()
        dist.barrier()


def zero_copy() -> None:
    """Calls one after another, none of which the host waits for before it asks where the next one combines from."""
    with buffer_of_world() as buffer:
        for form in FORMATS:
            for mode in ("plain", "hook"):
                steps = [Step(buffer, form, mode, zero_copy=True) for _ in range(3)]
                for seed in range(4):
                    for number, step in enumerate(steps):
                        step.fill(10 * seed + number)
                        step.run()
                    for step in steps:
                        step.check()


def memory(kind: str) -> None:
    """Tensors of a pool of the caller's; or of segments that grow, as the variable of this process says."""
    with buffer_of_world() as buffer:
        pool: AbstractContextManager[Any] = torch.cuda.use_mem_pool(torch.cuda.MemPool()) if kind == "pool" else nullcontext()
        with pool:
            several_steps(buffer)


def timed() -> None:
    """Prints ns of a dispatch with its combine, without what the experts do."""
    with buffer_of_world() as buffer:
        step = Step(buffer, "bf16", "hook")
        step.fill(0)

        def call() -> None:
            rows, _, handle, *ends = buffer.low_latency_dispatch(
                step.x, step.ids, CASE.max_tokens, CASE.experts, use_fp8=False, return_recv_hook=True
            )
            end(*ends)
            _, *ends = buffer.low_latency_combine(rows, step.ids, step.weights, handle, out=step.sums, return_recv_hook=True)
            end(*ends)

        for _ in range(20):
            call()
        begin, over = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        begin.record()
        for _ in range(TIMED):
            call()
        over.record()
        torch.cuda.synchronize()
        if buffer.rank == 0:
            print(json.dumps(begin.elapsed_time(over) * 1e6 / TIMED), flush=True)
