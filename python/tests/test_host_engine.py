"""Host engines: what they move, what they hold, and what they refuse."""

from __future__ import annotations

import json

import pytest

#: The class of each refusal, and words of its text.
WRONG = {
    "no name": ("ConfigError", "length of the name of an engine is 0; it must be 1 to 255"),
    "an argument that is none": ("TypeError", "'colour'"),
    "a setting of a team": ("TypeError", "'windows'"),
    "9 QPs": ("ConfigError", "WARPVERBS_ENGINE_QPS is '9'; it must be a number from 1 to 8"),
    "9 rails": ("ConfigError", "WARPVERBS_ENGINE_RAILS is '9'; it must be a number from 1 to 8"),
    "more rails than QPs": ("ConfigError", "a connection has 2 QPs for 3 RDMA devices"),
    "a fragment longer than a slice": ("ConfigError", "a fragment of 4097 bytes; it must be 0 to 4096"),
    "no such device": ("EngineError", "nosuch_0"),
    "a provider that is none": ("ConfigError", "provider 'efa': it must be auto, mlx5, verbs, ofi, or ofi:NAME"),
    "no time to connect": ("ValueError", "connect_timeout is 0 seconds"),
    "a negative drain": ("Refused", "drain is -1 seconds"),
    "an address without bytes": ("Refused", "memory is an address; it needs its bytes"),
    "an object with bytes": ("Refused", "bytes is 64; it belongs to an address, and memory is a bytearray"),
    "no memory": ("Refused", "memory is a str; it must be a tensor"),
    "a tensor of another GPU": ("Refused", "gpu is 0; memory is on cuda:1"),
    "host memory on a GPU": ("Refused", "gpu is 0; it must be None, since memory is memory of the host"),
    "a tensor of the host on a GPU": ("Refused", "gpu is 0; it must be None, since memory is memory of the host"),
    "shared memory on a GPU": ("Refused", "gpu is 0; it must be None, since memory[0] is memory of the host"),
    "a GPU that is none": ("Refused", "GPU is gpu0; it must be auto, simt"),
    "a GPU that is none in a list": ("Refused", "gpu is 'gpu0'; it must be None, since memory[0] is memory of the host"),
    "a tensor on no CUDA device": ("Refused", "memory is on meta; it must be on the CPU or on a CUDA GPU"),
    "0 bytes on a GPU": ("Refused", "memory of the caller is 0 bytes"),
    "a counter mirrored to a GPU": ("Refused", "word is on cuda:1; it must be memory that this process has mapped"),
    "read-only memory": ("Refused", "memory is read-only"),
    "memory that is not dense": ("Refused", "memory is not contiguous"),
    "a tensor that is not dense": ("Refused", "memory is not contiguous"),
    "no bytes": ("Refused", "memory has 0 bytes"),
    "0 bytes at an address": ("Refused", "0 bytes of host memory; they must be 1 to"),
    "a type without a width": ("Refused", "memory holds <M8[s]"),
    "half of it is registered": ("Refused", "overlap a region that does not have all of them"),
    "a list of which half is registered": ("Refused", "element 1 of the list: 64 bytes at"),
    "a list with a text": ("Refused", "memory[1] is a str; it must be a tensor"),
    "a list with an address alone": ("Refused", "memory[0] is an address; it needs its bytes"),
    "a list with three of one": ("Refused", "memory[0] is a tuple of 3; it must be an address and its bytes"),
    "a list with bytes": ("Refused", "bytes is 64; it belongs to an address, and memory is a list"),
    "a name to listen at": ("Refused", "'nowhere' is no address: it must be an IP address and a port, or unix:PATH"),
    "a region that is none": ("Refused", "region 77 was never registered"),
    "all the world": ("Refused", "other machines reach 0.0.0.0:0"),
    "where nobody listens": ("EngineError", "127.0.0.1:1: Connection refused (os error 111)"),
    "a negative address": ("Refused", "memory is -1; it must be a whole number, 0 to 18446744073709551615"),
    "a negative length": ("Refused", "bytes is -1; it must be a whole number, 0 to 18446744073709551615"),
    "a negative local address": ("Refused", "local is -1; it must be a whole number, 0 to 18446744073709551615"),
    "an address that is a fraction": ("Refused", "remote is 1.5; it must be a whole number, 0 to 18446744073709551615"),
    "no time": ("Refused", "deadline is 0 seconds; it must be positive"),
    "nobody comes": ("TimeoutError", "no engine has connected for 0.01 seconds"),
    "half a descriptor": ("Refused", "its length is not 72 bytes"),
    "a damaged descriptor": ("Refused", "its checksum is wrong"),
    "a descriptor of its own": ("Refused", "incarnation"),
    "beyond the peer's region": ("Refused", "the remote byte at"),
    "beyond its own region": ("Refused", "the local byte at"),
    "more than it has": ("Refused", "bytes is 65; local has 64"),
    "an operation without bytes": ("Refused", "local is an address; it needs its bytes"),
    "no operations": ("Refused", "0 operations in a transfer; they must be 1 to 65536"),
    "65537 operations": ("Refused", "65537 operations in a transfer"),
    "no operations to prepare": ("Refused", "0 operations in a transfer; they must be 1 to 65536"),
    "prepared beyond the peer's region": ("Refused", "the remote byte at"),
    "a kind that is none": ("Refused", "kind is 'move'; it must be 'write' or 'read'"),
    "a deadline that is none": ("Refused", "deadline is -1 seconds"),
    "wait for none": ("Refused", "transfers is empty"),
    "2^64": ("Refused", "remote is 18446744073709551616; it must be a whole number, 0 to 18446744073709551615"),
    "of another engine": ("Refused", "is not of engine"),
    "a report of what was released": ("Refused", "was released"),
    "a cancel of what was released": ("Refused", "was released"),
    "a closed engine": ("Refused", "the engine is being closed"),
    "a peer of a closed engine": ("Refused", "the engine is being closed"),
}


@pytest.fixture(scope="module")
def texts(run_ranks):
    ran = run_ranks(1, "host_engine:wrong_calls").check()
    return json.loads(ran.lines[-1])


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_is_refused_in_words(texts, name):
    kind, words = WRONG[name]
    assert texts[name][0] == kind, texts[name]
    assert words in texts[name][1], texts[name]


def test_every_wrong_call_is_in_the_table(texts):
    assert sorted(texts) == sorted(WRONG)


@pytest.mark.parametrize(
    "function",
    [
        "memory_of_every_kind",
        "memory_of_a_gpu",
        "vectors",
        "providers",
        "statistics",
        "shared_memory",
        "notices",
        "counters",
        "no_room",
        "keys",
        "prepared",
        "grants",
        "slots",
        "waits_release_the_gil",
        "regions_hold_their_memory",
        "regions_name_their_engine",
        "lists_of_memory",
        "names",
        "sockets",
        "failures",
        "forked",
        "left_open_at_the_end",
    ],
)
def test_engines(run_ranks, function):
    run_ranks(1, f"host_engine:{function}").check()
