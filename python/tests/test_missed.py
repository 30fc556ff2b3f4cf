"""A call that has missed a rank, or whose own tokens are refused, says so itself."""

from __future__ import annotations

import pytest
from sampled import cases


def test_a_combine_that_misses_a_rank_raises_itself(run_ranks):
    run_ranks(4, "missed:late_in_combine").check()


def test_a_check_names_what_the_last_dispatch_has_missed(run_ranks):
    run_ranks(4, "missed:last_dispatch").check()


@cases(
    "of,masked",
    [("deep_ep", "without masks"), ("mooncake_ep", "masked")],
    ("deep_ep", "mooncake_ep"),
    ("without masks", "masked"),
)
def test_tokens_that_are_refused_cost_no_other_rank_its_buffer(run_ranks, of, masked):
    run_ranks(4, "missed:refused", of, masked).check()


@pytest.mark.parametrize("phase", ["dispatch", "combine"])
def test_a_hook_that_is_dropped_with_its_memory_blocks_no_call(run_ranks, phase):
    run_ranks(4, "missed:dropped_hook", phase).check()


@pytest.mark.parametrize("what", ["call", "barrier", "layer"])
def test_ranks_that_wait_for_one_that_has_closed_its_team_hear_it(run_ranks, what):
    run_ranks(4, "missed:closed", what).check()


def test_a_batch_is_not_combined_again_where_its_rows_have_other_places(run_ranks):
    run_ranks(4, "missed:again_without_a_rank").check()


def test_experts_that_ranks_do_not_divide_lie_as_the_buffer_says(run_ranks):
    run_ranks(3, "missed:divided").check()
