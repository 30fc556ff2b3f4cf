"""How ranks come to their buffers: by `init_dist`, and by a store of their own."""

from __future__ import annotations

import os
import random
import socket
import time
from pathlib import Path
from typing import Any

import groups
import pytest
import torch
import torch.distributed as dist

import warpverbs
from warpverbs import deep_ep
from warpverbs.deep_ep.utils import envs

LONG = groups.LONG
MOST, HIDDEN, EXPERTS = 4, 128, 4


def whole(buffer: deep_ep.Buffer) -> None:
    """Each token goes to an expert of the first rank and one of the last, and comes back."""
    x = torch.ones(MOST, HIDDEN, dtype=torch.bfloat16)
    ids, weights = torch.tensor([[0, 3]] * MOST), torch.full((MOST, 2), 0.5, dtype=torch.float32)
    rows, _, handle, _, _ = buffer.low_latency_dispatch(x, ids, MOST, EXPERTS, use_fp8=False)
    assert torch.equal(buffer.low_latency_combine(rows, ids, weights, handle)[0], x)


def port_of_all(rank: int) -> int:
    """A port that rank 0 has found free and told the others."""
    told = Path(os.environ["WARPVERBS_STORE"].removeprefix("file://"), "port")
    if rank == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        written = told.with_suffix(".new")
        written.write_text(str(port))
        written.rename(told)
    until = time.monotonic() + LONG
    while not told.exists():
        assert time.monotonic() < until, "rank 0 has not told its port"
        time.sleep(0.005)
    return int(told.read_text())


def by_init_dist(of: str) -> None:
    """Two ranks of one node, or of two, get a group of all from the start of DeepEP's programs. Its tensors of a GPU lie on the CPU."""
    rank = int(os.environ["WARPVERBS_RANK"])
    port = port_of_all(rank)
    for name in ("WARPVERBS_STORE", "WARPVERBS_RANK", "WARPVERBS_RANKS"):
        del os.environ[name]
    nodes = 2 if of == "two nodes" else 1
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(nodes), RANK=str(rank if nodes == 2 else 0))
    local = (0, 1) if nodes == 2 else (rank, 2)
    got = envs.init_dist(*local, seed=7, timeout=LONG)
    assert got[:2] == (rank, 2)
    group = got[2]
    assert group is not dist.group.WORLD
    assert (dist.get_backend(group), dist.get_rank(group), dist.get_world_size(group)) == ("gloo", rank, 2)
    # The seeds of this rank.
    assert (envs.get_global_seed(), envs.get_local_seed(), torch.initial_seed()) == (7, 7 + rank, 7 + rank)
    assert random.random() == random.Random(7 + rank).random()
    # The defaults that DeepEP's programs rely on.
    assert torch.get_default_dtype() == torch.bfloat16
    made = torch.ones(3, device="cuda")
    others = [
        torch.zeros(2, device=torch.device("cuda", 0), dtype=torch.int32),
        torch.arange(4, device=f"cuda:{rank}"),
        torch.empty_like(made, device="cuda"),
        made.cuda(),
        made.to("cuda"),
        made.to(torch.device("cuda")),
        made.to(device="cuda", dtype=torch.float32),
    ]
    assert {str(each.device) for each in (made, *others)} == {"cpu"}
    assert made.cuda() is made
    assert others[-1].dtype == torch.float32
    buffer = deep_ep.Buffer(group, low_latency_mode=True, deadline=LONG, warm_deadline=LONG, join_timeout=LONG)
    assert (buffer.rank, buffer.group_size) == (rank, 2)
    whole(buffer)
    dist.barrier()
    dist.destroy_process_group()


def buffer_in(store: str, group: Any) -> deep_ep.Buffer:
    return deep_ep.Buffer(group, low_latency_mode=True, deadline=600, warm_deadline=600, join_timeout=LONG, store=store)


def by_a_store() -> None:
    """The ranks of a buffer meet in the store that it names, where one that ends its program tells the other at once."""
    place = f"{os.environ['WARPVERBS_STORE']}/own"
    folder = Path(place.removeprefix("file://"))
    folder.mkdir(0o700, exist_ok=True)
    rank, _ = groups.start()
    buffer = buffer_in(place, dist.group.WORLD)
    assert list(folder.iterdir()), "the store has what the ranks have said"
    whole(buffer)
    with pytest.raises(warpverbs.Refused, match=rf"store is '{place}/other', and the buffers of this group .* before have '{place}'"):
        buffer_in(f"{place}/other", dist.group.WORLD)
    whole(deep_ep.Buffer(dist.group.WORLD, low_latency_mode=True))
    with pytest.raises(warpverbs.TeamError, match=r"the store 'memory://' .* is not file://DIRECTORY or etcd"):
        buffer_in("memory://", dist.new_group([0, 1]))
    dist.barrier()
    if rank == 1:
        return
    with pytest.raises(warpverbs.RankLost, match=r"rank 1 failed: its process has ended without closing the team.*missed in") as lost:
        whole(buffer)
    assert (lost.value.ranks, lost.value.phase) == ((1,), 1)
