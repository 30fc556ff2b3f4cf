"""Teams of process groups of torch.distributed."""

from __future__ import annotations

import pytest


def test_teams_of_several_groups_do_not_meet(run_ranks):
    run_ranks(4, "teams:subgroups").check()


@pytest.mark.parametrize("function", ["no_group", "threads", "interrupted"])
def test_two_ranks(run_ranks, function):
    run_ranks(2, f"teams:{function}").check()


def test_a_rank_that_never_comes_is_named_at_all_others(run_ranks):
    run_ranks(3, "teams:one_never_comes").check()


def test_a_program_without_a_group_is_told_so(run_ranks):
    run_ranks(1, "teams:without_a_group").check()
