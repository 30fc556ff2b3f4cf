"""A rank is killed under buffers, without masks and with them."""

from __future__ import annotations

import pytest
from sampled import cases


@pytest.mark.parametrize("of", ["deep_ep", "mooncake_ep"])
@pytest.mark.parametrize("what", ["dispatch", "dispatch hook", "combine", "combine hook"])
def test_a_rank_that_is_killed_is_named_with_its_phase(run_ranks, what, of):
    run_ranks(3, "killed:before", what, of).check()


@pytest.mark.parametrize("of", ["deep_ep", "mooncake_ep"])
@pytest.mark.parametrize("first", ["old", "new", "warm_up"])
def test_ranks_that_are_left_make_new_shapes_among_themselves(run_ranks, first, of):
    run_ranks(3, "killed:new_shapes", of, first).check()


@pytest.mark.parametrize("of", ["deep_ep", "mooncake_ep"])
def test_without_masks_the_first_call_of_a_new_shape_names_the_dead_rank(run_ranks, of):
    run_ranks(3, "killed:new_shape_without_masks", of).check()


def test_a_rank_that_others_went_on_without_hears_so(run_ranks):
    run_ranks(3, "killed:left_out").check()


@cases("of,what", [("deep_ep", "dispatch"), ("mooncake_ep", "combine")], ("deep_ep", "mooncake_ep"), ("dispatch", "combine"))
def test_with_masks_the_others_do_not_wait_for_their_deadline(run_ranks, of, what):
    run_ranks(4, "killed:masked", of, what).check()
