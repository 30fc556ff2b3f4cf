"""Processes end, whatever they or their peers do, and no thread that keeps a rank alive needs the GIL."""

from __future__ import annotations

import json
import os

import pytest
from figures import tell

FULL = bool(os.environ.get("WV_TEST_FULL"))


#: The status of rank 0, and of the others: 3 has named rank 0.
@pytest.mark.parametrize(
    ("function", "first", "others"),
    [("interpreter_exit", 0, 3), ("vanishes", 7, 3), ("vanishes_before_a_barrier", 7, 3), ("raises", 1, 3), ("interrupted", -2, -2)],
)
@pytest.mark.parametrize("meet", ["file", "c10d"])
def test_every_process_ends(run_ranks, function, first, others, meet):
    ended = run_ranks(0, "exits:ends", "3", function, meet).check()
    ends = json.loads(ended.lines[-1])
    over, gone = (max(each[place] for each in ends) for place in (1, 2))
    what = f"{function}, {meet}: {over:.3f} s after the first end or Ctrl-C the last program was over"
    tell(f"{what}, and after {gone:.3f} s its process was gone")
    assert [status for status, *_ in ends] == [first, others, others], ended.text


def test_a_rank_that_holds_the_gil_beyond_its_lease_keeps_its_place(run_ranks):
    run_ranks(2, "gil:held", *(("2", "10") if FULL else ("1", "4"))).check()


@pytest.mark.parametrize("function", ["eight_threads", "eight_buffers", "one_at_a_time", "hook", "freed"])
def test_two_ranks(run_ranks, function):
    run_ranks(2, f"gil:{function}").check()


def test_threads_that_share_a_buffer_get_right_sums_or_are_refused(run_ranks):
    run_ranks(1, "gil:many_on_one").check()


def test_buffers_that_were_dropped_leave_nothing_behind(run_ranks):
    ran = run_ranks(0, "gil:dropped_beside_the_store", "10000" if FULL else "300").check()
    tell(ran.lines[-1])
