"""How processes end, and which threads need the GIL.

:func:`ends` calls a function at each rank, and sends Ctrl-C to all ranks if it is ``interrupted``. It prints as JSON how each process has
ended. It also prints two times from the first end, or from Ctrl-C: until the process left its own code, and until it was gone. Between
the two Python takes torch and the other modules apart."""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import groups
import ranks
import torch

import warpverbs
from warpverbs import team

#: Ends a hang: longest life of a process after the first end, seconds. Deadlines of calls are longer.
LONG = 60.0
DEADLINE = 600.0
SHAPE: dict[str, Any] = {"hidden": 64, "experts": 6, "top_k": 2, "max_tokens": 4}


def folder(name: str) -> Path:
    """A file that all ranks see."""
    return Path(os.environ["EXITS_FOLDER"], name)


class Rank:
    """A rank that has made one good call."""

    def __init__(self, deadline: float = DEADLINE) -> None:
        if os.environ.get("EXITS_MEET") == "c10d":
            groups.start()
            self.team = warpverbs.Team.from_group(deadline=deadline, join_timeout=LONG)
        else:
            self.team = warpverbs.Team(deadline=deadline, join_timeout=LONG)
        self.moe = warpverbs.Moe(self.team, "layer", **SHAPE)
        self.call = self.moe.call()
        self.batch = (torch.ones(2, 64, dtype=torch.bfloat16), torch.tensor([[0, 5], [2, 3]], dtype=torch.int32))
        self.call.combine(self.call.dispatch(*self.batch).x)
        self.call.check()
        # What is registered first runs last.
        atexit.unregister(team._end_all)
        atexit.register(leaves)
        atexit.register(team._end_all)

    def ready(self) -> None:
        """This rank is about to wait, or to end."""
        folder(f"ready {self.team.rank}").touch()

    def await_others(self) -> None:
        """Waits until all other ranks are ready: their first step may need this process until then."""
        others = [folder(f"ready {each}") for each in range(self.team.ranks) if each != self.team.rank]
        wait_until(lambda: all(path.exists() for path in others), time.monotonic() + LONG)

    def in_vain(self) -> None:
        """A call in which rank 0 takes no part, and its error."""
        self.ready()
        told = ""
        try:
            self.call.combine(self.call.dispatch(*self.batch).x)
            self.call.check()
        except warpverbs.Error as error:
            told = f"{type(error).__name__}: {error}"
        print(f"rank {self.team.rank}: {told}", file=sys.stderr, flush=True)
        # Rank 0, or one that has ended since for want of rank 0.
        assert "rank 0" in told or "has ended" in told
        raise SystemExit(3)


kept: list[Any] = []


def interpreter_exit() -> None:
    """Rank 0 ends as a program does that closes nothing, and the others wait for it."""
    rank = Rank()
    kept.append(rank)
    if rank.team.rank:
        rank.in_vain()
    rank.await_others()


def vanishes() -> None:
    """Rank 0 ends without a word in the middle of a step."""
    rank = Rank()
    if rank.team.rank:
        rank.in_vain()
    rank.await_others()
    rank.call.dispatch(*rank.batch)
    os._exit(7)


def vanishes_before_a_barrier() -> None:
    """The same where rank 1 waits in a barrier, and rank 2 makes a layer together with the others."""
    rank = Rank()
    told = ""
    if rank.team.rank == 0:
        rank.await_others()
        os._exit(7)
    rank.ready()
    try:
        if rank.team.rank == 1:
            rank.team.barrier("never")
        warpverbs.Moe(rank.team, "another", **SHAPE)
    except warpverbs.Error as error:
        told = f"{type(error).__name__}: {error}"
    print(f"rank {rank.team.rank}: {told}", file=sys.stderr, flush=True)
    # Rank 0, or one that has ended since for want of rank 0.
    assert "has ended: its process" in told
    raise SystemExit(3)


def raises() -> None:
    """Rank 0 raises in the middle of a step."""
    rank = Rank()
    with rank.team as own:
        if own.rank:
            rank.in_vain()
        rank.await_others()
        rank.call.dispatch_send(*rank.batch)
        raise ZeroDivisionError("by chance")


def interrupted() -> None:
    """Every rank waits for another one, each in another call, and gets Ctrl-C; rank 2 has no block that closes its team."""
    # A shell that has started this in the background has left it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rank = Rank()
    if rank.team.rank == 2:
        rank.ready()
        rank.call.dispatch(*rank.batch)
    with rank.team as own:
        rank.ready()
        if own.rank == 0:
            own.barrier("never")
        # Rank 0 sends nothing.
        rank.call.dispatch_send(*rank.batch)
        rank.call.dispatch_receive()
    raise AssertionError("the wait has ended")


def leaves() -> None:
    """This rank's program is over, and what the package does at the end of Python is done."""
    folder(f"left {os.getpid()}").write_text(str(time.monotonic()))


def ends(store: str, ranks_wanted: str, name: str, meet: str) -> None:
    """Prints the status of each rank, and seconds; a process that lives too long is killed. Ranks meet in a directory (``file``), or
    in the store of a process group (``c10d``), which this process holds, as torchrun does."""
    number = int(ranks_wanted)
    shared = {**ranks.shared(number, store), "EXITS_FOLDER": store, "EXITS_MEET": meet}
    if meet == "c10d":
        shared["GROUPS_HELD"] = "1"
    os.environ["OMP_NUM_THREADS"] = "1"
    running = {ranks.begin(each, shared, f"exits:{name}", [], finalize=True): each for each in range(number)}
    if meet == "c10d":
        kept.append(groups.hold(Path(store), number))
    found: dict[int, tuple[int, float, float]] = {}
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
            left = Path(store, f"left {ended}")
            over = float(left.read_text()) if left.exists() else now
            found[running.pop(ended)] = (os.waitstatus_to_exitcode(how), max(over - since, 0.0), now - since)
        elif now > until or (since is not None and now > since + LONG):
            for child in running:
                os.kill(child, signal.SIGKILL)
        else:
            time.sleep(0.005)
    print(json.dumps([found[each] for each in range(number)]))


def wait_until(there: Callable[[], bool], until: float) -> None:
    while not there():
        assert time.monotonic() < until, "not all ranks have come so far"
        time.sleep(0.005)
