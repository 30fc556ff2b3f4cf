"""What a layer can be made for, and what is set of it."""

from __future__ import annotations

import os

import pytest

ABANDONED = "1000" if os.environ.get("WV_TEST_FULL") else "100"


def test_a_change_of_members_does_not_wait_for_calls_that_were_abandoned(run_ranks):
    run_ranks(2, "layers:abandoned", ABANDONED).check()


@pytest.mark.parametrize(
    "function",
    [
        "abandoned_batches",
        "table",
        "policy",
        "table_of_members",
        "by_rank",
        "unweighted",
        "waits",
        "masked",
        "deadlines",
        "opaque",
        "different_shapes",
    ],
)
def test_two_ranks(run_ranks, function):
    run_ranks(2, f"layers:{function}").check()
