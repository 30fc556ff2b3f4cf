"""One rank: wrong calls and their texts, memory as tensors, arrays of other libraries, forks, threads."""

from __future__ import annotations

import json

import pytest

#: The class of each refusal, and words of its text.
WRONG = {
    "dtype of x": ("Refused", "x holds f32; it must hold bf16"),
    "shape of x": ("Refused", "x has the shape [3, 32]; it must have [3, 64]"),
    "dimensions of x": ("Refused", "x has 1 dimensions; it must have 2"),
    "stride of x": ("Refused", "x is not contiguous"),
    "alignment of x": ("Refused", "it must be a multiple of 16"),
    "too many tokens": ("Refused", "x has 9 tokens; max_tokens of the layer is 8"),
    "f32 ids": ("Refused", "experts holds f32; it must hold i32 or i64"),
    "int16 ids": ("Refused", "experts holds i16; it must hold i32 or i64"),
    "shape of ids": ("Refused", "experts has the shape [3, 1]; it must have [3, 2]"),
    "no tensor": ("Refused", "x is a list; it must be a tensor"),
    "f64 weights": ("Refused", "weights holds f64; it must hold f32"),
    "shape of weights": ("Refused", "weights has the shape [2, 2]; it must have [3, 2]"),
    "scales of bf16": ("Refused", "a layer of BF16 takes none"),
    "length of active": ("Refused", "active has the shape [2]; it must have [1]"),
    "deadline": ("Refused", "deadline is 0.0 seconds"),
    "a stream on the CPU": ("Refused", "stream is 0x7; this layer runs on the CPU"),
    "bf16 with scales of fp8": ("Refused", "x holds bf16; it must hold fp8"),
    "counts of an output": ("Refused", "out.counts has the shape [5]; it must have [4]"),
    "f32 statistics": ("Refused", "out.stats holds f32; it must hold i32 or i64"),
    "a mask in place that is none": ("Refused", "active"),
    "a mask in place of combine that is none": ("Refused", "active is None with active_in_place=True"),
    "no y": ("Refused", "y is None"),
    "y and staging": ("Refused", "y is given with staging=True"),
    "max_tokens of a call beyond": ("Refused", "max_tokens of a call is 9; it must be a whole number, 1 to 8"),
    "no max_tokens of a call": ("Refused", "max_tokens of a call is 0; it must be a whole number, 1 to 8"),
    "a format of a call that is none": ("Refused", "format is 'fp4'; that of a call is one of bf16, fp8, fp8-pow2, fp8-ue8m0"),
    "a format of a call beyond": ("Refused", "Make the layer with the largest format of its calls"),
    "a deadline of combine": ("Refused", "deadline is 0.0 seconds"),
    "staging of a call of fewer tokens": ("Refused", "the layer's own memory is for calls of max_tokens 8, and this one has 4"),
    "memory of a call of fewer tokens": ("Refused", "the layer's own memory is for calls of max_tokens 8, and this one has 4"),
    "staging of sums": ("Refused", "zero-copy: needs a layer that sends rows as they are"),
    "a set that is none": ("Refused", "set is 2; it must be 0 to 1"),
    "weights at combine of sums": ("Refused", "weights of combine: needs a layer that returns every expert's row"),
    "top_k 0": ("Refused", "top-k is 0; it must be 1 to 32"),
    "hidden 65": ("Refused", "hidden is 65, which is not a multiple of 8"),
    "a format that is none": ("Refused", "format is 'fp4'"),
    "a layout that is none": ("Refused", 'layout is "token"; it must be one of expert, rank'),
    "a negative number": ("Refused", "experts is -1"),
    "a bound that is too short": ("Refused", "lease_ttl is 1ms"),
    "an unknown state": ("Refused", 'state is "happy"; it must be one of joining'),
    "a closed team": ("Refused", "the team is closed"),
    "an unknown argument": ("TypeError", "'colour'"),
    "rank alone": ("ValueError", "rank and ranks are given together"),
    "a rank beyond": ("ConfigError", "WARPVERBS_RANK"),
    "no store": ("TeamError", "store"),
    "a device that is none": ("TeamError", "mlx5_9"),
    "a GPU that is none": ("ConfigError", "seven"),
    "a depth beyond": ("ConfigError", "WARPVERBS_LOG_DEPTH"),
    "a deadline of 0": ("ValueError", "deadline is 0 seconds"),
}


#: Phases out of order, and what comes after the end of a team.
OUT_OF_ORDER = {
    "receive before a send": "dispatch_receive follows dispatch_send; the newest phase of this call is none",
    "combine first": "combine follows dispatch or dispatch_receive; the newest phase of this call is none",
    "combine send first": "combine_send follows dispatch or dispatch_receive; the newest phase of this call is none",
    "combine receive first": "combine_receive follows combine_send; the newest phase of this call is none",
    "combine of what was not received": "combine follows dispatch or dispatch_receive; the newest phase of this call is dispatch_send",
    "receive twice": "dispatch_receive follows dispatch_send; the newest phase of this call is a whole dispatch",
    "combine send twice": "combine_send follows dispatch or dispatch_receive; the newest phase of this call is combine_send",
    "combine receive twice": "combine_receive follows combine_send; the newest phase of this call is a whole combine",
    "combine of a dispatch alone": "combine follows a dispatch that was given combine=False",
    "call of a closed team": "the team of layer 'order' is closed",
    "dispatch of a closed team": "the team of layer 'order' is closed",
    "dispatch send of a closed team": "the team of layer 'order' is closed",
    "combine of a closed team": "the team of layer 'order' is closed",
}


@pytest.fixture(scope="module")
def texts(run_ranks):
    ran = run_ranks(1, "single:wrong_calls").check()
    return json.loads(ran.lines[-1])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_refused_in_words(texts, name):
    kind, words = WRONG[name]
    assert texts[name][0] == kind, texts[name]
    assert words in texts[name][1], texts[name]


def test_every_wrong_call_is_in_the_table(texts):
    assert sorted(texts) == sorted(WRONG)


def test_phases_out_of_order_and_calls_after_the_end_are_refused(run_ranks):
    told = json.loads(run_ranks(1, "single:out_of_order").check().lines[-1])
    assert sorted(told) == sorted(OUT_OF_ORDER)
    for name, words in OUT_OF_ORDER.items():
        assert told[name][0] == "Refused", (name, told[name])
        assert words in told[name][1], (name, told[name])


@pytest.mark.parametrize(
    "function",
    ["integers", "words", "logs", "staging", "arrays", "forked", "closed_with_a_report", "dropped_while_it_runs", "threads_go_on"],
)
def test_one_rank(run_ranks, function):
    run_ranks(1, f"single:{function}").check()
