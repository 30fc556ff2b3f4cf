"""What several ranks show together: groups, ranks that come late, fail or never come, and waits that end early."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from gil import waits_in

import warpverbs

LONG = 60.0
#: Seconds beyond the longest run of a test: a wait that does not end early hangs until the test fails.
FOREVER = 600.0
SHAPE: dict[str, Any] = {"hidden": 64, "experts": 4, "top_k": 2, "max_tokens": 4}


def told(name: str) -> Path:
    """A file by which one rank tells others."""
    return Path(os.environ["WARPVERBS_STORE"].removeprefix("file://"), name)


def wait_for(name: str) -> None:
    until = time.monotonic() + LONG
    while not told(name).exists():
        assert time.monotonic() < until, f"no rank has told {name}"
        time.sleep(0.005)


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
            assert any(words.startswith("viewed: view ") for _, words in members.events())


def in_place() -> None:
    """A mask in place loses ranks that are missed, and no other entry changes."""
    with warpverbs.Team(deadline=10, join_timeout=LONG) as team:
        rank, other = team.rank, 1 - team.rank
        moe = warpverbs.Moe(team, "masked", hidden=64, experts=4, top_k=2, max_tokens=4)
        call, (x, experts, weights) = moe.call(), batch(rank)

        def step(mask: torch.Tensor, deadline: float | None = None) -> list[list[int]]:
            """The mask after dispatch and after combine."""
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


def founders() -> None:
    """Rank 0 begins a team of two alone, and its calls have no rank 1. Rank 1 comes later, and all is whole."""
    late = os.environ["WARPVERBS_RANK"] == "1"
    if late:
        wait_for("alone")
    else:
        other = told("other")
        other.mkdir(0o700)
        with pytest.raises(ValueError, match="founders is -1; it must be 0 to the number of ranks"):
            warpverbs.Team(founders=-1)
        with pytest.raises(warpverbs.Error, match="rank 2 is unknown: the team has ranks 0 to 1"):
            warpverbs.Team(store=f"file://{other}", join_timeout=LONG, founders=3)
    begin = warpverbs.Team.rejoin if late else warpverbs.Team
    with begin(deadline=10, join_timeout=LONG, **({} if late else {"founders": 1})) as team:
        assert team.generation == 1
        moe = warpverbs.Moe(team, "founded", **SHAPE)
        call = moe.call()
        with warpverbs.Group(team, moe, lease=5.0) as members:
            members.wait("serving", LONG)
            if not late:
                view = members.view
                assert view is not None
                assert view.members == {0: 1}
                # Experts 2 and 3 are those of rank 1.
                result = one_call(call, 0)
                assert (result.active.tolist(), result.token_valid.tolist()) == ([1, 0], [0, 0])
                told("alone").touch()
            until, result = time.monotonic() + LONG, one_call(call, team.rank)
            while result.active.tolist() != [1, 1]:
                assert time.monotonic() < until, members.events()
                result = one_call(call, team.rank)
            assert members.view is not None
            assert members.view.members == {0: 1, 1: 1}
            assert result.token_valid.tolist() == [1, 1]
            assert torch.equal(result.out, batch(team.rank)[0])
            # Each has seen the whole call of the other, and goes on without it.
            told(f"whole {team.rank}").touch()
            wait_for(f"whole {1 - team.rank}")


def suspected() -> None:
    """A rank that the program does not reach is parted after the error bound, united again, and never loses its place."""
    with warpverbs.Team(deadline=10, join_timeout=LONG) as team:
        moe = warpverbs.Moe(team, "suspected", **SHAPE)
        call = moe.call()
        with warpverbs.Group(team, moe, lease=5.0, error=0.2) as members:
            members.wait("serving", LONG)
            assert one_call(call, team.rank).active.tolist() == [1, 1]
            for wrong in (team.rank, 2, -1, 1 << 32):
                with pytest.raises(warpverbs.Refused, match=f"rank {wrong} cannot be suspected here"):
                    members.suspect(wrong, "by chance")
            # The time that the caller has waited, and not that of the last look for Ctrl-C.
            with pytest.raises(warpverbs.TimeoutError, match=r"the rank is Serving after (\d{3}\.\dms|\d+\.\ds), not Expelled"):
                members.wait("expelled", 0.3)
            team.barrier("whole")
            if team.rank == 0:
                members.suspect(1, "so says the test")
                events = [words for _, words in members.events()]
                assert "suspected: rank 1 is suspected: so says the test" in events, events
            until = time.monotonic() + LONG
            while True:
                result, report, view = one_call(call, team.rank), call.report(), members.view
                # Both know the same views, and so end after the same call: in the view that unites the pair.
                if view is not None and 1 < view.epoch == report.epoch and not view.parted and report.call >= view.first + 3:
                    break
                assert time.monotonic() < until, members.events()
            assert view.members == {0: 1, 1: 1}
            assert (result.active.tolist(), result.token_valid.tolist()) == ([1, 1], [1, 1])
            assert torch.equal(result.out, batch(team.rank)[0])
            counted = members.counters
            assert (counted.partings, counted.unions, counted.parted) == (1, 1, 0), counted
            # Neither leaves while the other makes its last call.
            team.barrier("united")


def bounds() -> None:
    """Each bound of a group is the one that was given: ranks that give others hear of all, and one that is too short is refused."""
    with warpverbs.Team(deadline=1, join_timeout=LONG) as team:
        moe = warpverbs.Moe(team, "bounded", **SHAPE)
        short: dict[str, tuple[float, str]] = {
            "stall": (3.0, "stall_bound is 3s; it must be at least 4s"),
            "promise": (3.0, "promise_bound is 3s; it must be at least 4s"),
            "error": (-1.0, "error is -1 seconds; it must be a positive number"),
            "found": (float("nan"), "found is NaN seconds; it must be a positive number"),
        }
        for name, (value, words) in short.items():
            with pytest.raises(warpverbs.Refused, match=words):
                warpverbs.Group(team, moe, lease=2.0, **{name: value})
        team.barrier("refused")
        given = {"stall": 30.0, "error": 3.0 + team.rank, "promise": 20.0, "found": 0.5}
        if team.rank == 0:
            with warpverbs.Group(team, moe, lease=2.0, **given) as members:
                # Without `found` it would wait for rank 1 as long as the team does.
                members.wait("serving", LONG / 2)
                told("serves").touch()
                wait_for("differs")
        else:
            wait_for("serves")
            words = "stall_bound 30s, error_bound 4s, promise_bound 20s, found_bound 500ms, and others have .* error_bound 3s"
            with pytest.raises(warpverbs.GroupError, match=words):
                warpverbs.Group(team, moe, lease=2.0, **given)
            told("differs").touch()
        # Rank 0 has had a group, and so waits for no rank after its block.
        team.close()


def aborted() -> None:
    """A thread ends the wait of another thread's call, and every later wait of the rank, also after a new deadline."""
    with warpverbs.Team(deadline=FOREVER, join_timeout=LONG) as team:
        call = warpverbs.Moe(team, "aborted", **SHAPE).call()
        one_call(call, team.rank)
        team.barrier("whole")
        if team.rank == 0:
            main = threading.get_ident()

            def ends() -> None:
                while not waits_in(main, "_ended"):
                    time.sleep(0.005)
                team.abort()

            thread = threading.Thread(target=ends)
            thread.start()
            for _ in range(3):
                call.dispatch(*batch(0))
                with pytest.raises(warpverbs.MoeError, match=r"ended with aborted.*rank 1: ended by the host") as raised:
                    call.check()
                assert 1 in raised.value.ranks
                thread.join()
                team.set_deadline(FOREVER)
        team.barrier("aborted")


def deadlines_of_a_team() -> None:
    """A team's deadline is that of the layers that are made after it, and of none before."""
    with warpverbs.Team(deadline=FOREVER, join_timeout=LONG) as team:
        before = warpverbs.Moe(team, "before", **SHAPE)
        for wrong in (0, -1.0, float("nan"), 1e9):
            with pytest.raises(warpverbs.Refused, match="it must be positive and below"):
                team.set_deadline(wrong)
        team.set_deadline(0.2)
        call = warpverbs.Moe(team, "behind", **SHAPE).call()
        team.barrier("made")
        if team.rank == 0:
            call.dispatch(*batch(0))
            report = call.report()
            assert (report.complete, report.ranks, report.phase) == (False, (1,), 1), report
            assert "no word before the deadline" in report.text
            # Tells when this rank has waited for longer than the new deadline.
            threading.Timer(2.0, told("waited").touch).start()
        else:
            wait_for("waited")
        call = before.call()
        assert torch.equal(one_call(call, team.rank).out, batch(team.rank)[0])
        call.check()
        team.barrier("whole")


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
    with pytest.raises(warpverbs.MoeError, match="hidden is 64 at rank 0 but 128 at rank 1"):
        warpverbs.Moe(team, "other", hidden=64 * (team.rank + 1), experts=4, top_k=2, max_tokens=4)
    team.close()
