"""``wv chaos --buffer``: what its ranks find in their sums."""

from __future__ import annotations

import pytest
import torch

from warpverbs import _chaos

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
