"""A rank is killed under buffers without masks: the others hear which one, and in which phase."""

from __future__ import annotations

import os
import signal
from typing import Any, NoReturn

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
    if os.environ["WARPVERBS_RANK"] == "2":
        child = os.fork()
        if child:
            assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
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


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("this process was killed")
