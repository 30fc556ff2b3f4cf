"""Ranks that are stopped while HCAs send to them: what calls of the others have no memory for."""

from __future__ import annotations

import itertools

import pytest

import warpverbs

BUFFERS = pytest.mark.parametrize("of", ["deep_ep", "mooncake_ep"])


@pytest.mark.parametrize("links", ["0", "1"])
def test_a_layer_has_send_buffers_for_links_that_may_fail(run_ranks, links):
    run_ranks(4, "stopped:pool", links).check()


@BUFFERS
def test_a_call_sends_from_other_memory_while_its_own_is_read(run_ranks, of):
    run_ranks(4, "stopped:zero_copy", of).check()


@BUFFERS
def test_calls_without_a_send_buffer_are_counted_and_mask_no_rank(run_ranks, of):
    run_ranks(4, "stopped:exhausted", of).check()


def test_each_link_that_may_fail_takes_two_send_buffers():
    shape = {"hidden": 64, "experts": 4, "top_k": 2, "max_tokens": 8}
    bytes = [warpverbs.Moe.required_bytes(4, failing_links=links, **shape)["staging"] for links in range(15)]
    (each,) = {more - less for less, more in itertools.pairwise(bytes)}
    # BF16 without the headers of rows.
    assert each >= 2 * 8 * 64 * 2
    assert warpverbs.Moe.required_bytes(4, **shape)["staging"] == bytes[1]
    with pytest.raises(warpverbs.Refused, match="failing_links is 15; it must be 0 to 14"):
        warpverbs.Moe.required_bytes(4, failing_links=15, **shape)
