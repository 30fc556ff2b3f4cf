"""Ranks whose arguments differ under buffers: every rank learns which, masks or not, and no mask changes."""

from __future__ import annotations

from sampled import cases

BUFFERS, MASKS = ("deep_ep", "mooncake_ep"), ("masked", "without masks")
#: Each of both.
SOME = [("deep_ep", "masked"), ("mooncake_ep", "without masks")]


@cases(
    "of,masked,what",
    # Each pair of values.
    [
        ("deep_ep", "masked", "maxT"),
        ("deep_ep", "without masks", "FP8"),
        ("mooncake_ep", "masked", "FP8"),
        ("mooncake_ep", "without masks", "maxT"),
    ],
    BUFFERS,
    MASKS,
    ("maxT", "FP8"),
)
def test_another_shape_of_a_call_is_named_by_every_rank(run_ranks, of, masked, what):
    run_ranks(4, "differing:shapes", of, masked, what).check()


@cases("of,masked", SOME, BUFFERS, MASKS)
def test_a_rank_without_rows_of_the_odd_one_learns_it_from_others(run_ranks, of, masked):
    run_ranks(4, "differing:without_rows", of, masked).check()


@cases("of,masked", SOME, BUFFERS, MASKS)
def test_other_experts_after_ten_calls_are_named_at_both_ends(run_ranks, of, masked):
    run_ranks(4, "differing:other_layer", of, masked).check()


@cases("of,masked", SOME, BUFFERS, MASKS)
def test_a_first_call_that_differs_is_named_and_may_be_made_again(run_ranks, of, masked):
    run_ranks(4, "differing:first_use", of, masked).check()


def test_a_rank_that_its_own_buffer_refuses_is_not_masked_by_others(run_ranks):
    run_ranks(4, "differing:refused_alone").check()


def test_a_call_of_a_layer_says_it_when_it_is_checked(run_ranks):
    run_ranks(4, "differing:raw").check()
