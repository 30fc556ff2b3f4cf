"""Several ranks: groups, ranks that fail or never come."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    "function",
    [
        "group",
        "in_place",
        "founders",
        "suspected",
        "bounds",
        "aborted",
        "deadlines_of_a_team",
        "one_raises",
        "one_never_comes",
        "other_shape",
    ],
)
def test_two_ranks(run_ranks, function):
    run_ranks(2, f"several:{function}").check()
