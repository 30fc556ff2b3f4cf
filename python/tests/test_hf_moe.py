"""Models of transformers whose experts lie at several ranks, against the unmodified ones."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest
from figures import tell
from programs import Program

README = Path(__file__).parents[1] / "README.md"
FULL = bool(os.environ.get("WV_TEST_FULL"))
MODELS = ["mixtral", "qwen3", "deepseek"]
RANKS = 4

COMPARED = re.compile(r"rank \d: (\w+) (bf16|fp8): logits differ by ([\d.]+) of ([\d.]+), (\d+) of (\d+) greedy tokens are equal")
SERVES = re.compile(r"rank (\d): process (\d+) serves as generation (\d)")
ACTIVE = re.compile(
    r"rank (\d): call (\d+): active \[(.+)\], (\d+) of \d+ tokens lost experts, (\d+) of these differ, the others by ([\d.]+)"
)


def test_each_model_gives_the_same_over_four_ranks(tmp_path):
    command = f"torchrun --nproc-per-node {RANKS} hf_moe.py"
    assert f"$ python -m warpverbs.sim -- {command}\n" in README.read_text()
    with Program(command.split(), tmp_path) as program:
        assert program.end() == 0, program.text()
    found = [COMPARED.fullmatch(line) for line in program.lines]
    assert all(found), program.text()
    told = [each.groups() for each in found if each]
    assert sorted(each[:2] for each in told) == sorted((model, form) for model in MODELS for form in ("bf16", "fp8") for _ in range(RANKS))
    for model, form, far, limit, same, tokens in told:
        tell(f"{model} {form}: {far} of {limit}, {same} of {tokens} tokens")
        assert float(far) <= float(limit)
        assert form != "bf16" or same == tokens


#: Each rank has a torchrun of its own, as in elastic.py.
EACH = """export WARPVERBS_STORE=file://$(mktemp -d) WARPVERBS_RANKS=4
for rank in 0 1 2 3; do
    WARPVERBS_RANK=$rank torchrun --standalone --max-restarts 100 hf_moe.py MODEL &
done
wait"""


@pytest.mark.parametrize("model", MODELS if FULL else ["mixtral"])
def test_tokens_that_lose_experts_are_named_and_only_those_differ(tmp_path, model):
    victim, killed, missed, serves = 2, False, set[int](), {}
    with Program(["bash", "-c", EACH.replace("MODEL", model)], tmp_path, TMPDIR=str(tmp_path)) as program:
        for line in program:
            if found := SERVES.fullmatch(line):
                serves[int(found[1])] = (int(found[2]), int(found[3]))
            elif found := ACTIVE.fullmatch(line):
                rank, lost, differ = int(found[1]), int(found[4]), int(found[5])
                assert float(found[6]) <= 0.01, line
                if found[3] == "1, 1, 1, 1":
                    # Not all of a pass in which a rank comes back has its experts.
                    assert lost == differ == 0 or killed, line
                elif killed and rank != victim:
                    assert 0 < differ <= lost, line
                    missed.add(rank)
            if len(serves) == RANKS and not killed and sum("1, 1, 1, 1" in line for line in program.lines) == RANKS:
                killed = True
                os.kill(serves[victim][0], signal.SIGKILL)
        assert program.end() == 0, program.text()
        print(program.text())
    assert missed == {0, 1, 3}, program.text()
    assert serves[victim][1] == 2, program.text()
    assert sorted(line for line in program.lines if "all right" in line) == [f"rank {rank}: {model}: all right" for rank in range(RANKS)]
