"""What several ranks show together: groups, ranks that fail or never come."""

from __future__ import annotations

import os
import time

import pytest
import torch

import warpverbs

LONG = 60.0


def batch(rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = torch.full((2, 64), float(rank + 1), dtype=torch.bfloat16)
    return x, torch.tensor([[0, 3], [1, 2]], dtype=torch.int32), torch.full((2, 2), 0.5)


def one_call(call: warpverbs.Call, rank: int) -> warpverbs.Combined:
    x, experts, weights = batch(rank)
    return call.combine(call.dispatch(x, experts, weights).x)


def group() -> None:
    """The ranks of a group serve, one leaves, and the other goes on: the tokens that lost an expert are marked, and no others."""
    with warpverbs.Team(deadline=10, join_timeout=LONG) as team:
        moe = warpverbs.Moe(team, "grouped", hidden=64, experts=4, top_k=2, max_tokens=4)
        call = moe.call()
        with warpverbs.Group(team, moe, lease=2.0) as members:
            members.wait("serving", LONG)
            view = members.view
            assert view is not None
            assert sorted(view.members) == [0, 1]
            assert view.active(2) == [True, True]
            assert "serving" in repr(members)
            result = one_call(call, team.rank)
            call.check()
            assert result.token_valid.tolist() == [1, 1]
            assert torch.equal(result.out, batch(team.rank)[0])
            team.barrier("whole")
            if team.rank == 1:
                return
            # Its end is known by its process or its lease: then a view without it comes.
            after = members.wait_view(view.epoch + 1, LONG)
            assert sorted(after.members) == [0]
            # Experts 2 and 3 are gone with rank 1.
            result = one_call(call, team.rank)
            assert result.active.tolist() == [1, 0]
            assert result.token_valid.tolist() == [0, 0]
            assert any("Viewed" in words for _, words in members.events())


def in_place() -> None:
    """A mask in place loses ranks that are missed, and no other entry changes."""
    with warpverbs.Team(deadline=10, join_timeout=LONG) as team:
        rank, other = team.rank, 1 - team.rank
        moe = warpverbs.Moe(team, "masked", hidden=64, experts=4, top_k=2, max_tokens=4)
        call, (x, experts, weights) = moe.call(), batch(rank)

        def step(mask: torch.Tensor, deadline: float | None = None) -> list[list[int]]:
            """The mask behind dispatch and behind combine."""
            out = moe.received()
            out.active, out.active_in_place = mask, True
            got = call.dispatch(x, experts.long(), weights, active=mask, deadline=deadline, out=out)
            seen = mask.tolist()
            call.combine(got.x, active=mask, active_in_place=True)
            return [seen, mask.tolist()]

        assert step(torch.ones(2, dtype=torch.int32)) == [[1, 1]] * 2
        # Of the own entry nothing is asked, and any value but 0 takes a rank in.
        mask = torch.tensor([7, 7], dtype=torch.int32)
        mask[rank] = 0
        assert step(mask) == [[7 * (each == other) for each in range(2)]] * 2
        mask = torch.tensor([int(each == rank) for each in range(2)], dtype=torch.int32)
        assert step(mask) == [[int(each == rank) for each in range(2)]] * 2
        team.barrier("masked")
        if rank == 0:
            assert step(torch.ones(2, dtype=torch.int32), deadline=0.5) == [[1, 0]] * 2


def one_raises() -> None:
    """A block that raises tells the other ranks why; they do not wait for it."""
    start = time.monotonic()
    if os.environ["WARPVERBS_RANK"] == "1":
        with pytest.raises(ZeroDivisionError), warpverbs.Team(join_timeout=LONG):
            raise ZeroDivisionError("by chance")
        return
    with pytest.raises(warpverbs.TeamError, match=r"rank 1.*ZeroDivisionError: by chance"), warpverbs.Team(join_timeout=LONG) as team:
        team.barrier("never")
    assert time.monotonic() - start < LONG


def one_never_comes() -> None:
    """A rank that never comes is named after join_timeout."""
    with pytest.raises(warpverbs.Error, match="rank 2 has not come"):
        warpverbs.Team(int(os.environ["WARPVERBS_RANK"]), 3, join_timeout=2)


def other_shape() -> None:
    """Ranks that make a layer of different shapes get an error with both values."""
    team = warpverbs.Team(join_timeout=LONG)
    with pytest.raises(warpverbs.TeamError, match="hidden is 64 at rank 0 but 128 at rank 1"):
        warpverbs.Moe(team, "other", hidden=64 * (team.rank + 1), experts=4, top_k=2, max_tokens=4)
    team.close()
