"""Process groups for ranks that `ranks.py` has started: gloo, or another backend, over a TCPStore that rank 0 holds."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch.distributed as dist

#: Ends a hang.
LONG = 60.0
_TIMEOUT = datetime.timedelta(seconds=LONG)


def start(name: str = "world", backend: str = "gloo") -> tuple[int, int]:
    """Makes the group of all processes; returns rank and ranks. Variables that would bring a team up elsewhere are taken away. Rank 0
    holds the store, if ``GROUPS_HELD`` does not say that another process does, with :func:`hold`."""
    folder = Path(os.environ.pop("WARPVERBS_STORE").removeprefix("file://"))
    rank, ranks = int(os.environ.pop("WARPVERBS_RANK")), int(os.environ.pop("WARPVERBS_RANKS"))
    if rank == 0 and "GROUPS_HELD" not in os.environ:
        store = hold(folder, ranks, name)
    else:
        port_of = folder / f"port of {name}"
        until = time.monotonic() + LONG
        while not port_of.exists():
            assert time.monotonic() < until, "the holder of the store has not written its port"
            time.sleep(0.005)
        store = dist.TCPStore("127.0.0.1", int(port_of.read_text()), ranks, False, timeout=_TIMEOUT)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=_TIMEOUT)
    return rank, ranks


def hold(folder: Path, ranks: int, name: str = "world") -> Any:
    """Holds the store in this process and writes its port to a file. A process that holds a store must not fork: the child may copy a
    lock that the store's thread holds at that moment, and wait for it forever."""
    store = dist.TCPStore("127.0.0.1", 0, ranks, True, timeout=_TIMEOUT, wait_for_workers=False)
    port_of = folder / f"port of {name}"
    written = port_of.with_suffix(".new")
    written.write_text(str(store.port))
    written.rename(port_of)
    return store


def finish() -> None:
    """All ranks end together: rank 0 holds the store."""
    dist.barrier()
    dist.destroy_process_group()


@contextmanager
def world() -> Iterator[Any]:
    """The group of all processes, which all leave together."""
    start()
    yield dist.group.WORLD
    finish()
