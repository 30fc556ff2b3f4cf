"""A rank is killed under buffers without masks."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("of", ["deep_ep", "mooncake_ep"])
@pytest.mark.parametrize("what", ["dispatch", "dispatch hook", "combine", "combine hook"])
def test_a_rank_that_is_killed_is_named_with_its_phase(run_ranks, what, of):
    run_ranks(3, "killed:before", what, of).check()
