"""No thread that keeps a rank alive needs the GIL, no wait keeps it from other threads, and nothing is left of what was dropped."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import groups
import pytest
import ranks
import torch
import torch.distributed as dist

import warpverbs
from warpverbs import deep_ep

LONG = groups.LONG
#: KiB that an allocator may keep for itself.
KEPT = 32 << 10
SHAPE: dict[str, Any] = {"hidden": 64, "experts": 4, "top_k": 2, "max_tokens": 4}


def one_call(call: warpverbs.Call) -> None:
    """Each token goes to two experts, which give it back."""
    x = torch.full((2, 64), float(call.moe.team.rank + 1), dtype=torch.bfloat16)
    rows = call.dispatch(x, torch.tensor([[0, 3], [1, 2]], dtype=torch.int32), torch.full((2, 2), 0.5)).x
    result = call.combine(rows)
    call.check()
    assert torch.equal(result.out, x)


def held(lease: str, seconds: str) -> None:
    """Rank 1 holds the GIL for longer than its lease in one C call, and keeps its place."""
    with warpverbs.Team(deadline=LONG, join_timeout=LONG) as team:
        moe = warpverbs.Moe(team, "held", **SHAPE)
        call = moe.call()
        with warpverbs.Group(team, moe, lease=float(lease)) as members:
            members.wait("serving", LONG)
            one_call(call)
            before = members.view
            if team.rank == 1:
                # A function of a PyDLL runs with the GIL.
                ctypes.PyDLL(None).sleep(int(seconds))
            one_call(call)
            assert members.view == before, members.events()
            assert members.active.tolist() == [1, 1]
            members.leave(LONG)


def own_store(number: int) -> str:
    """A directory below that of all ranks, for the teams of one thread."""
    store = f"{os.environ['WARPVERBS_STORE']}/thread-{number}"
    os.makedirs(store.removeprefix("file://"), 0o700, exist_ok=True)
    return store


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Does `work` in so many threads at the same time, each with its number."""
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


def eight_threads() -> None:
    """Eight threads, each with a team and a layer of its own, make calls at the same time."""
    done = [0] * 8

    def work(number: int) -> None:
        with warpverbs.Team(store=own_store(number), deadline=LONG, join_timeout=LONG) as team:
            call = warpverbs.Moe(team, "layer", **SHAPE).call()
            for _ in range(10):
                one_call(call)
                done[number] += 1

    in_threads(8, work)
    assert done == [10] * 8


def eight_buffers() -> None:
    """Eight threads, each with a buffer of its own process group, bring it up and make calls at the same time, with hooks and without."""
    done = [0] * 8
    with groups.world():
        every = [dist.new_group([0, 1]) for _ in range(8)]

        def work(number: int) -> None:
            buffer, _ = buffer_of(every[number])
            weights, ids = torch.full((8, 2), 0.5), torch.arange(16).view(8, 2) % 4
            for turn in range(10):
                x = torch.full((8, 1024), float(8 * turn + number), dtype=torch.bfloat16)
                hooks = (number + turn) % 2 == 0
                rows, _, handle, _, received = buffer.low_latency_dispatch(x, ids, 8, 4, use_fp8=False, return_recv_hook=hooks)
                (received or int)()
                out, _, received = buffer.low_latency_combine(rows, ids, weights, handle, return_recv_hook=hooks)
                (received or int)()
                assert torch.equal(out, x), (number, turn)
                done[number] += 1
            buffer.destroy()

        in_threads(8, work)
    assert done == [10] * 8


def waits_in(thread: int, name: str) -> bool:
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False


def buffer_of(group: Any) -> tuple[deep_ep.Buffer, Callable[..., Any]]:
    buffer = deep_ep.Buffer(group, low_latency_mode=True, explicitly_destroy=True, deadline=LONG, warm_deadline=LONG, join_timeout=LONG)
    buffer.warm_up(8, 1024, 4, 2, use_fp8=False)

    def dispatch(x: torch.Tensor, ids: torch.Tensor) -> Any:
        return buffer.low_latency_dispatch(x, ids, 8, 4, use_fp8=False, return_recv_hook=True)

    return buffer, dispatch


def hook() -> None:
    """While a thread waits in a hook, another one counts; the other rank sends nothing before that one has counted."""
    counted = Path(os.environ["WARPVERBS_STORE"].removeprefix("file://"), "counted")
    with groups.world() as group:
        buffer, dispatch = buffer_of(group)
        if buffer.rank == 1:
            until = time.monotonic() + LONG
            while not counted.exists():
                assert time.monotonic() < until, "no thread of rank 0 ran while another one waited"
                time.sleep(0.005)
        x, ids = torch.ones(8, 1024, dtype=torch.bfloat16), torch.arange(16).view(8, 2) % 4
        rows, _, handle, _, received = dispatch(x, ids)
        if buffer.rank == 0:
            main = threading.get_ident()

            def count() -> None:
                rounds = 0
                while rounds < 10_000:
                    rounds += waits_in(main, "_ended")
                counted.touch()

            counter = threading.Thread(target=count)
            counter.start()
        received()
        if buffer.rank == 0:
            counter.join()
        out, _, received = buffer.low_latency_combine(rows, ids, torch.full((8, 2), 0.5), handle, return_recv_hook=True)
        received()
        assert torch.equal(out, x)
        buffer.destroy()


def one_at_a_time() -> None:
    """While a thread waits in a call of a buffer, another thread's call of it is refused, and the first one is whole."""
    released = Path(os.environ["WARPVERBS_STORE"].removeprefix("file://"), "released")
    with groups.world() as group:
        buffer, dispatch = buffer_of(group)
        x, ids, weights = torch.ones(8, 1024, dtype=torch.bfloat16), torch.arange(16).view(8, 2) % 4, torch.full((8, 2), 0.5)

        def whole() -> None:
            rows, _, handle, _, received = dispatch(x, ids)
            received()
            out, _, received = buffer.low_latency_combine(rows, ids, weights, handle, return_recv_hook=True)
            received()
            assert torch.equal(out, x)

        whole()
        for waits in ("hook", "dispatch", "combine"):
            rows, handle, received = None, None, None
            if waits != "dispatch":
                rows, _, handle, _, received = dispatch(x, ids)
            if waits == "combine":
                received()
            sums: list[Any] = []

            def first(sums: list[Any] = sums, waits: str = waits, rows: Any = rows, handle: Any = handle, received: Any = received) -> None:
                if waits == "dispatch":
                    rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, 8, 4, use_fp8=False)
                elif waits == "hook":
                    received()
                sums.append(buffer.low_latency_combine(rows, ids, weights, handle)[0])

            dist.barrier()
            if buffer.rank == 1:
                until = time.monotonic() + LONG
                while not released.exists():
                    assert time.monotonic() < until, "rank 0 has not said that a call was refused"
                    time.sleep(0.005)
                first()
            else:
                thread = threading.Thread(target=first)
                thread.start()
                until = time.monotonic() + LONG
                while not waits_in(thread.ident or 0, "_ended"):
                    assert time.monotonic() < until, "the thread does not wait"
                words = r"a call of this buffer, .*is under way in another thread; make .* one after another"
                with pytest.raises(warpverbs.Refused, match=words):
                    dispatch(x, ids)
                released.touch()
                thread.join()
            dist.barrier()
            assert torch.equal(sums[0], x), waits
            if buffer.rank == 0:
                released.unlink()
            dist.barrier()
            whole()
        buffer.destroy()


def many_on_one() -> None:
    """Four threads with one buffer: each call is whole or refused, and nothing is left open."""
    with groups.world() as group:
        buffer, dispatch = buffer_of(group)
        weights, ids = torch.full((8, 2), 0.5), torch.arange(16).view(8, 2) % 4
        wrong: list[str] = []
        whole = [0]
        before = sys.getswitchinterval()
        # Threads take turns between nearly any two steps.
        sys.setswitchinterval(1e-6)

        def work(number: int) -> None:
            for turn in range(200):
                x = torch.full((8, 1024), float(8 * (turn % 8) + number), dtype=torch.bfloat16)
                hooks = (number + turn) % 2 == 0
                try:
                    rows, _, handle, _, received = buffer.low_latency_dispatch(x, ids, 8, 4, use_fp8=False, return_recv_hook=hooks)
                    called(received or int)
                    out, *_ = buffer.low_latency_combine(rows, ids, weights, handle)
                    if torch.equal(out, x):
                        whole[0] += 1
                    else:
                        wrong.append(f"thread {number}, turn {turn}: wrong sums")
                except warpverbs.Refused:
                    pass
                except BaseException as error:
                    wrong.append(f"thread {number}, turn {turn}: {type(error).__name__}: {error}")

        def called(received: Callable[[], object]) -> object:
            until = time.monotonic() + LONG
            while time.monotonic() < until:
                try:
                    return received()
                except warpverbs.Refused as error:
                    # Another thread is in a call: the hook receives later. Or it has been received for a later batch.
                    if "under way" not in str(error):
                        raise
            raise AssertionError("the hook was refused all the time")

        in_threads(4, work)
        sys.setswitchinterval(before)
        assert not wrong, wrong[:5]
        assert whole[0] > 0
        x = torch.ones(8, 1024, dtype=torch.bfloat16)
        rows, _, handle, _, received = dispatch(x, ids)
        received()
        assert torch.equal(buffer.low_latency_combine(rows, ids, weights, handle)[0], x)
        buffer.destroy()


def freed() -> None:
    """What dispatch and combine send may be freed before their hooks, and its memory written by others."""
    with groups.world() as group:
        buffer, dispatch = buffer_of(group)
        weights, ids = torch.full((8, 2), 0.5), torch.arange(16).view(8, 2) % 4
        for number in range(20):
            x = torch.full((8, 1024), float(number + buffer.rank), dtype=torch.bfloat16)
            rows, _, handle, _, received = dispatch(x, ids.clone())
            del x
            gc.collect()
            others = [torch.full((8, 1024), math.nan, dtype=torch.bfloat16) for _ in range(16)]
            received()
            y = rows.clone()
            out, _, received = buffer.low_latency_combine(y, ids.clone(), weights.clone(), handle, return_recv_hook=True)
            del y, rows, handle
            gc.collect()
            others += [torch.full((4, 16, 1024), math.nan, dtype=torch.bfloat16) for _ in range(4)]
            received()
            assert torch.equal(out, torch.full_like(out, number + buffer.rank)), number
            del others
        buffer.destroy()


def resident() -> int:
    """KiB of this process in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def dropped_beside_the_store(store: str, count: str) -> None:
    """:func:`dropped` in a process of its own. This one holds the store of the group, which keeps some keys of each team."""
    child = ranks.begin(0, {**ranks.shared(1, store), "GROUPS_HELD": "1"}, "gil:dropped", [count])
    held = groups.hold(Path(store), 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    del held


def dropped(count: str) -> None:
    """Buffers that were made and dropped leave no descriptor, thread, memory or piece of the control heap behind, whether the last of
    them ends the team or another one keeps it."""
    with groups.world() as group:

        def make() -> None:
            buffer, dispatch = buffer_of(group)
            dispatch(torch.ones(1, 1024, dtype=torch.bfloat16), torch.tensor([[0, 3]]))[4]()
            buffer.destroy()

        def left() -> tuple[int, int]:
            gc.collect()
            return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

        for _ in range(10):
            make()
        before, memory = left(), resident()
        start = time.monotonic()
        for _ in range(int(count)):
            make()
        after, grown = left(), resident() - memory
        print(f"{count} buffers in {time.monotonic() - start:.1f} s; descriptors and threads: {before}, then {after}; {grown} KiB more")
        assert after == before
        # What the allocator keeps for itself does not grow with the number of buffers.
        assert grown < KEPT + int(count)

        kept, _ = buffer_of(group)
        make()
        team = kept._place.team
        before, heap = left(), team.control_heap
        for _ in range(int(count)):
            make()
        assert (left(), team.control_heap) == (before, heap)
        assert 0 < heap[0] < heap[1]
        kept.destroy()
