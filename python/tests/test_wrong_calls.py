"""Wrong calls and their texts, printed as one table: nothing is launched, no rank hangs, and the text says what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

#: What is wrong with a tensor, and words of the text.
SPOILED = {
    "dtype": r"holds f64; it must hold ",
    "shape": r"has the shape \[.+\]; it must have \[.+\]",
    "device": r"is on meta; the team runs on the CPU \(WARPVERBS_GPU, or Team\(gpu=\.\.\), chooses\)",
    "stride": r"is not contiguous; pass .+\.contiguous\(\)",
    "freed": r"has no memory, because its storage was freed; it must have \d+ elements",
    "alignment": r"begins at address 0x.+; it must be a multiple of \d+: pass a tensor of its own, not a slice",
}
#: The other calls by function and rank: class and words.
OTHERS = {
    "tensors": {
        "out.x that overlaps x": ("Refused", "out.x overlaps x, which the same launch reads"),
        "out that overlaps y": ("Refused", "out overlaps y, which the same launch reads"),
        "a tensor of a GPU where kernels run on the CPU": ("Refused", "experts is on cuda; the team runs on the CPU"),
        "a tensor of the CPU where kernels run on a GPU": ("Refused", "x is on cpu; the team runs on cuda:0"),
        "a tensor of another GPU": ("Refused", "x is on cuda:1; the team runs on cuda:0 (WARPVERBS_GPU, or Team(gpu=..), chooses)"),
        "an id beyond the experts": ("MoeError", "token 1 chooses expert 4, which is out of range or chosen twice"),
        "an expert twice": ("MoeError", "token 1 chooses expert 2, which is out of range or chosen twice"),
    },
    "process_groups": {
        "no process group": ("Refused", "there is no process group; call torch.distributed.init_process_group(..) first"),
        "a group without a store": ("Refused", "this process is not in the process group <object object"),
        "a group that was destroyed": ("Refused", "the process group was destroyed, or is not one of this process"),
        "a mask of no rank": ("Refused", "rank_to_mask is 1; the group has ranks 0 to 0"),
        "a mask of rank -1": ("Refused", "rank_to_mask is -1; the group has ranks 0 to 0"),
        "a handle of two calls ago": ("Refused", "two later dispatches have taken its place; combine batches in their order"),
        "a group of a program that has left": ("Refused", "there is no process group"),
    },
    "vanishing_store": {
        "a store that vanishes": ("TeamError", "the store of the process group '0' (TCPStore of c10d): DistNetworkError"),
    },
}
BOTH = {
    "another hidden at another rank": ("MoeError", "hidden is 64 at rank 0 but 128 at rank 1"),
    "another format at another rank": ("MoeError", "format is Bf16 at rank 0 but Fp8(F32) at rank 1"),
    "another max_tokens at another rank": ("MoeError", "max_tokens is 8 at rank 0 but 9 at rank 1"),
    "another layout at another rank": ("MoeError", "layout is ExpertMajor at rank 0 but RankMajor at rank 1"),
    "a name that is none": ("TeamError", "'layer/my layer/"),
}
RANKS = [
    {
        **BOTH,
        "a dispatch where another rank makes none": ("MoeError", "rank 1: no word before the deadline; suspects [1]"),
    },
    {
        **BOTH,
        "a combine without a dispatch": ("Refused", "combine follows dispatch or dispatch_receive; the newest phase of this call is none"),
    },
]


def compare(found: dict[str, list[str]], wanted: dict[str, tuple[str, str]]) -> None:
    """Prints the table."""
    for name, (kind, text) in found.items():
        print(f"{name:50} {kind:12} {text}")
    assert found.keys() == wanted.keys()
    for name, (kind, words) in wanted.items():
        assert found[name][0] == kind, (name, found[name])
        assert words in found[name][1], (name, found[name])


def test_tensors_that_cannot_be(run_ranks):
    found = json.loads(run_ranks(1, "wrong_calls:tensors").check().lines[-1])
    others = {name: found.pop(name) for name in OTHERS["tensors"]}
    for name, (kind, text) in found.items():
        tensor, what = name.split(", ")
        print(f"{name:50} {kind:12} {text}")
        begins = re.escape(tensor.split(" of ")[0])
        assert kind == "Refused", (name, text)
        assert re.match(f"{begins} {SPOILED[what]}", text), (name, text)
    assert len(found) == 104
    compare(others, OTHERS["tensors"])


def test_tensors_of_the_caller_are_refused_by_the_names_of_other_libraries(run_ranks):
    found = json.loads(run_ranks(1, "wrong_calls:of_the_caller").check().lines[-1])
    begins = re.compile(r"(?:\w+(?: with a hook)?: )?(\w+)(?: of \w+)?, (\w+)")
    for name, (kind, text) in found.items():
        matched = begins.fullmatch(name)
        assert matched is not None, name
        tensor, what = matched.groups()
        print(f"{name:80} {kind:12} {text}")
        words = "has 2 rows, and x has 3" if name.endswith("topk_idx of dispatch, shape") else SPOILED[what]
        assert kind == "Refused", (name, text)
        assert re.match(f"{tensor} {words}", text), (name, text)
    assert len(found) == 153


def test_a_tensor_without_memory_is_not_one_that_is_not_given(run_ranks):
    run_ranks(1, "wrong_calls:freed").check()


def test_a_hook_that_refuses_a_changed_tensor_can_be_called_again(run_ranks):
    run_ranks(1, "wrong_calls:refused_by_a_hook").check()


@pytest.mark.parametrize("function", ["by_phases", "changed_in_place"])
def test_no_shortcut_takes_a_wrong_tensor(run_ranks, function):
    run_ranks(1, f"wrong_calls:{function}").check()


@pytest.mark.parametrize(("function", "ranks"), [("process_groups", 1), ("vanishing_store", 2)])
def test_process_groups_that_cannot_be(run_ranks, function, ranks):
    compare(json.loads(run_ranks(ranks, f"wrong_calls:{function}").check().lines[-1]), OTHERS[function])


def test_ranks_that_do_not_do_the_same_are_told_so(run_ranks, tmp_path):
    run_ranks(2, "wrong_calls:other_calls", str(tmp_path)).check()
    for rank, wanted in enumerate(RANKS):
        found = json.loads((tmp_path / str(rank)).read_text())
        # Whoever is first to give up says so to the other.
        kind, text = found.pop("another name at another rank")
        print(f"{'another name at another rank':50} {kind:12} {text}")
        assert kind in ("TimeoutError", "TeamError")
        assert re.search(r"rank \d has not come within 1.0s \(layer/layer\.\d\)", text)
        compare(found, wanted)


#: Programs in which something is missing, and the last line that each ends with.
WITHOUT = {
    "no torch": (
        "import sys; sys.modules['torch'] = None; from warpverbs import deep_ep",
        "ImportError: warpverbs.deep_ep works on tensors of torch, which cannot be imported here: ",
    ),
    "an old torch": (
        "import sys, types; old = types.ModuleType('torch'); old.__version__ = '1.13.1'; sys.modules['torch'] = old\n"
        "from warpverbs import mooncake_ep",
        "ImportError: warpverbs.deep_ep needs torch 2.5 or newer; this is torch 1.13.1",
    ),
    "no libibverbs": (
        "import warpverbs; warpverbs.Team(0, 1)",
        "warpverbs.errors.TeamError: ",
    ),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_what_a_machine_lacks_is_named(tmp_path, name):
    program, words = WITHOUT[name]
    environment = dict(os.environ)
    if name == "no libibverbs":
        # The loader takes it for the library, and finds that it is none.
        (tmp_path / "libibverbs.so.1").write_text("")
        environment["LD_LIBRARY_PATH"] = f"{tmp_path}:{environment.get('LD_LIBRARY_PATH', '')}"
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False)
    last = ended.stderr.strip().splitlines()[-1]
    print(f"{name:50} {last}")
    assert ended.returncode == 1
    assert last.startswith(words), ended.stderr
    assert name != "no libibverbs" or "libibverbs" in last
