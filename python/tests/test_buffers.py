"""Buffers of DeepEP's names: dropped, without a rank, with what is not theirs, and captured too early."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import warpverbs
from warpverbs import Team
from warpverbs.deep_ep import _layers


@pytest.mark.parametrize("what", ["combine", "hook"])
def test_a_rank_that_is_lost_is_named_by_the_combine(run_ranks, what):
    run_ranks(2, "buffers:lost_in", what).check()


@pytest.mark.parametrize("hooks", ["hooks", "no hooks"])
@pytest.mark.parametrize("what", ["dispatch", "combine"])
def test_a_rank_that_waits_for_a_late_one_counts_more_than_that_one(run_ranks, tmp_path, what, hooks):
    run_ranks(2, "buffers:late", what, hooks, str(tmp_path)).check()


@pytest.mark.parametrize("function", ["handles", "collected"])
def test_two_ranks(run_ranks, function):
    run_ranks(2, f"buffers:{function}").check()


@pytest.mark.parametrize("masks", ["masks", "no masks"])
def test_a_layer_that_one_rank_had_no_memory_for_is_made_later(run_ranks, masks):
    run_ranks(4, "buffers:out_of_memory", masks).check()


def test_the_first_dispatch_waits_longer(run_ranks, tmp_path):
    run_ranks(2, "buffers:warm_deadline", str(tmp_path / "waited")).check()


def test_a_group_without_a_store_is_refused(run_ranks):
    run_ranks(1, "buffers:without_a_store").check()


def test_a_first_shape_inside_a_capture_is_refused_before_touching_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    team = cast(Team, SimpleNamespace(ranks=2, on_cpu=False))
    shape = _layers.Shape(4, 128, 4, 2, "bf16")
    with pytest.raises(warpverbs.Refused, match=r"first call of the shape .*max_tokens=4, hidden=128.* capture.*warm_up"):
        _layers.can_be_made(team, shape)
    # A shape that cannot be is refused as that, and outside of a capture all is well.
    with pytest.raises(warpverbs.Refused, match="hidden is 65"):
        _layers.can_be_made(team, shape._replace(hidden=65))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    made: Any = _layers.can_be_made(team, shape)
    assert made is None


@pytest.mark.parametrize("make", [lambda: Team(0, 2), Team.from_group, lambda: Team.rejoin(0, 2)])
def test_a_team_inside_a_capture_is_refused_before_any_rank_hears_of_it(monkeypatch, make):
    for asked in ("is_initialized", "is_current_stream_capturing"):
        monkeypatch.setattr(torch.cuda, asked, lambda: True)
    with pytest.raises(warpverbs.Refused, match=r"inside a CUDA graph capture.* before the capture"):
        make()
