"""How processes end, and who needs the GIL.

``exits.py RANKS STORE FUNCTION`` calls a function at each rank, sends Ctrl-C to all ranks if it is ``interrupted``, and prints as JSON
how each process has ended and how many seconds after the first end, or after Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ranks
import torch

import warpverbs

#: Ends a hang: longest life of a process behind the first end, seconds. Deadlines of calls are longer.
LONG = 60.0
DEADLINE = 600.0
SHAPE: dict[str, Any] = {"hidden": 64, "experts": 6, "top_k": 2, "max_tokens": 4}


class Rank:
    """A rank that has made one good call."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        self.team = warpverbs.Team(deadline=deadline, join_timeout=LONG)
        self.moe = warpverbs.Moe(self.team, "layer", **SHAPE)
        self.call = self.moe.call()
        self.batch = (torch.ones(2, 64, dtype=torch.bfloat16), torch.tensor([[0, 5], [2, 3]], dtype=torch.int32))
        self.call.combine(self.call.dispatch(*self.batch).x)
        self.call.check()

    def ready(self) -> None:
        """This rank is about to wait, or to end."""
        Path(os.environ["WARPVERBS_STORE"].removeprefix("file://"), f"ready {self.team.rank}").touch()

    def in_vain(self) -> None:
        """A call that rank 0 takes no part in, and what is told of it."""
        told = ""
        try:
            self.call.combine(self.call.dispatch(*self.batch).x)
            self.call.check()
        except warpverbs.Error as error:
            told = f"{type(error).__name__}: {error}"
        print(f"rank {self.team.rank}: {told}", file=sys.stderr, flush=True)
        # Rank 0, or one that has ended since for want of rank 0.
        assert "rank 0" in told or "has ended without closing the team" in told
        raise SystemExit(3)


kept: list[Any] = []


def interpreter_exit() -> None:
    """Rank 0 ends as a program does that closes nothing, and the others wait for it."""
    rank = Rank()
    kept.append(rank)
    if rank.team.rank:
        rank.in_vain()


def vanishes() -> None:
    """Rank 0 ends without a word in the middle of a step. Without a group, a QP that fails tells of that, or the deadline."""
    rank = Rank(deadline=20)
    if rank.team.rank:
        rank.in_vain()
    rank.call.dispatch(*rank.batch)
    os._exit(7)


def raises() -> None:
    """Rank 0 raises in the middle of a step."""
    rank = Rank()
    with rank.team as team:
        if team.rank:
            rank.in_vain()
        rank.call.dispatch_send(*rank.batch)
        raise ZeroDivisionError("by chance")


def interrupted() -> None:
    """Every rank waits for another one, each in another call, and gets Ctrl-C; rank 2 has no block that closes its team."""
    rank = Rank()
    if rank.team.rank == 2:
        rank.ready()
        rank.call.dispatch(*rank.batch)
    with rank.team as team:
        rank.ready()
        if team.rank == 0:
            team.barrier("never")
        # Rank 0 sends nothing.
        rank.call.dispatch_send(*rank.batch)
        rank.call.dispatch_receive()
    raise AssertionError("the wait has ended")


def ends(number: int, store: str, name: str) -> list[tuple[int, float]]:
    """Status of each rank, and seconds; a process that lives too long is killed."""
    shared = {
        "WARPVERBS_RANKS": str(number),
        "WARPVERBS_STORE": f"file://{store}",
        "WARPVERBS_GPU": os.environ.get("WARPVERBS_GPU", "simt"),
    }
    os.environ["OMP_NUM_THREADS"] = "1"
    running = {ranks.begin(each, shared, f"exits:{name}", []): each for each in range(number)}
    found: dict[int, tuple[int, float]] = {}
    since = None
    until = time.monotonic() + 2 * LONG
    if name == "interrupted":
        await_all = [Path(store, f"ready {each}") for each in range(number)]
        wait_until(lambda: all(path.exists() for path in await_all), until)
        since = time.monotonic()
        for child in running:
            os.kill(child, signal.SIGINT)
    while running:
        ended, how = os.waitpid(-1, os.WNOHANG)
        now = time.monotonic()
        if ended:
            since = since or now
            found[running.pop(ended)] = (os.waitstatus_to_exitcode(how), now - since)
        elif now > until or (since is not None and now > since + LONG):
            for child in running:
                os.kill(child, signal.SIGKILL)
        else:
            time.sleep(0.005)
    return [found[each] for each in range(number)]


def wait_until(there: Callable[[], bool], until: float) -> None:
    while not there():
        assert time.monotonic() < until, "not all ranks have come so far"
        time.sleep(0.005)


if __name__ == "__main__":
    print(json.dumps(ends(int(sys.argv[1]), sys.argv[2], sys.argv[3])))
