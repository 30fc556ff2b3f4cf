"""How ranks come to their buffers."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("of", ["one node", "two nodes"])
def test_init_dist_makes_the_group_of_all_ranks_and_its_defaults(run_ranks, of):
    run_ranks(2, "starts:by_init_dist", of).check()


def test_a_buffer_meets_in_its_store_and_reads_of_ended_ranks(run_ranks):
    run_ranks(2, "starts:by_a_store").check()
