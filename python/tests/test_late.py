"""A rank that is late by more than a deadline costs only itself, with masks and without."""

from __future__ import annotations

from sampled import cases


@cases(
    "of,own",
    [("deep_ep", "store of the group"), ("mooncake_ep", "own store")],
    ("deep_ep", "mooncake_ep"),
    ("store of the group", "own store"),
)
def test_others_mask_the_late_rank_alone_until_masks_are_taken_back(run_ranks, of, own):
    run_ranks(4, "late:with_masks", of, own).check()


def test_without_masks_every_rank_names_the_late_one(run_ranks):
    run_ranks(4, "late:without_masks").check()


def test_calls_without_masks_that_go_on_are_whole_again(run_ranks):
    run_ranks(4, "late:goes_on").check()


def test_a_rank_that_masks_this_one_is_masked(run_ranks):
    run_ranks(4, "late:masked_back").check()
