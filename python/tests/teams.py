"""Teams of process groups."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import groups
import pytest
import torch
import torch.distributed as dist

import warpverbs

SHAPE: dict[str, Any] = {"hidden": 64, "experts": 4, "top_k": 2, "max_tokens": 4}


def one_call(moe: warpverbs.Moe) -> None:
    """Every rank sends one token to each of two experts, which give it back."""
    call = moe.call()
    ranks = moe.team.ranks
    x = torch.full((1, 64), float(moe.team.rank + 1), dtype=torch.bfloat16)
    experts = torch.tensor([[0, 4 - 1]], dtype=torch.int32)
    got = call.dispatch(x, experts, torch.full((1, 2), 0.5))
    call.check()
    assert int(got.counts.sum()) == ranks * sum(number in moe.local_experts() for number in (0, 3))
    result = call.combine(got.x)
    call.check()
    assert torch.equal(result.out, x)


def subgroups() -> None:
    """A process is in the teams of several groups at once, and they do not meet; teams of one group follow each other."""
    rank, ranks = groups.start()
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    alone = [dist.new_group([each]) for each in range(ranks)]
    own = halves[rank // 2]
    with warpverbs.Team.from_group(join_timeout=groups.LONG) as world:
        assert (world.rank, world.ranks) == (rank, 4)
        # The ranks of a group are numbered in it.
        with warpverbs.Team.from_group(own, join_timeout=groups.LONG) as half:
            assert (half.rank, half.ranks) == (rank % 2, 2)
            # Of the same names in both teams, and in both halves.
            layers = [warpverbs.Moe(team, "layer", **SHAPE) for team in (world, half)]
            for team in (world, half):
                team.barrier("same")
            for layer in layers:
                one_call(layer)
        with warpverbs.Team.from_group(own, join_timeout=groups.LONG) as again:
            one_call(warpverbs.Moe(again, "layer", **SHAPE))
        with warpverbs.Team.from_group(alone[rank]) as single:
            one_call(warpverbs.Moe(single, "layer", **SHAPE))
        with pytest.raises(warpverbs.Refused, match="is not in the process group"):
            warpverbs.Team.from_group(halves[1 - rank // 2])
    groups.finish()


def no_group() -> None:
    """A store of c10d carries no leases, so a Group refuses its team and names stores that do. Such a store is taken with its run id."""
    place = os.environ["WARPVERBS_STORE"]
    rank, _ = groups.start()
    with warpverbs.Team.from_group(join_timeout=groups.LONG) as team:
        moe = warpverbs.Moe(team, "layer", **SHAPE)
        with pytest.raises(warpverbs.Refused, match=r"process group '.*' .*c10d.* no leases.*file://DIRECTORY or etcd://"):
            warpverbs.Group(team, moe)
        one_call(moe)
        team.check()
    if rank == 0:
        os.mkdir(f"{place}/own".removeprefix("file://"), 0o700)
    dist.barrier()
    with warpverbs.Team.from_group(store=f"{place}/own", join_timeout=groups.LONG) as team:
        moe = warpverbs.Moe(team, "layer", **SHAPE)
        with warpverbs.Group(team, moe) as members:
            members.wait("serving", groups.LONG)
            team.barrier("serving")
    groups.finish()


def _keys() -> int:
    store = dist.distributed_c10d._get_default_store()
    return int(store.num_keys())


def many(kind: str) -> None:
    """Teams of one group, one after the other: what they have written into its store goes with each. Where it is a file, the ranks meet
    in that."""
    if kind == "file":
        place = os.environ["WARPVERBS_STORE"].removeprefix("file://")
        rank, ranks = int(os.environ["WARPVERBS_RANK"]), int(os.environ["WARPVERBS_RANKS"])
        for name in ("STORE", "RANK", "RANKS"):
            del os.environ[f"WARPVERBS_{name}"]
        dist.init_process_group("gloo", store=dist.FileStore(f"{place}/keys", ranks), rank=rank, world_size=ranks)
    else:
        rank, ranks = groups.start()
    dist.barrier()
    before = _keys()
    dist.barrier()
    kept: list[Any] = []
    after: list[int] = []
    for number in range(20):
        with warpverbs.Team.from_group(join_timeout=groups.LONG) as team:
            during = _keys()
            if number % 5 == 0:
                # One that lives longer than its team keeps no key.
                kept.append(warpverbs.Moe(team, "layer", **SHAPE))
                one_call(kept[-1])
            team.barrier("middle")
        dist.barrier()
        after.append(_keys())
        assert during > after[-1], (number, during, after)
        dist.barrier()
    # How many teams each rank has made.
    assert after == [before + ranks] * 20, (before, after)
    if rank == 0:
        print(f"{kind}: {before} keys before the first team, {during} during the last, {after[0]} after one, {after[-1]} after 20")
    groups.finish()


def one_is_killed() -> None:
    """A rank that is killed has not left, so no key of its team goes. Those that are left make another team, whose keys go."""
    rank, _ = groups.start()
    store = dist.distributed_c10d._get_default_store()
    team = warpverbs.Team.from_group(join_timeout=groups.LONG)
    team.barrier("all")
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)

    def meet(steps: int) -> None:
        """The two that are left have both done so many steps."""
        store.add("steps", 1)
        while store.add("steps", 0) < 2 * steps:
            time.sleep(0.005)

    meet(1)
    during = _keys()
    meet(2)
    team.close()
    meet(3)
    # Each has been counted, below one key.
    behind = _keys()
    assert behind == during + 1, (behind, during)
    meet(4)
    given = (None, None, None, None, None, groups.LONG)
    other = warpverbs.Team._from_group(None, given, [0, 1], {})
    other.barrier("both")
    more = _keys()
    meet(5)
    other.close()
    meet(6)
    assert _keys() == behind < more, (_keys(), behind, more)
    # Rank 0 holds the store, so it goes last.
    if rank == 1:
        store.add("steps", 1)
        os._exit(0)
    meet(7)
    # Flushed: this process ends without the handlers of its exit.
    print(f"{during} keys before two of three ranks have left, {behind} after it", flush=True)
    os._exit(0)


def vanished_store() -> None:
    """Where the store has ended with the rank that held it, the others close their teams all the same."""
    rank, _ = groups.start()
    team = warpverbs.Team.from_group(join_timeout=groups.LONG)
    team.barrier("all")
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        store.wait(["met"])
        os._exit(0)
    store.set("met", "")

    def ask() -> None:
        while True:
            store.add("is there", 1)

    with pytest.raises(RuntimeError):
        ask()
    end = team.close()
    assert end is not None
    assert not end.leaked
    os._exit(0)


def one_never_comes() -> None:
    """A rank of the group that makes no team is named at all others."""
    rank, _ = groups.start()
    if rank != 1:
        with pytest.raises(warpverbs.Error, match="rank 1 has not come"):
            warpverbs.Team.from_group(join_timeout=2)
    groups.finish()


def threads() -> None:
    """A team is used from any thread of Python: the store is called on the thread that makes the call."""
    groups.start()
    made_by: list[Any] = []

    def work(body: Any) -> None:
        thread = threading.Thread(target=lambda: made_by.append(body()))
        thread.start()
        thread.join()

    work(lambda: warpverbs.Team.from_group(join_timeout=groups.LONG))
    team = made_by[0]
    work(lambda: warpverbs.Moe(team, "layer", **SHAPE))
    one_call(made_by[1])
    team.barrier("main")
    work(lambda: team.barrier("close"))
    team.close()
    groups.finish()


class Interrupted(BaseException):
    pass


def interrupted() -> None:
    """Ctrl-C, or what a handler of a signal raises, ends the wait for other ranks as what it is."""
    rank, _ = groups.start()

    def handler(*_: object) -> None:
        raise Interrupted

    if rank == 0:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        start = time.monotonic()
        with pytest.raises(Interrupted):
            warpverbs.Team.from_group(join_timeout=groups.LONG)
        assert time.monotonic() - start < groups.LONG
    groups.finish()


def without_a_group() -> None:
    with pytest.raises(warpverbs.Refused, match="there is no process group"):
        warpverbs.Team.from_group()
