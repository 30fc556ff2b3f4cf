"""Teams of process groups of torch.distributed."""

from __future__ import annotations

import signal

import figures
import pytest


def test_teams_of_several_groups_do_not_meet(run_ranks):
    run_ranks(4, "teams:subgroups").check()


@pytest.mark.parametrize("function", ["no_group", "threads", "interrupted"])
def test_two_ranks(run_ranks, function):
    run_ranks(2, f"teams:{function}").check()


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_the_keys_of_teams_go_when_all_their_ranks_have_left(run_ranks, kind):
    (line,) = run_ranks(3, "teams:many", kind).check().lines
    figures.tell(line)


def test_a_rank_that_is_killed_leaves_the_keys_of_its_team(run_ranks):
    ran = run_ranks(3, "teams:one_is_killed")
    assert ran.status % 256 == 256 - signal.SIGKILL, ran.text
    (line,) = ran.lines
    figures.tell(line)


def test_a_team_is_closed_whose_store_has_vanished(run_ranks):
    run_ranks(2, "teams:vanished_store").check()


def test_a_rank_that_never_comes_is_named_at_all_others(run_ranks):
    run_ranks(3, "teams:one_never_comes").check()


def test_a_program_without_a_group_is_told_so(run_ranks):
    run_ranks(1, "teams:without_a_group").check()
