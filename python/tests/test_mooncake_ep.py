"""`warpverbs.mooncake_ep` against plain torch, what it promises beside, and the table of its arguments."""

from __future__ import annotations

import json
import os

import arguments
import mooncake_calls
import pytest
import silent

from warpverbs import deep_ep, mooncake_ep

FULL = bool(os.environ.get("WV_TEST_FULL"))
#: How many combinations are left out of each run of so many ranks, and seeds of each.
GRID = {2: (1, 200), 4: (1, 200), 5: (1, 200)} if FULL else {2: (1, 1), 4: (5, 1)}


@pytest.mark.parametrize("ranks", GRID)
def test_every_combination_of_arguments_gives_what_plain_torch_says(run_ranks, ranks):
    step, seeds = GRID[ranks]
    ran = run_ranks(ranks, "mooncake_calls:grid", str(step), str(seeds)).check()
    assert json.loads(ran.lines[-1]) == -(-len(mooncake_calls.combinations()) // step) * seeds


@pytest.mark.parametrize("ranks", [2, 4] if FULL else [2])
def test_packets_that_are_lost_and_out_of_order_change_no_bit(run_ranks, monkeypatch, ranks):
    monkeypatch.setenv("SOFTHCA_ORDER", "flush")
    step, seeds = (1, 5) if FULL else (7, 1)
    ran = run_ranks(ranks, "mooncake_calls:grid", str(step), str(seeds), sim=("--fault", "drop=1%,reorder=1%")).check()
    assert json.loads(ran.lines[-1]) == -(-len(mooncake_calls.combinations()) // step) * seeds


def test_two_micro_batches_are_in_flight_and_no_third(run_ranks):
    run_ranks(2, "mooncake_calls:batches").check()


def test_a_combine_has_a_bound_of_its_own(run_ranks):
    run_ranks(2, "mooncake_calls:combine_is_late").check()


def test_a_masked_rank_is_in_no_result_until_it_is_taken_back(run_ranks):
    run_ranks(4, "mooncake_calls:masks").check()


def test_ranks_that_die_are_cleared_and_the_others_go_on(run_ranks):
    ran = run_ranks(4, "mooncake_calls:two_die").check()
    assert "dispatch receive of call 2 in epoch 1, rank 3" in ran.text


def test_a_rank_that_has_died_is_started_again_and_all_is_whole(run_ranks):
    run_ranks(2, "mooncake_calls:comes_back").check()


CALLS = {
    "Buffer": mooncake_ep.Buffer.__init__,
    **{
        name: getattr(mooncake_ep.Buffer, name)
        for name in (
            "dispatch",
            "combine",
            "get_ep_buffer_size_hint",
            "get_next_combine_buffer",
            "update_ep_member",
            "warm_up",
        )
    },
}


def rows_of_the_table() -> dict[tuple[str, str], str]:
    return arguments.rows_of("Mooncake's names")


def test_the_table_has_every_argument_and_no_other():
    assert set(rows_of_the_table()) == arguments.arguments_of(CALLS)


#: How calls end, and what they say.
TOLD = {
    "Buffer num_ep_buffer_bytes": ("ignored", "Buffer(num_ep_buffer_bytes=1048576)"),
    "Buffer num_ep_buffer_bytes again": ("used", ""),
    "Buffer disable_p2p": ("Refused", "disable_p2p is True, and the buffers of this group that were made before have False"),
    "Buffer deadline": ("Refused", "deadline is 0 seconds; it must be positive and below 10^9"),
    "Buffer rejoin": ("Refused", "rejoin is given without store"),
    "Buffer run_id": ("Refused", "run_id is given without store"),
    "Buffer store": ("TeamError", "the store 'memory://' (WARPVERBS_STORE) is not file://DIRECTORY or etcd"),
    "Buffer colour": ("ignored", "is unknown"),
    "Buffer colour red": ("TypeError", "unknown argument colour='red'; it knows those of Mooncake EP"),
    "Buffer group": ("ValueError", "group is None"),
    "Buffer other group": ("Refused", "is not in the process group"),
    "update_ep_member": ("Refused", "make the Buffer with store=file://DIRECTORY or etcd://HOST:PORT/PREFIX"),
    "dispatch both": ("Refused", "async_finish and return_recv_hook are both set"),
    "dispatch no time": ("Refused", "timeout_us is 0; it must be positive and below 10^15, or -1"),
    "dispatch less than no time": ("Refused", "timeout_us is -2"),
    "dispatch all the time": ("Refused", "timeout_us is 1000000000000000"),
    "dispatch active length": ("Refused", "active_ranks has the shape [3]; it must have [2]"),
    "dispatch active i64": ("Refused", "active_ranks holds i64; it must hold i32"),
    "dispatch active list": ("Refused", "active_ranks is a list; it must be a tensor of torch, i32 [2], or None"),
    "dispatch active strides": ("Refused", "active_ranks is not contiguous, and is written in place"),
    "dispatch active elsewhere": ("Refused", "active_ranks is on meta; the team runs on the CPU"),
    "dispatch many tokens": ("Refused", "max_tokens of the layer is 1"),
    "dispatch too many tokens": ("Refused", "num_max_dispatch_tokens_per_rank is 65536; it must be a whole number, 1 to 65534"),
    "dispatch f32": ("Refused", "x holds f32; it must hold bf16"),
    "dispatch three dimensions": ("Refused", "x must be a tensor [tokens, hidden]"),
    "dispatch strides": ("Refused", "x is not contiguous"),
    "dispatch odd hidden": ("Refused", "hidden is 100, which is not a multiple of 8"),
    "dispatch f32 ids": ("Refused", "topk_idx holds f32; it must hold i32 or i64"),
    "dispatch one dimension of ids": ("Refused", "topk_idx must be a tensor [tokens, choices]"),
    "dispatch fewer ids": ("Refused", "topk_idx has 3 rows, and x has 4"),
    "dispatch colour": ("ignored", "is unknown"),
    "dispatch colour red": ("TypeError", "unknown argument colour='red'"),
    "combine both": ("Refused", "async_finish and return_recv_hook are both set"),
    "combine no time": ("Refused", "timeout_us is 0"),
    "combine active length": ("Refused", "active_ranks has the shape [1]; it must have [2]"),
    "combine handle": ("Refused", "handle is a tuple; pass what dispatch has returned"),
    "combine other handle": ("Refused", "handle is of a buffer of another process group"),
    "combine other ids": ("Refused", "topk_idx is not that of the dispatch of batch 1"),
    "combine y": ("Refused", "y has the shape [1, 16, 1024]; it must have [4, 16, 1024]"),
    "combine no y": ("Refused", "x is None; pass what the experts made, or zero_copy=True"),
    "combine f32 y": ("Refused", "y holds f32; it must hold bf16"),
    "combine weights": ("Refused", "topk_weights holds f64; it must hold f32"),
    "combine out": ("Refused", "out has the shape [1, 1]; it must have [4, 1024]"),
    "combine colour red": ("TypeError", "unknown argument colour='red'"),
    "destroyed": ("Refused", "the buffer was destroyed"),
}


@pytest.fixture(scope="module")
def told(run_ranks):
    return json.loads(run_ranks(2, "mooncake_calls:refused").check().lines[-1])


def test_every_wrong_call_is_here(told):
    assert set(told) == set(TOLD)


@pytest.mark.parametrize("name", TOLD)
def test_what_cannot_be_is_said_in_words(told, name):
    kind, words = TOLD[name]
    assert told[name][0] == kind, told[name]
    assert words in told[name][1], told[name]


def test_what_the_table_ignores_is_logged():
    ignored = {argument for (_, argument), what in rows_of_the_table().items() if what == "ignored"}
    logged = {argument for argument in ignored for kind, words in TOLD.values() if kind == "ignored" and argument in words}
    assert ignored == logged


def test_a_size_hint_is_that_of_the_same_layer():
    hint = mooncake_ep.Buffer.get_ep_buffer_size_hint(128, 7168, 8, 256)
    assert hint == deep_ep.Buffer.get_low_latency_rdma_size_hint(128, 7168, 8, 256) > 0
    assert hint > mooncake_ep.Buffer.get_ep_buffer_size_hint(128, 7168, 8, 256, 1)


INSTALLED = """
import importlib.util, sys
from warpverbs import mooncake_ep as own
own.install()
from mooncake.mooncake_ep_buffer import Buffer, EventOverlap
import mooncake.mooncake_ep_buffer
assert mooncake.mooncake_ep_buffer is own and Buffer is own.Buffer
assert importlib.util.find_spec("mooncake.mooncake_ep_buffer") is not None
assert importlib.util.find_spec("mooncake") is not None
assert importlib.util.find_spec("mooncake.pg") is None
own.install()
"""
BESIDE = """
from warpverbs import mooncake_ep as own
own.install()
import mooncake.pg
from mooncake.mooncake_ep_buffer import Buffer
import mooncake_calls
assert mooncake.pg.REAL and mooncake.REAL
assert Buffer is own.Buffer is mooncake.mooncake_ep_buffer.Buffer
"""
TAKEN = """
import mooncake.mooncake_ep_buffer
from warpverbs import Refused, mooncake_ep
try:
    mooncake_ep.install()
except Refused as error:
    assert "a module mooncake.mooncake_ep_buffer is imported already" in str(error), error
else:
    raise AssertionError("it was replaced")
"""


@pytest.mark.parametrize(("program", "real"), [(INSTALLED, False), (BESIDE, True), (TAKEN, True)], ids=["alone", "beside", "taken"])
def test_install_gives_the_name_and_leaves_the_rest_of_mooncake(run_ranks, tmp_path, program, real):
    if real:
        (tmp_path / "mooncake").mkdir()
        for name in ("__init__", "pg", "mooncake_ep_buffer"):
            (tmp_path / "mooncake" / f"{name}.py").write_text("REAL = True\n")
    silent.runs(run_ranks, program, tmp_path)
