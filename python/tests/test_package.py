"""The package as it lies: its example, its document, what it loads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import warpverbs

PYTHON = Path(__file__).parents[1]


def run(*command: str) -> str:
    ended = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_the_example_of_the_document_runs():
    example = PYTHON / "examples" / "two_ranks.py"
    body = example.read_text().split('"""', 2)[2].strip()
    assert body in (PYTHON / "README.md").read_text()
    said = run("-m", "warpverbs.sim", "--", sys.executable, str(example))
    # Two processes write, and a line and its end may be two writes.
    assert sorted(re.findall(r"rank \d: 1\.75", said)) == ["rank 0: 1.75", "rank 1: 1.75"]
    assert re.sub(r"rank \d: 1\.75", "", said).split() == []


def test_the_package_imports_no_library_of_tensors():
    heavy = "import json, sys, warpverbs; print(json.dumps([m for m in ('torch', 'numpy') if m in sys.modules]))"
    assert json.loads(run("-c", heavy)) == []


def test_the_native_module_needs_no_cuda_torch_or_verbs():
    native = warpverbs._native.__file__
    needed = subprocess.run(["readelf", "-d", native], capture_output=True, text=True, check=True).stdout
    names = [line.split("[")[1].rstrip("]") for line in needed.splitlines() if "(NEEDED)" in line]
    assert names
    allowed = ("libc.so", "libm.so", "libgcc_s.so", "libstdc++.so", "ld-linux", "libpthread.so", "libdl.so", "librt.so")
    assert [name for name in names if not name.startswith(allowed)] == []
