"""`python -m warpverbs.bench` runs and prints every row; no test judges its times."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import torch

import warpverbs
from warpverbs import _native, bench

#: Nanoseconds.
GOALS = {
    "import warpverbs": 100e6,
    "bare native call": 1e3,
    "Call: dispatch, outputs reused": 0,
    "Call: dispatch and combine, outputs reused": 0,
    "Buffer: dispatch with hook, outputs reused": 8e3,
    "Buffer: dispatch and combine with hooks, outputs reused": 0,
    "Buffer: dispatch with hook": 0,
}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warpverbs.bench", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    ended = run("--json", "--calls", "3")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_every_cost_is_there_beside_its_goal(found):
    assert {cost["what"]: cost["goal_ns"] for cost in found["costs"]} == GOALS
    for cost in found["costs"]:
        assert set(cost) == set(bench.Cost._fields)
        assert 0 < cost["least_ns"] <= cost["median_ns"], cost
    assert (found["torch"], found["calls"], found["rounds"]) == (torch.__version__, 3, bench.ROUNDS)


def test_it_says_that_no_kernel_runs(found):
    assert found["kernels"] == "stubbed"
    assert found["device"] == "simt, kernels stubbed"
    lines = bench.text(found).splitlines()
    assert lines[0].endswith("simt, kernels stubbed: no kernel runs")
    for what, goal in GOALS.items():
        (line,) = [line for line in lines if line.startswith(f"{what}  ")]
        assert len(re.findall(r"[\d,]+\.\d\d us", line)) == (3 if goal else 2)


def test_the_import_imports_no_library_of_tensors(found):
    assert found["imports"] == []
    # It would be seen.
    seen = bench.output([sys.executable, "-c", bench.IMPORT.replace("import warpverbs", "import numpy") % (bench.LIBRARIES,)])
    assert seen.split()[1:] == ["numpy"]


def test_no_calls_are_refused():
    ended = run("--calls", "0")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--calls is 0; it must be at least 1" in ended.stderr


def test_no_variable_and_no_argument_gives_a_team_such_a_device():
    for name in ("stubs", "simt, kernels stubbed"):
        with pytest.raises(warpverbs.ConfigError, match="WARPVERBS_GPU"):
            warpverbs.Team(0, 1, gpu=name)


def test_nothing_but_the_bench_makes_such_a_team():
    package = bench.__file__.removesuffix("bench.py")
    users = subprocess.run(["grep", "-rl", "--include=*.py", "team_of_stubs", package], capture_output=True, text=True, check=True)
    assert users.stdout.split() == [bench.__file__]
    assert hasattr(_native, "team_of_stubs")
