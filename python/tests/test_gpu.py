"""The oracle on tensors of a GPU: streams, graphs, memory of every kind. The steps themselves run on the CPU, too."""

from __future__ import annotations

import json

import pytest
import torch
from figures import tell

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="torch finds no GPU: on a machine with one, in a venv with the wheel and `pip install torch pytest numpy`, pytest test_gpu.py",
)

#: NCCL refuses two ranks on one GPU.
needs_two_gpus = pytest.mark.skipif(
    torch.cuda.device_count() < 2,
    reason="torch finds fewer than two GPUs, and NCCL wants one for each rank: on a machine with two, pytest test_gpu.py",
)


@pytest.fixture
def on_gpu(run_ranks, monkeypatch):
    """As ``run_ranks``, for two ranks on GPUs, in processes that have not used one before."""
    monkeypatch.setenv("WARPVERBS_GPU", "auto")

    def run(function: str, *arguments: str):
        return run_ranks(2, f"on_gpu:{function}", *arguments, sim=("--devices", "1")).check()

    return run


@pytest.mark.parametrize("steps", [("streams", "here"), ("zero_copy",), ("backend", "cpu:gloo")])
def test_the_steps_are_right_on_the_cpu(run_ranks, steps):
    function, *arguments = steps
    run_ranks(2, f"on_gpu:{function}", *arguments).check()


@needs_gpu
@pytest.mark.parametrize("which", ["here", "beside"])
def test_calls_run_in_the_stream_of_the_caller(on_gpu, which):
    on_gpu("streams", which)


@needs_gpu
@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_graph_of_calls_is_replayed_with_other_tokens(on_gpu, calls):
    on_gpu("graph", str(calls))


@needs_gpu
def test_combine_takes_the_rows_of_its_own_call_in_place(on_gpu):
    on_gpu("zero_copy")


@needs_two_gpus
@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_ranks_meet_through_the_store_of_a_group_of_nccl(on_gpu, backend):
    on_gpu("backend", backend)


@needs_gpu
@pytest.mark.parametrize("kind", ["pool", "expandable segments"])
def test_memory_of_every_kind_serves(on_gpu, monkeypatch, kind):
    if kind != "pool":
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    on_gpu("memory", kind)


@needs_gpu
def test_what_a_call_costs(on_gpu):
    took = json.loads(on_gpu("timed").lines[-1])
    tell(f"{took:,.0f} ns for a dispatch and its combine of {torch.cuda.get_device_name()}, on software HCAs")
