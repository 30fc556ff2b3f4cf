"""Ranks whose event loops hear of each other."""

from __future__ import annotations

import asyncio
import json
import select
import threading
import time

import pytest

import warpverbs

LONG = 60.0


def a_rank_that_leaves() -> None:
    """Rank 1 leaves: an iteration hears of it, and a descriptor, too."""
    with warpverbs.Team(deadline=10, join_timeout=LONG) as team:
        moe = warpverbs.Moe(team, "heard", hidden=64, experts=4, top_k=2, max_tokens=4)
        with warpverbs.Group(team, moe, lease=2.0) as members:
            assert select.select([members], [], [], LONG)[0], "what has changed before is news"
            assert members.fileno() == members.fileno()
            heard = asyncio.run(asyncio.wait_for(until(members, [0, 1]), LONG))
            before = members.counters
            assert before.views > before.promises, before
            team.barrier("whole")
            if team.rank == 1:
                members.leave(LONG)
                # The state after which nothing changes ends each iteration.
                assert asyncio.run(asyncio.wait_for(all_of(members), LONG))[-1].state == "left"
            else:
                # `leave` waits until the others go on without this rank.
                after = asyncio.run(asyncio.wait_for(until(members, [0]), LONG))
                assert after.number > heard.number
                counted = members.counters
                assert counted.views > before.views, counted
                assert counted.promises > before.promises, counted
                assert counted.partings >= counted.unions, counted
        with pytest.raises(warpverbs.Refused, match="closed"):
            members.fileno()
        with pytest.raises(warpverbs.Refused, match="closed"):
            members.counters  # noqa: B018


def many_changes(count: str) -> None:
    """Rank 0 suspects rank 1 again and again, while its event loop reads the changes. Each time the pair parts and is connected anew, and
    the kernels' mask changes, until it has changed ``count`` times. Before the next time the loop has read the view that unites them."""
    # Rank 1 waits for the end of it all.
    with warpverbs.Team(deadline=10, join_timeout=60 * LONG) as team:
        moe = warpverbs.Moe(team, "masked", hidden=64, experts=4, top_k=2, max_tokens=4)
        with warpverbs.Group(team, moe, lease=5.0, error=0.01) as members:
            members.wait("serving", LONG)
            team.barrier("whole")
            if team.rank == 0:
                print(json.dumps(asyncio.run(asyncio.wait_for(heard_all(members, int(count)), 60 * LONG))), flush=True)
            team.barrier("read")


async def heard_all(members: warpverbs.Group, count: int) -> dict[str, float]:
    """How often the mask has changed, how often in all, how often the loop woke for that, and the longest call of the group in the loop and
    the longest time for which the loop stood still, seconds."""
    masked, longest, call, read, over = 0, 0.0, 0.0, threading.Semaphore(0), asyncio.Event()
    look = members.clear_changes

    def timed() -> warpverbs.Change:
        nonlocal call
        start = time.monotonic()
        change = look()
        call = max(call, time.monotonic() - start)
        return change

    members.clear_changes = timed  # type: ignore[method-assign]

    def suspect() -> None:
        nonlocal masked
        try:
            while masked < count:
                before = members.view
                assert before is not None
                members.suspect(1, "so says the test")
                # One view parts the pair, and the next unites it.
                members.wait_view(before.epoch + 2, LONG)
                masked += sum(words.startswith("masked: ") for _, words in members.events())
                assert read.acquire(timeout=LONG), f"the loop has not read a view after {before} of {masked} changes of the mask"
        finally:
            members.leave(LONG)

    async def beat() -> None:
        nonlocal longest
        while not over.is_set():
            start = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - start)

    beats = asyncio.create_task(beat())
    making = asyncio.create_task(asyncio.to_thread(suspect))
    numbers, epoch = [], None
    async for change in members.changes():
        numbers.append(change.number)
        if change.view is not None and not change.view.parted and change.view.epoch != epoch:
            epoch, first = change.view.epoch, epoch is None
            if not first:
                read.release()
    await making
    over.set()
    await beats
    assert numbers == sorted(set(numbers))
    # The last state of this rank is after all changes.
    assert numbers[-1] == members.clear_changes().number
    assert numbers[-1] >= masked
    return {"masked": masked, "changes": numbers[-1], "read": len(numbers), "call": call, "longest": longest}


async def until(members: warpverbs.Group, ranks: list[int]) -> warpverbs.Change:
    changes = members.changes()
    async for change in changes:
        if change.state == "serving" and change.view is not None and sorted(change.view.members) == ranks:
            await changes.aclose()
            return change
    raise AssertionError(f"the group of rank {members.team.rank} ended before {ranks} were its members")


async def all_of(members: warpverbs.Group) -> list[warpverbs.Change]:
    return [change async for change in members.changes()]
