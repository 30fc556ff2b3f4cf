"""What stands beside the calls of DeepEP's names: events with what they keep, tuning, and numbers of SMs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
import torch

from warpverbs import deep_ep


class Counted(deep_ep.EventHandle):
    """An event that counts how often a stream waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def current_stream_wait(self) -> None:
        super().current_stream_wait()
        self.waits += 1


def test_an_event_is_waited_for_again_until_it_is_released():
    event = Counted()
    overlap = deep_ep.EventOverlap(event)
    overlap.current_stream_wait()
    overlap.current_stream_wait()
    assert (overlap.event, event.waits) == (event, 2)
    overlap.current_stream_wait(release_handle=True)
    assert (overlap.event, event.waits) == (None, 3)
    with pytest.raises(AssertionError, match="there is no event: the call was made without async_finish"):
        overlap.current_stream_wait()


def test_a_block_waits_at_its_end_and_releases_where_it_was_asked():
    event = Counted()
    overlap = deep_ep.EventOverlap(event)
    with overlap:
        assert event.waits == 0
    assert (overlap.event, event.waits) == (event, 1)
    with overlap(release_handle=True) as same:
        assert same is overlap
        assert event.waits == 1
    assert (overlap.event, event.waits) == (None, 2)
    # It has nothing to wait for then, and what was asked of one block is not asked of the next.
    with overlap:
        pass
    overlap.event = event
    with overlap:
        pass
    assert (overlap.event, event.waits) == (event, 3)


def test_a_block_that_raises_waits_too():
    event = Counted()
    with pytest.raises(ZeroDivisionError), deep_ep.EventOverlap(event)(release_handle=True):
        raise ZeroDivisionError
    assert event.waits == 1


def test_tensors_are_kept_until_their_event_is_released():
    tensor = torch.zeros(4)
    gone, overlap = weakref.ref(tensor), deep_ep.EventOverlap(Counted(), (tensor,))
    del tensor
    overlap.current_stream_wait()
    gc.collect()
    assert gone() is not None
    overlap.current_stream_wait(release_handle=True)
    gc.collect()
    assert gone() is None
    assert overlap.extra_tensors is None


def test_a_hook_runs_once_behind_the_wait_and_another_one_is_refused():
    event = Counted()
    overlap, told = deep_ep.EventOverlap(event), []
    overlap.register_hook_after_wait(lambda: told.append(event.waits))
    with pytest.raises(AssertionError, match="a hook is registered already"):
        overlap.register_hook_after_wait(lambda: told.append(-1))
    overlap.current_stream_wait()
    overlap.current_stream_wait()
    assert told == [1]
    overlap.register_hook_after_wait(lambda: told.append(event.waits))
    with overlap(release_handle=True):
        assert told == [1]
    assert told == [1, 3]


@pytest.fixture
def num_sms() -> Iterator[None]:
    before = deep_ep.Buffer.num_sms
    yield
    deep_ep.Buffer.num_sms = before


@pytest.mark.usefixtures("num_sms")
def test_numbers_of_sms_are_kept_for_configurations_and_must_be_even():
    assert deep_ep.Buffer.is_sm90_compiled()
    assert deep_ep.Buffer.get_combine_config(8).num_sms == 20
    deep_ep.Buffer.set_num_sms(24)
    assert [of(8).num_sms for of in (deep_ep.Buffer.get_dispatch_config, deep_ep.Buffer.get_combine_config)] == [24, 24]
    for wrong in (3, -2):
        with pytest.raises(ValueError, match=f"new_num_sms is {wrong}; it must be even, and not negative"):
            deep_ep.Buffer.set_num_sms(wrong)
    assert deep_ep.Buffer.num_sms == 24


def test_configurations_are_those_of_deep_ep_for_the_ranks_that_it_knows():
    combine = deep_ep.Buffer.get_combine_config(8)
    # The last number is the next multiple of the one before.
    assert repr(combine) == "Config(20, 4, 256, 6, 132)"
    assert combine.get_rdma_buffer_size_hint(7168 * 2, 8) == 0
    # DeepEP's formulas by hand, 10 channels: 8 ranks by NVLink; 16 ranks are 2 by RDMA.
    token = 7168 * 2 + 8 + 128 * 12 + 128 * 4
    assert combine.get_nvl_buffer_size_hint(7168 * 2, 8) == -(-10 * 8 * ((2 * 1 + 3) * 4 + 256 * token) // 128) * 128
    wide = deep_ep.Buffer.get_combine_config(16)
    assert wide.get_rdma_buffer_size_hint(7168 * 2, 16) == -(-10 * 2 * 2 * (18 * 4 + 132 * (token + 16)) // 128) * 128
    for of in (deep_ep.Buffer.get_combine_config, deep_ep.Buffer.get_dispatch_config):
        with pytest.raises(ValueError, match="num_ranks is 7; it must be one of 2, 4, 8, 16"):
            of(7)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((-1,), "num_sms is -1; it must not be negative"),
        ((20, 0), "num_max_nvl_chunked_send_tokens is 0; it must be positive"),
        ((20, 256, 256), "num_max_nvl_chunked_recv_tokens is 256; it must be more than num_max_nvl_chunked_send_tokens, 256"),
        ((20, 6, 256, 0), "num_max_rdma_chunked_send_tokens is 0; it must be positive"),
        ((20, 6, 256, 6, 6), "num_max_rdma_chunked_recv_tokens is 6; it must be at least twice num_max_rdma_chunked_send_tokens, 12"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(numbers, words):
    with pytest.raises(ValueError, match=words):
        deep_ep.Config(*numbers)
