"""``wv chaos --buffer``: what its ranks find in their sums, and a run of each Buffer."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from warpverbs import _chaos, sim

RANKS = 4


@pytest.fixture
def batch() -> _chaos.Batch:
    return _chaos.Batch(seed=1, call=7, rank=2, ranks=RANKS, tokens=16, hidden=64)


@pytest.mark.parametrize("seen", [(), (2,), (0, 2), (0, 1, 2, 3)])
def test_sums_say_whose_experts_they_hold(batch, seen):
    wanted = frozenset(seen)
    likely = frozenset(range(RANKS))
    assert batch.seen(batch.sums(wanted), likely, RANKS) == wanted
    assert batch.seen(batch.sums(wanted), wanted, RANKS) == wanted


def test_sums_that_no_ranks_explain_are_wrong(batch):
    sums = batch.sums(frozenset(range(RANKS)))
    sums[3, 5] += 1
    assert batch.seen(sums, frozenset(range(RANKS)), RANKS) is None


def test_a_token_is_lost_once_by_all_ranks_whose_experts_it_lacks(batch):
    assert batch.losses(frozenset(range(RANKS)), str) == []
    losses = batch.losses(frozenset({2}), lambda rank: f"cause {rank}")
    lacking = [set(homes) - {2} for homes in batch.homes.tolist()]
    assert sum(loss["tokens"] for loss in losses) == sum(map(bool, lacking))
    for loss in losses:
        assert loss["of"] == sorted(loss["of"])
        assert loss["tokens"] == sum(lacks == set(loss["of"]) for lacks in lacking)
        assert loss["causes"] == [f"cause {rank}" for rank in loss["of"]]


def test_the_same_call_has_the_same_tokens_at_every_rank():
    one, same, other = (_chaos.Batch(1, call, 0, RANKS, 16, 64) for call in (7, 7, 8))
    assert torch.equal(one.x, same.x)
    assert torch.equal(one.experts, same.experts)
    assert not torch.equal(one.x, other.x)


#: Status of a run of which the machine starved too many calls for a verdict on tokens.
NOT_JUDGED = 3


@pytest.mark.parametrize("names", ["deep-ep", "mooncake-ep"])
def test_deeds_cost_the_healthy_ranks_of_a_buffer_no_token(names):
    full = "WV_TEST_FULL" in os.environ
    seed, deeds = (int.from_bytes(os.urandom(4), "little"), 60) if full else (7, 3)
    print(f"seed {seed}")
    run = ["--buffer", names, "--python", sys.executable, "--ranks", "4", "--minutes", "20", "--deeds", str(deeds), "--seed", str(seed)]
    command = [str(sim.PREFIX / "bin" / "wv"), "chaos", *run, "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1500, check=False)
    assert ran.returncode in (0, NOT_JUDGED), (seed, ran.stdout[-2000:], ran.stderr[-4000:])
    assert json.loads(ran.stdout)["deeds"] == deeds, (seed, ran.stdout)
