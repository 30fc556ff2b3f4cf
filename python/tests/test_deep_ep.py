"""`warpverbs.deep_ep`: the low-latency calls against plain torch, what they promise beside, and the table of their arguments."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import arguments
import low_latency
import pytest
import silent

import warpverbs
from warpverbs import deep_ep
from warpverbs.deep_ep.utils import envs

FULL = bool(os.environ.get("WV_TEST_FULL"))
#: How many combinations are left out of each run of so many ranks, and seeds of each.
GRID = {2: (1, 200), 4: (1, 200), 5: (1, 200)} if FULL else {2: (1, 1), 4: (5, 1), 5: (7, 1)}


@pytest.mark.parametrize("ranks", GRID)
def test_every_combination_of_arguments_gives_what_plain_torch_says(run_ranks, ranks):
    step, seeds = GRID[ranks]
    ran = run_ranks(ranks, "low_latency:grid", str(step), str(seeds)).check()
    assert json.loads(ran.lines[-1]) == -(-len(low_latency.combinations()) // step) * seeds


@pytest.mark.parametrize("ranks", [2, 4] if FULL else [2])
def test_packets_that_are_lost_and_out_of_order_change_no_bit(run_ranks, monkeypatch, ranks):
    monkeypatch.setenv("SOFTHCA_ORDER", "flush")
    step, seeds = (1, 5) if FULL else (13, 1)
    ran = run_ranks(ranks, "low_latency:grid", str(step), str(seeds), sim=("--fault", "drop=1%,reorder=1%")).check()
    assert json.loads(ran.lines[-1]) == -(-len(low_latency.combinations()) // step) * seeds


@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_combinations_of_arguments_leave_masked_ranks_out(run_ranks, ranks):
    step = 1 if FULL else 5
    ran = run_ranks(ranks, "low_latency:masked_grid", str(step)).check()
    assert json.loads(ran.lines[-1]) == -(-len(low_latency.combinations()) // 2 // step)


@pytest.mark.parametrize("function", ["hooks", "batches", "shapes", "one_memory", "nothing_is_converted"])
def test_two_ranks(run_ranks, function):
    run_ranks(2, f"low_latency:{function}").check()


@pytest.mark.parametrize("shrink", ["shrink", "no shrink"])
def test_a_rank_that_stops_is_masked_or_named(run_ranks, shrink):
    run_ranks(2, "low_latency:one_stops", shrink).check()


def test_a_masked_rank_is_in_no_result_until_it_is_taken_back(run_ranks):
    run_ranks(4, "low_latency:masks").check()


def test_buffers_come_and_go_and_leave_nothing(run_ranks):
    run_ranks(1, "low_latency:many_buffers", "10000" if FULL else "1000").check()


def test_a_forked_child_is_refused(run_ranks):
    run_ranks(1, "low_latency:forked").check()


def test_the_memory_of_a_zero_copy_combine_is_read_behind_its_dispatch(run_ranks):
    run_ranks(1, "low_latency:set_of_a_gpu").check()


#: What the README says of an argument, and how a call with it ends.
CALLS = {
    "Buffer": deep_ep.Buffer.__init__,
    **{
        name: getattr(deep_ep.Buffer, name)
        for name in (
            "low_latency_dispatch",
            "low_latency_combine",
            "get_low_latency_rdma_size_hint",
            "clean_low_latency_buffer",
            "get_next_low_latency_combine_buffer",
            "low_latency_update_mask_buffer",
            "low_latency_query_mask_buffer",
            "get_local_buffer_tensor",
            "warm_up",
            "set_num_sms",
            "get_dispatch_config",
            "get_combine_config",
            "get_dispatch_layout",
            "dispatch",
            "combine",
        )
    },
    "Config": deep_ep.Config.__init__,
    "EventOverlap": deep_ep.EventOverlap.__init__,
    "current_stream_wait": deep_ep.EventOverlap.current_stream_wait,
    "init_dist": envs.init_dist,
}
#: Calls that are refused as a whole.
NORMAL = ("get_dispatch_layout", "dispatch", "combine")


def rows_of_the_table() -> dict[tuple[str, str], str]:
    return arguments.rows_of("DeepEP's names")


def test_the_table_has_every_argument_and_no_other():
    assert set(rows_of_the_table()) == arguments.arguments_of(CALLS)


@pytest.fixture(scope="module")
def told(run_ranks):
    return json.loads(run_ranks(1, "low_latency:refused").check().lines[-1])


#: What is refused although its argument is used, and the class of the error.
OTHERS = {
    "Buffer deadline": ("Refused", "deadline is 0"),
    "Buffer low_latency_mode": ("NotImplementedError", "serves DeepEP's normal mode alone, which is not here yet"),
    "Buffer colour": ("ignored", "is unknown"),
    "Buffer colour red": ("TypeError", "unknown argument colour='red'"),
    "Buffer group": ("ValueError", "group is None"),
    "destroy": ("Refused", "explicitly_destroy=True"),
    "mask": ("Refused", "enable_shrink=True"),
    "low_latency_dispatch use_ue8m0": ("Refused", "round_scale=True"),
    "low_latency_dispatch both": ("Refused", "async_finish and return_recv_hook"),
    "low_latency_dispatch many tokens": ("Refused", "max_tokens of the layer is 1"),
    "low_latency_dispatch maxT None": ("Refused", "num_max_dispatch_tokens_per_rank is None; it must be a whole number, 1 to 65534"),
    "low_latency_dispatch maxT 16.0": ("Refused", "num_max_dispatch_tokens_per_rank is 16.0; it must be a whole number"),
    "low_latency_dispatch gradient": ("Refused", "x requires a gradient, and the low-latency calls have none"),
    "low_latency_dispatch f32": ("Refused", "x holds f32; it must hold bf16"),
    "low_latency_dispatch f32 ids": ("Refused", "topk_idx holds f32; it must hold i32 or i64"),
    "low_latency_dispatch statistics": ("Refused", "cumulative_local_expert_recv_stats has the shape [99]"),
    "low_latency_combine y": ("Refused", "y has the shape [1, 8, 1024]"),
    "low_latency_combine gradient": ("Refused", "x requires a gradient, and the low-latency calls have none"),
    "low_latency_combine weights": ("Refused", "topk_weights holds f64"),
    "low_latency_combine out": ("Refused", "out has the shape [1, 1]"),
    "internode_dispatch": ("NotImplementedError", "normal mode"),
    "internode_combine": ("NotImplementedError", "normal mode"),
    "dispatch_pcie": ("NotImplementedError", "normal mode"),
    "combine_pcie": ("NotImplementedError", "normal mode"),
    "get_dispatch_layout": ("NotImplementedError", "normal mode"),
    "dispatch": ("NotImplementedError", "normal mode"),
    "combine": ("NotImplementedError", "normal mode"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_is_said_in_words(told, name):
    kind, words = OTHERS[name]
    assert told[name][0] == kind, told[name]
    assert words in told[name][1], told[name]


def test_arguments_are_refused_and_ignored_as_the_table_says(told):
    for (call, argument), what in rows_of_the_table().items():
        name = f"{call} {argument}"
        if call in NORMAL:
            kind, words = told[call]
            assert (what, kind, "normal mode" in words) == ("refused", "NotImplementedError", True), (name, told[call])
        elif what == "refused":
            kind, words = told[name]
            assert (kind, argument in words) == ("NotImplementedError", True), (name, told[name])
        elif what == "ignored" and call != "clean_low_latency_buffer":
            kind, words = told[name]
            assert (kind, f"{call}({argument}=" in words, words.count("is ignored")) == ("ignored", True, 1), (name, told[name])
            # The log says it once.
            assert told[f"{name} again"] == ["used", ""], (name, told[f"{name} again"])
    assert told["low_latency_combine all again"] == ["used", ""]


def test_elastic_buffers_are_not_there():
    assert not hasattr(deep_ep, "ElasticBuffer")
    assert deep_ep.topk_idx_t.is_signed
    config = deep_ep.Buffer.get_dispatch_config(8)
    assert config.get_nvl_buffer_size_hint(7168 * 2, 8) > 0 == config.get_rdma_buffer_size_hint(7168 * 2, 8)
    assert deep_ep.Buffer.get_low_latency_rdma_size_hint(128, 7168, 8, 256) > deep_ep.Buffer.get_low_latency_rdma_size_hint(
        128, 7168, 8, 256, 1
    )


INSTALLED = """
import importlib.util
from warpverbs import deep_ep as own
own.install()
import deep_ep
from deep_ep import Buffer, Config, EventOverlap
from deep_ep.utils import EventOverlap as same
from deep_ep.utils.envs import init_dist
assert deep_ep is own and same is EventOverlap and Buffer is own.Buffer
assert importlib.util.find_spec("deep_ep") is not None
own.install()
"""
REAL = """
import sys, types
sys.modules["deep_ep"] = types.ModuleType("deep_ep")
from warpverbs import Refused, deep_ep
try:
    deep_ep.install()
except Refused as error:
    assert "a module deep_ep is imported already" in str(error), error
else:
    raise AssertionError("it was replaced")
"""


@pytest.mark.parametrize("program", [INSTALLED, REAL], ids=["alone", "beside a real one"])
def test_install_gives_the_name_unless_it_is_taken(run_ranks, program):
    silent.runs(run_ranks, program)


WHEELS = Path(__file__).parents[2] / "target" / "python" / "wheels"
NAMED = """
import deep_ep
from deep_ep import Buffer, Config, EventOverlap
from deep_ep.utils.envs import init_dist
from warpverbs import deep_ep as own
assert deep_ep is own and Buffer is own.Buffer
"""
BESIDE = """
try:
    import deep_ep
except ImportError as error:
    assert "a real DeepEP are both installed (the module deep_ep_cpp)" in str(error), error
else:
    raise AssertionError("it was imported")
"""


@pytest.mark.parametrize(("program", "real"), [(NAMED, False), (BESIDE, True)], ids=["alone", "beside a real one"])
def test_the_wheel_owns_the_name_and_nothing_native(run_ranks, tmp_path, program, real):
    (wheel,) = WHEELS.glob("warpverbs_as_deep_ep-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        metadata = next(packed.read(name).decode() for name in names if name.endswith("METADATA"))
        packed.extractall(tmp_path)
    assert [name for name in names if ".dist-info/" not in name] == ["deep_ep/__init__.py", "deep_ep/py.typed"]
    assert f"Requires-Dist: warpverbs=={warpverbs.__version__}" in metadata
    if real:
        (tmp_path / "deep_ep_cpp.py").write_text("")
    silent.runs(run_ranks, program, tmp_path)
