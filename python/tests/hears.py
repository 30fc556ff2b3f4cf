"""Ranks whose event loops hear of each other."""

from __future__ import annotations

import asyncio
import select

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
                # The state behind which nothing changes ends each iteration.
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


async def until(members: warpverbs.Group, ranks: list[int]) -> warpverbs.Change:
    changes = members.changes()
    async for change in changes:
        if change.state == "serving" and change.view is not None and sorted(change.view.members) == ranks:
            await changes.aclose()
            return change
    raise AssertionError(f"the group of rank {members.team.rank} ended before {ranks} were its members")


async def all_of(members: warpverbs.Group) -> list[warpverbs.Change]:
    return [change async for change in members.changes()]
