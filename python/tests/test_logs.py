"""Processes end well while the runtime still has something to tell."""

from __future__ import annotations

import json

import pytest


@pytest.mark.parametrize("function", ["first_word_at_the_end", "first_word_after_the_end", "slow_handler"])
def test_a_process_that_tells_something_at_its_end_ends_well(run_ranks, function):
    times = 2 if function == "slow_handler" else 8
    ended = json.loads(run_ranks(0, "logs:ends", function, str(times)).check().lines[-1])
    assert [status for status, *_ in ended] == [0] * times, ended
    assert all(error == "" for *_, error in ended), ended
    if function == "first_word_at_the_end":
        assert all(any("not connected" in words for words in told) for _, told, _ in ended), ended
