"""A rank is killed under buffers. Without masks the others hear which one, and in which phase. With masks they go on."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, NoReturn

import differing
import groups
import pytest
import torch
import torch.distributed as dist

import warpverbs
from warpverbs import deep_ep, mooncake_ep

LONG = groups.LONG
MOST, HIDDEN, EXPERTS = 4, 128, 6
X, WEIGHTS = torch.ones(MOST, HIDDEN, dtype=torch.bfloat16), torch.full((MOST, 2), 0.5)
#: An expert of the first rank and one of the last.
IDS = torch.tensor([[0, 5]] * MOST)


class DeepEp:
    """Calls by the names of DeepEP."""

    def __init__(self, group: Any) -> None:
        self.buffer = deep_ep.Buffer(group, low_latency_mode=True, deadline=LONG, warm_deadline=LONG, join_timeout=LONG)

    def dispatch(self, hook: bool = False) -> tuple[Any, ...]:
        rows, _, handle, _, received = self.buffer.low_latency_dispatch(X, IDS, MOST, EXPERTS, use_fp8=False, return_recv_hook=hook)
        return rows, handle, received

    def combine(self, rows: Any, handle: Any, hook: bool = False) -> tuple[Any, ...]:
        sums, _, received = self.buffer.low_latency_combine(rows, IDS, WEIGHTS, handle, return_recv_hook=hook)
        return sums, received


class MooncakeEp:
    """Calls by the names of Mooncake, of which all ranks take part."""

    def __init__(self, group: Any) -> None:
        self.buffer = mooncake_ep.Buffer(group, deadline=LONG, join_timeout=LONG)

    def dispatch(self, hook: bool = False) -> tuple[Any, ...]:
        rows, _, handle, _, received = self.buffer.dispatch(X, IDS, None, MOST, EXPERTS, -1, use_fp8=False, return_recv_hook=hook)
        return rows, handle, received

    def combine(self, rows: Any, handle: Any, hook: bool = False) -> tuple[Any, ...]:
        sums, _, received = self.buffer.combine(rows, IDS, WEIGHTS, None, -1, handle, return_recv_hook=hook)
        return sums, received


NAMES = {"deep_ep": DeepEp, "mooncake_ep": MooncakeEp}


def whole(calls: Any) -> None:
    rows, handle, _ = calls.dispatch()
    assert torch.equal(calls.combine(rows, handle)[0], X)


def names_rank_2(call: Any, phase: str) -> None:
    number = {"dispatch": 1, "combine": 3}[phase]
    with pytest.raises(warpverbs.RankLost, match=rf"rank 2 has ended.*missed in {phase} receive of call [12]") as lost:
        call()
    assert (lost.value.ranks, lost.value.phase) == ((2,), number)
    assert lost.value.call in (1, 2)


def before(what: str, of: str) -> None:
    """Rank 2 is killed before its ``dispatch``, or its ``combine``, while the others make theirs, with or without a ``hook``."""
    if rank_2_is_killed():
        return
    phase, _, hooked = what.partition(" ")
    rank, _ = groups.start()
    left = dist.new_group([0, 1])
    calls = NAMES[of](dist.group.WORLD)
    whole(calls)
    open_batch = calls.dispatch() if phase == "combine" else None
    dist.barrier()
    if rank == 2:
        die()

    def lost() -> None:
        received = calls.dispatch(bool(hooked))[2] if open_batch is None else calls.combine(*open_batch[:2], bool(hooked))[1]
        (received or int)()

    names_rank_2(lost, phase)
    # So does each later call of this buffer, and of others of its group.
    names_rank_2(calls.dispatch, phase)
    # One of the ranks that are left goes on.
    whole(NAMES[of](left))
    dist.barrier(group=left)


def rank_2_is_killed() -> bool:
    """Rank 2 goes on in a child that will be killed. Where the child was, this is true."""
    if os.environ["WARPVERBS_RANK"] != "2":
        return False
    child = os.fork()
    if child:
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return child != 0


class Masked:
    """Calls of a buffer whose ranks may be masked, of any shape."""

    def __init__(self, of: str, group: Any, masks: bool = True) -> None:
        self.ranks, self.buffer = group.size(), None
        self.active = torch.ones(self.ranks, dtype=torch.int32) if masks else None
        if of == "deep_ep":
            self.deep_ep = deep_ep.Buffer(
                group, low_latency_mode=True, enable_shrink=masks, deadline=LONG, warm_deadline=LONG, join_timeout=LONG
            )
        else:
            self.buffer = mooncake_ep.Buffer(group, deadline=LONG, join_timeout=LONG)

    def warm_up(self, most: int, hidden: int) -> None:
        if self.buffer is None:
            self.deep_ep.warm_up(most, hidden, EXPERTS, 2, use_fp8=False)
        else:
            self.buffer.warm_up(most, hidden, EXPERTS, 2, use_fp8=False, active_ranks=self.active)

    def sums(self, most: int, hidden: int) -> torch.Tensor:
        """What comes back of tokens of ones, by experts that return what they get."""
        x, ids, weights = torch.ones(most, hidden, dtype=torch.bfloat16), torch.tensor([[0, 5]] * most), torch.full((most, 2), 0.5)
        if self.buffer is None:
            rows, _, handle, *_ = self.deep_ep.low_latency_dispatch(x, ids, most, EXPERTS, use_fp8=False)
            return self.deep_ep.low_latency_combine(rows, ids, weights, handle)[0]
        rows, _, handle, *_ = self.buffer.dispatch(x, ids, self.active, most, EXPERTS, -1, use_fp8=False)
        return self.buffer.combine(rows, ids, weights, self.active, -1, handle)[0]

    def gone(self) -> list[int]:
        """Ranks that are masked."""
        mask = torch.empty(self.ranks, dtype=torch.int32)
        if self.buffer is None:
            self.deep_ep.low_latency_query_mask_buffer(mask)
        else:
            assert self.active is not None
            mask = 1 - self.active
        return mask.nonzero().flatten().tolist()


def new_shapes(of: str, first: str) -> None:
    """Rank 2 is killed. Shapes that were never used before are made by the others, whatever they do ``first``: a call of an old shape,
    which tells them that the rank is gone, a call of a new one, or the ``warm_up`` of one."""
    if rank_2_is_killed():
        return
    rank, _ = groups.start()
    left = dist.new_group([0, 1])
    calls = Masked(of, dist.group.WORLD)
    assert bool((calls.sums(MOST, HIDDEN) == 1).all())
    dist.barrier()
    if rank == 2:
        die()
    shapes = [(MOST, HIDDEN)] if first == "old" else []
    # More than one team has room for.
    shapes += [(MOST, 2 * HIDDEN), (2 * MOST, HIDDEN), *((MOST, 64 * each) for each in (3, 5, 6, 7)), (MOST, HIDDEN)]
    for most, hidden in shapes:
        if first == "warm_up":
            calls.warm_up(most, hidden)
        sums = calls.sums(most, hidden)
        # Expert 5 is of the rank that is gone.
        assert bool((sums == 0.5).all()), (most, hidden, sums)
        assert calls.gone() == [2]
    dist.barrier(group=left)


def new_shape_without_masks(of: str) -> None:
    """Rank 2 is killed. Without masks the first call of a new shape names the rank, the shape, and what to do; so do later calls."""
    if rank_2_is_killed():
        return
    rank, _ = groups.start()
    left = dist.new_group([0, 1])
    calls = Masked(of, dist.group.WORLD, masks=False)
    calls.sums(MOST, HIDDEN)
    dist.barrier()
    if rank == 2:
        die()
    remedy = {"deep_ep": "with enable_shrink=True", "mooncake_ep": "and pass active_ranks"}[of]
    for hidden in (2 * HIDDEN, HIDDEN):
        with pytest.raises(warpverbs.RankLost, match=rf"rank 2 has ended.*hidden=256.*make another one, {remedy}") as lost:
            calls.sums(MOST, hidden)
        assert lost.value.ranks == (2,)
    assert bool((Masked(of, left).sums(MOST, 2 * HIDDEN) == 1).all())
    dist.barrier(group=left)


def left_out() -> None:
    """A rank that the others have masked, and that comes too late to make the memory of a new shape, hears that they go on without it. Old
    shapes are served as before."""
    rank, _ = groups.start()
    calls = Masked("deep_ep", dist.group.WORLD)
    calls.sums(MOST, HIDDEN)
    if rank != 1:
        calls.deep_ep.low_latency_update_mask_buffer(1, True)
        calls.warm_up(MOST, 2 * HIDDEN)
        assert bool((calls.sums(MOST, 2 * HIDDEN) == 1).all())
    dist.barrier()
    if rank == 1:
        for hidden in (2 * HIDDEN, 4 * HIDDEN):
            with pytest.raises(warpverbs.RankLost, match=r"rank 1 was given up: ranks 0, 2 go on without it.*hidden=256") as lost:
                calls.warm_up(MOST, hidden)
            assert lost.value.ranks == (1,)
    else:
        calls.deep_ep.low_latency_clean_mask_buffer()
    dist.barrier()
    assert bool((calls.sums(MOST, HIDDEN) == 1).all())
    groups.finish()


def masked(of: str, what: str) -> None:
    """Rank 2 is killed before its ``dispatch``, or between that and its ``combine``, under buffers with masks: the others do not wait for
    their deadline, and mask it alone."""
    if rank_2_is_killed():
        return
    rank, _ = groups.start()
    left = dist.new_group([0, 1, 3])
    calls = differing.Calls(of, True, LONG)
    calls.whole()
    open_batch = calls.dispatch(differing.ALL) if what == "combine" else None
    dist.barrier()
    if rank == 2:
        die()
    began = time.monotonic()
    sums = calls.combine(*open_batch) if open_batch else calls.sums()
    waited = time.monotonic() - began
    # The deadline of the call is the longest wait of its phases for a rank that lives.
    assert waited < LONG, waited
    assert calls.masked() == [2]
    assert bool((sums == 0.75).all()), sums[:, 0]
    for _ in range(3):
        assert bool((calls.sums() == 0.75).all())
        assert calls.masked() == [2]
    dist.barrier(group=left)


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("this process was killed")
