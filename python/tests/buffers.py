"""Buffers of DeepEP's names that are dropped, that lose a rank, and that are used with what is not theirs."""

from __future__ import annotations

import gc
import resource
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import groups
import pytest
import torch
import torch.distributed as dist
from gil import waits_in

import warpverbs
from warpverbs import _c10d, deep_ep
from warpverbs.deep_ep import _layers

#: The longest wait of a call that misses a rank, seconds; and one that misses none.
SHORT, LONG = 1.5, groups.LONG
MOST, HIDDEN, EXPERTS = 4, 128, 4
X, IDS, WEIGHTS = torch.ones(MOST, HIDDEN, dtype=torch.bfloat16), torch.tensor([[0, 3]] * MOST), torch.full((MOST, 2), 0.5)


def buffer_of(group: Any, deadline: float = LONG, warm: float = LONG, **more: Any) -> deep_ep.Buffer:
    return deep_ep.Buffer(group, low_latency_mode=True, deadline=deadline, warm_deadline=warm, join_timeout=LONG, **more)


def dispatch(buffer: deep_ep.Buffer, hook: bool = False) -> tuple[Any, Any, Callable[[], None] | None]:
    rows, _, handle, _, received = buffer.low_latency_dispatch(X, IDS, MOST, EXPERTS, use_fp8=False, return_recv_hook=hook)
    return rows, handle, received


def whole(buffer: deep_ep.Buffer) -> None:
    rows, handle, _ = dispatch(buffer)
    assert torch.equal(buffer.low_latency_combine(rows, IDS, WEIGHTS, handle)[0], X)


def names_rank_1(call: Callable[[], Any], phase: int) -> None:
    with pytest.raises(warpverbs.RankLost, match="rank 1") as lost:
        call()
    assert (lost.value.ranks, lost.value.phase) == ((1,), phase)


def lost_in(what: str) -> None:
    """Rank 1 goes silent before its combine, or before the hook of its dispatch has anything to receive: the combine names it."""
    with groups.world() as group:
        buffer = buffer_of(group, SHORT, SHORT)
        buffer.warm_up(MOST, HIDDEN, EXPERTS, 2, use_fp8=False)
        dist.barrier()
        if what == "combine":
            rows, handle, _ = dispatch(buffer)
            dist.barrier()
            if buffer.rank == 0:
                names_rank_1(lambda: buffer.low_latency_combine(rows, IDS, WEIGHTS, handle), 3)
        elif buffer.rank == 0:
            rows, handle, received = dispatch(buffer, hook=True)
            assert received is not None
            received()
            names_rank_1(lambda: buffer.low_latency_combine(rows, IDS, WEIGHTS, handle), 1)
        if buffer.rank == 0:
            # Not this buffer: it has lost a rank.
            names_rank_1(lambda: dispatch(buffer), 3 if what == "combine" else 1)
        dist.barrier()
        # Another one goes on, at all ranks.
        whole(buffer_of(dist.new_group([0, 1])))


def warm_deadline(place: str) -> None:
    """The first dispatch waits as long as another rank may need to load."""
    with groups.world() as group:
        buffer = buffer_of(group, SHORT)
        buffer.warm_up(MOST, HIDDEN, EXPERTS, 2, use_fp8=False)
        waited = Path(place)
        dist.barrier()
        if buffer.rank == 0:
            # Says when this rank has waited for longer than the deadline of later calls.
            threading.Timer(3 * SHORT, waited.touch).start()
        else:
            until = time.monotonic() + LONG
            while not waited.exists():
                assert time.monotonic() < until
                time.sleep(0.005)
        whole(buffer)


def tell(told: Path, waiting: int) -> None:
    """Tells that a thread has waited in a call for some time."""
    until = time.monotonic() + LONG
    while not waits_in(waiting, "_ended"):
        assert time.monotonic() < until
        time.sleep(0.005)
    time.sleep(0.3)
    told.touch()


def late(what: str, hooks: str, place: str) -> None:
    """A rank that waits for a late one counts more than the late one does for it, in the phase in which it waits. Each call adds to its
    counter."""
    with groups.world() as group:
        buffer = buffer_of(group)
        buffer.warm_up(MOST, HIDDEN, EXPERTS, 2, use_fp8=False)
        hook, folder = hooks == "hooks", Path(place)
        waited = {phase: torch.zeros(2, dtype=torch.int64) for phase in ("dispatch", "combine")}
        for turn in range(2):
            before = {phase: ns.clone() for phase, ns in waited.items()}

            def at(phase: str, turn: int = turn) -> None:
                """Here rank 1 waits until rank 0 has waited for it, if it is late in this phase."""
                dist.barrier()
                if phase != what:
                    return
                told = folder / f"waits {turn}"
                if buffer.rank == 0:
                    threading.Thread(target=tell, args=(told, threading.get_ident())).start()
                    return
                until = time.monotonic() + LONG
                while not told.exists():
                    assert time.monotonic() < until
                    time.sleep(0.005)

            at("dispatch")
            rows, _, handle, _, received = buffer.low_latency_dispatch(
                X, IDS, MOST, EXPERTS, None, waited["dispatch"], use_fp8=False, return_recv_hook=hook
            )
            (received or int)()
            at("combine")
            out, _, received = buffer.low_latency_combine(
                rows, IDS, WEIGHTS, handle, return_recv_hook=hook, combine_wait_recv_cost_stats=waited["combine"]
            )
            (received or int)()
            assert torch.equal(out, X)
            added = {phase: ns - before[phase] for phase, ns in waited.items()}
            for phase, ns in added.items():
                assert int(ns[buffer.rank]) == 0, added
                assert int(ns[1 - buffer.rank]) > 0, added
                of_both = [torch.zeros(2, dtype=torch.int64) for _ in range(2)]
                dist.all_gather(of_both, ns)
                if phase == what:
                    assert int(of_both[0][1]) > int(of_both[1][0]), (turn, of_both)


def handles() -> None:
    """A handle of another group's buffer, of the same shape, is refused; so is one of a buffer that was destroyed and made again."""
    with groups.world() as group:
        buffer, other = (buffer_of(each, explicitly_destroy=True) for each in (group, dist.new_group([0, 1])))
        rows, handle, _ = dispatch(buffer)
        theirs, of_other, _ = dispatch(other)
        for use in (
            lambda: buffer.low_latency_combine(theirs, IDS, WEIGHTS, of_other),
            lambda: buffer.get_next_low_latency_combine_buffer(of_other),
            lambda: buffer.abandon(of_other),
        ):
            with pytest.raises(warpverbs.Refused, match="handle is of a buffer of another process group"):
                use()
        with pytest.raises(warpverbs.Refused, match="handle is a tuple"):
            buffer.low_latency_combine(rows, IDS, WEIGHTS, tuple(handle))
        for each, got, of_it in ((buffer, rows, handle), (other, theirs, of_other)):
            assert torch.equal(each.low_latency_combine(got, IDS, WEIGHTS, of_it)[0], X)
        buffer.destroy()
        again = buffer_of(group, explicitly_destroy=True)
        with pytest.raises(warpverbs.Refused, match="handle is of a buffer of another process group"):
            again.low_latency_combine(rows, IDS, WEIGHTS, handle)
        again.destroy()
        other.destroy()


def collected() -> None:
    """A buffer without references is collected, also while its call runs. Destroying the last one gives all memory back."""
    with groups.world() as group:
        kept = buffer_of(group, explicitly_destroy=True)
        whole(kept)
        (layer,) = kept._place._layers
        memory = weakref.ref(layer)
        del layer
        for _ in range(20):
            buffer = buffer_of(group, explicitly_destroy=True)
            assert kept._place.users == 2
            received = dispatch(buffer, hook=True)[2]
            gone = weakref.ref(buffer)
            # The hook receives for a buffer to which only the hook refers.
            del buffer
            assert received is not None
            received()
            del received
            gc.collect()
            assert gone() is None
            assert kept._place.users == 1
        whole(kept)
        kept.destroy()
        del kept
        gc.collect()
        assert memory() is None
        assert group not in _layers.Place._all


def without_a_store() -> None:
    """What is no group of this process, or has no store, is refused in words."""
    with groups.world() as group:
        for wrong in (object(), 3, dist.ProcessGroup(0, 1)):
            with pytest.raises(warpverbs.Refused, match="process group"):
                buffer_of(wrong)
        # As a group of MPI is, whose ranks meet without one.
        ranks = _c10d.ranks_of(group)._replace(store=None)
        for ask in (ranks.meeting, ranks.run_id):
            with pytest.raises(warpverbs.Refused, match="has no store in which its ranks could meet; pass store="):
                ask()


@contextmanager
def short(of: int) -> Iterator[None]:
    """This process gets fewer than ``of`` bytes more meanwhile."""
    kilobytes = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmSize:")).split()[1]
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (int(kilobytes) * 1024 + of, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def out_of_memory(masks: str) -> None:
    """Rank 1 has no memory for a layer: all ranks hear it, with the argument that asks for it. When it has some, all make the layer."""
    with groups.world() as group:
        buffer = buffer_of(group, enable_shrink=masks == "masks")
        buffer.warm_up(MOST, HIDDEN, EXPERTS, 2, use_fp8=False)
        for most in (2048, 4096):
            asked = f"max_tokens={most} .*A smaller max_tokens takes less"
            if buffer.rank == 1:
                with short(1 << 25), pytest.raises(warpverbs.Error, match=asked):
                    buffer.warm_up(most, 4096, EXPERTS, 2, use_fp8=False)
            else:
                with pytest.raises(warpverbs.TeamError, match=f"rank 1 failed: memory for .*{asked}") as failed:
                    buffer.warm_up(most, 4096, EXPERTS, 2, use_fp8=False)
                assert failed.value.ranks == (1,)
            dist.barrier()
            buffer.warm_up(most, 4096, EXPERTS, 2, use_fp8=False)
        whole(buffer)
