"""A rank that sleeps for longer than a deadline before a dispatch costs only itself."""

from __future__ import annotations

import os
import time

import groups
import pytest
import torch.distributed as dist
from differing import ALL, Calls

import warpverbs

DEADLINE, SLEEP, LATE = 1.0, 2.5, 1
#: Calls before that, so that each buffer to send from has been used.
BEFORE = 4
#: Calls from that before which it sleeps, until the program takes masks back.
CALLS = 6


def store_of(own: str) -> str | None:
    """A store of the buffer's own, or None for that of the group."""
    if own != "own store":
        return None
    place = f"{os.environ['WARPVERBS_STORE']}/own"
    os.makedirs(place.removeprefix("file://"), 0o700, exist_ok=True)
    return place


def with_masks(of: str, own: str) -> None:
    """The others mask the late rank and no other, in the call that misses it and in later ones, and their sums lose its experts alone.
    When the program takes the masks back, the next call is whole at all four."""
    store = store_of(own)
    rank, _ = groups.start()
    calls = Calls(of, True, DEADLINE, store)
    for _ in range(BEFORE):
        calls.whole()
    dist.barrier()
    for call in range(CALLS):
        if rank == LATE and call == 0:
            time.sleep(SLEEP)
        sums = calls.sums()
        if rank != LATE:
            assert calls.masked() == [LATE], (call, calls.masked(), sums[:, 0])
            assert bool((sums == 0.75).all()), (call, sums[:, 0])
    dist.barrier()
    for masked in calls.masked():
        if calls.deep_ep is not None:
            calls.deep_ep.low_latency_update_mask_buffer(masked, False)
        else:
            assert calls.active is not None
            calls.active[masked] = 1
    dist.barrier()
    for _ in range(3):
        calls.whole()
        assert calls.masked() == []
    groups.finish()


def without_masks() -> None:
    """Every rank names the late one and no other. The first call of another buffer, in which all four take part, is whole."""
    rank, _ = groups.start()
    calls = Calls("deep_ep", False, DEADLINE)
    for _ in range(BEFORE):
        calls.whole()
    dist.barrier()
    if rank == LATE:
        time.sleep(SLEEP)

    def some_calls() -> None:
        for _ in range(3):
            calls.sums()

    with pytest.raises(warpverbs.RankLost) as lost:
        some_calls()
    assert lost.value.ranks == (LATE,), lost.value
    dist.barrier()
    again = Calls("deep_ep", False, DEADLINE)
    for _ in range(3):
        again.whole()
    groups.finish()


def goes_on() -> None:
    """Under Mooncake's names without a mask no call raises: sums lose the experts of the late rank in the call that misses it, and the
    next call in which all four take part is whole."""
    rank, _ = groups.start()
    calls = Calls("mooncake_ep", False, DEADLINE)
    for _ in range(BEFORE):
        calls.whole()
    dist.barrier()
    if rank == LATE:
        time.sleep(SLEEP)
    sums = calls.sums()
    if rank != LATE:
        assert bool((sums == 0.75).all()), sums[:, 0]
    dist.barrier()
    for _ in range(3):
        calls.whole()
    groups.finish()


def masked_back() -> None:
    """A rank that says that it masks this one is masked: rank 0 masks rank 1, so rank 1 masks rank 0, and the others mask neither."""
    rank, _ = groups.start()
    calls = Calls("deep_ep", True, DEADLINE)
    for _ in range(BEFORE):
        calls.whole()
    dist.barrier()
    if rank == 0:
        calls.deep_ep.low_latency_update_mask_buffer(LATE, True)
    sums = calls.sums(ALL)
    assert calls.masked() == {0: [LATE], LATE: [0]}.get(rank, []), sums
    assert bool((sums == (0.75 if rank in (0, LATE) else 1)).all()), sums[:, 0]
    dist.barrier()
    calls.deep_ep.low_latency_clean_mask_buffer()
    calls.whole()
    groups.finish()
