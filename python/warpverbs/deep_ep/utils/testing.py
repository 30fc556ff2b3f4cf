"""Timings of DeepEP's test programs. On the CPU they are times of the host, and say nothing of a GPU or a NIC."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from ...moe import Call
from .envs import runs_on_cpu

__all__ = ["bench", "bench_kineto", "flush_l2_cache"]

#: Bytes that are written to have nothing of before in the L2 cache of a GPU.
FLUSHED = 256_000_000
#: The launches of a call, which a program names by a part of the name.
LAUNCHES = ("dispatch", "dispatch_send", "dispatch_receive", "combine", "combine_send", "combine_receive")


def flush_l2_cache(enabled: bool = True) -> None:
    """Writes so many zeros that the L2 cache of the GPU holds nothing else. The CPU's caches stay as they are."""
    if enabled and not runs_on_cpu():
        torch.zeros(FLUSHED // 4, dtype=torch.int32, device="cuda")


def bench(
    fn: Callable[[], Any],
    num_warmups: int = 50,
    num_tests: int = 50,
    post_fn: Callable[[], Any] | None = None,
    flush_l2: bool = True,
) -> tuple[float, float, float]:
    """Calls ``fn`` again and again, and ``post_fn`` after each of the ``num_tests`` that count. Returns the mean, least and largest time
    of a call but the first, seconds: by events of the GPU, or of the host's clock."""
    on_cpu = runs_on_cpu()
    for _ in range(num_warmups):
        fn()
    marks: list[tuple[Any, Any]] = []
    for _ in range(num_tests):
        flush_l2_cache(flush_l2)
        before = _mark(on_cpu)
        fn()
        marks.append((before, _mark(on_cpu)))
        if post_fn is not None:
            post_fn()
    if not on_cpu:
        torch.cuda.synchronize()
    times = [behind - before if on_cpu else before.elapsed_time(behind) / 1e3 for before, behind in marks][1:]
    return sum(times) / len(times), min(times), max(times)


def _mark(on_cpu: bool) -> Any:
    if on_cpu:
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def bench_kineto(
    fn: Callable[[], Any],
    kernel_names: str | tuple[str, ...],
    num_tests: int = 30,
    suppress_kineto_output: bool = False,
    trace_path: str | None = None,
    flush_l2: bool = True,
    barrier_comm_profiling: bool = False,
    num_kernels_per_period: int = 1,
    barrier: Callable[[], Any] | None = None,
) -> Any:
    """The mean time of kernels whose names have these words, seconds: a number for a name, a tuple for names. With
    ``num_kernels_per_period`` above 1 each is a list: of the first, second, .. of so many kernels.

    On a GPU torch's profiler says it. On the CPU these are times of the calls that run the kernels, with the waits for other ranks.
    """
    names = (kernel_names,) if isinstance(kernel_names, str) else kernel_names
    fn()

    def tests() -> None:
        for _ in range(num_tests):
            flush_l2_cache(flush_l2)
            if barrier_comm_profiling:
                (barrier or dist.barrier)()
            fn()

    if runs_on_cpu():
        with _launches() as found:
            tests()
    else:
        found = _kernels(tests, trace_path)
    told = [_means([seconds for name, seconds in found if word in name], num_kernels_per_period) for word in names]
    return told[0] if isinstance(kernel_names, str) else tuple(told)


def _means(times: list[float], each: int) -> Any:
    """The mean, or with ``each`` above 1 those of the first, second, .. of so many."""
    if len(times) % each:
        raise ValueError(f"{len(times)} kernels were found; they must be a multiple of num_kernels_per_period, {each}")
    means = [sum(times[place::each]) / max(1, len(times) // each) for place in range(each)]
    return means if each > 1 else means[0]


@contextlib.contextmanager
def _launches() -> Iterator[list[tuple[str, float]]]:
    """The name and time of each launch of a call in this process, while the block runs."""
    found: list[tuple[str, float]] = []
    inside = [False]

    def timed(name: str, launch: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if inside[0]:
                return launch(*arguments, **named)
            inside[0], began = True, time.perf_counter()
            try:
                return launch(*arguments, **named)
            finally:
                inside[0] = False
                found.append((name, time.perf_counter() - began))

        return call

    # Under the names of public calls, and of the steps that buffers make in their place.
    steps = {**{name: name for name in LAUNCHES}, "_send_for": "dispatch_send", "_dispatch": "dispatch"}
    own = {step: getattr(Call, step) for step in steps}
    for step, name in steps.items():
        setattr(Call, step, timed(name, own[step]))
    try:
        yield found
    finally:
        for step, launch in own.items():
            setattr(Call, step, launch)


def _kernels(tests: Callable[[], None], trace_path: str | None) -> list[tuple[str, float]]:
    """The name and time of each kernel of the GPU that ``tests`` runs, in the order of their begins."""
    if os.environ.get("EP_USE_NVIDIA_TOOLS", "0") != "0":
        raise ValueError(
            "EP_USE_NVIDIA_TOOLS is set: a tool of NVIDIA profiles this process, so torch's profiler cannot; time with that tool"
        )
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profiler:
        tests()
        torch.cuda.synchronize()
    if trace_path is not None:
        profiler.export_chrome_trace(trace_path)
    events = sorted(profiler.events(), key=lambda event: event.time_range.start)
    return [(event.name, event.device_time / 1e6) for event in events]
