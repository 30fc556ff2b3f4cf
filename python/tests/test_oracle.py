"""Dispatch and combine of torch tensors give what plain torch says, at several numbers of ranks."""

from __future__ import annotations

import json
import os

import oracle
import pytest

FULL = bool(os.environ.get("WV_TEST_FULL"))
SEEDS = 200 if FULL else 3


@pytest.mark.parametrize("ranks", [1, 2, 4, 5] if FULL else [2, 5])
def test_every_case_gives_what_plain_torch_says(run_ranks, ranks):
    ran = run_ranks(ranks, "oracle:grid", str(SEEDS)).check()
    told = [json.loads(line) for line in ran.lines]
    assert [each["case"] for each in told] == list(range(len(oracle.CASES))), ran.text
