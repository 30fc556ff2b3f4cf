"""`python -m warpverbs.doctor`: every fact of the document, and what it says of things that are broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import arguments
import pytest

import warpverbs
from warpverbs import doctor
from warpverbs.deep_ep import _torch as deep_ep_torch

#: The package under test.
PACKAGE = Path(warpverbs.__file__).parent
#: What a launcher or another test may have set.
FOREIGN = ("WARPVERBS_", "OMPI_", "PMI_", "SLURM_", "RANK", "WORLD_SIZE")


class Told(NamedTuple):
    """What the doctor said: the facts by name, and its status."""

    status: int
    facts: dict[str, dict[str, str]]

    def state(self, what: str) -> str:
        return self.facts[what]["state"]

    def all(self, what: str) -> str:
        return f"{self.facts[what]['value']}; {self.facts[what]['do']}"


@pytest.fixture(scope="session", autouse=True)
def light_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In place of torch, whose import takes seconds, where a test is about something else."""
    global _LIGHT  # noqa: PLW0603 It is set once.
    _LIGHT = planted(tmp_path_factory.mktemp("light"), "torch", "__version__ = '2.15.0'")
    return _LIGHT


_LIGHT = Path()


def around(*first: Path) -> dict[str, str]:
    """The environment of a doctor that looks for modules in ``first`` first."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return environment | {"PYTHONPATH": os.pathsep.join([*map(str, first), os.environ.get("PYTHONPATH", "")])}


def run(*options: str, first: Path | None = None, torch: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """The doctor, which looks for modules in ``first`` first; with ``torch`` it finds the real one."""
    environment = around(*([] if first is None else [first]), *([] if torch else [_LIGHT])) | variables
    command = [sys.executable, "-m", "warpverbs.doctor", *options]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.stderr == ""
    return ended


def ask(*options: str, first: Path | None = None, torch: bool = False, **variables: str) -> Told:
    ended = run("--json", *options, first=first, torch=torch, **variables)
    facts = json.loads(ended.stdout)["facts"]
    told = Told(ended.returncode, {fact["what"]: fact for fact in facts})
    assert len(told.facts) == len(facts), "a name stands for two facts"
    assert told.status == any(fact["state"] == "FAIL" for fact in facts), facts
    assert all(bool(fact["do"]) or fact["state"] == "ok" for fact in facts), facts
    return told


def copied(folder: Path, *missing: str) -> Path:
    """A copy of the package without these files, which Python finds first in ``folder``."""
    shutil.copytree(PACKAGE, folder / "warpverbs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in missing:
        (folder / "warpverbs" / name).unlink()
    return folder


def planted(folder: Path, name: str, body: str) -> Path:
    """A package of that name in ``folder``."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(body)
    return folder


def documented() -> list[str]:
    section = arguments.README.read_text().split("\n## When it does not start\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in cell.split("`")[1::2]]


def test_every_fact_of_the_document_is_said_and_nothing_fails():
    ended = run(torch=True)
    lines = ended.stdout.splitlines()
    assert ended.returncode == 0, ended.stdout
    column = lines[0].index("python")
    assert {line[:column].strip() for line in lines} <= {"ok", "note"}
    said = [line[column:].split("  ")[0] for line in lines]
    assert said == documented()


def test_json_says_the_same():
    told = ask(torch=True)
    assert (told.status, list(told.facts)) == (0, documented())
    assert told.facts["wv --version"]["value"] == f"wv {warpverbs.__version__}"
    assert str(PACKAGE.resolve()) in told.facts["package"]["value"]


def test_it_imports_neither_torch_nor_numpy_nor_the_package():
    program = (
        "import contextlib, runpy, sys\n"
        "with contextlib.suppress(SystemExit):\n"
        "    runpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
        "print(sorted({'numpy', 'torch', 'warpverbs'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", program, doctor.__file__]
    ended = subprocess.run(command, env=around(_LIGHT), capture_output=True, text=True, timeout=240, check=False)
    assert ended.stdout.splitlines()[-1] == "[]", ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise ImportError('no libtorch\\nhere')", "import torch: ImportError: no libtorch\nhere"),
        ("import os\nos.abort()", "import torch: ended by SIGABRT"),
        ("import os\nos._exit(0)", "import torch: it ended without a word"),
        ("print('[]')\n__version__ = '1.13.1'", "1.13.1, "),
    ],
    ids=["raises", "aborts", "exits", "old"],
)
def test_a_torch_that_cannot_be_used_is_a_fail(tmp_path, body, words):
    told = ask(first=planted(tmp_path, "torch", body))
    assert (told.status, told.state("torch")) == (1, "FAIL")
    assert told.facts["torch"]["value"].startswith(words)
    if "1.13" in body:
        assert "install torch 2.5 or newer" in told.facts["torch"]["do"]
        assert told.facts["torch CUDA"]["value"] == "built without CUDA"


def test_a_fact_is_one_line(tmp_path):
    ended = run(first=planted(tmp_path, "torch", "raise ImportError('no libtorch\\n  here: \\u00e4')"), PYTHONIOENCODING="ascii")
    (line,) = (line for line in ended.stdout.splitlines() if line.startswith("FAIL"))
    assert "ImportError: no libtorch here: \\xe4; repair torch" in line


def test_a_torch_that_hangs_does_not_hold_the_doctor(tmp_path):
    # The process that it starts holds the pipe to the doctor.
    body = "import subprocess, time\nsubprocess.Popen(['sleep', '3600'])\ntime.sleep(3600)"
    began = time.monotonic()
    told = ask("--timeout", "1", first=planted(tmp_path, "torch", body))
    assert time.monotonic() - began < 120
    assert (told.status, told.facts["torch"]["value"]) == (1, "import torch: no end within 1 seconds")


def test_missing_files_are_named(tmp_path):
    told = ask(first=copied(tmp_path, "_prefix/bin/wv", "_prefix/lib/warpverbs/libsofthca.so", "_native.abi3.so"))
    folder = (tmp_path / "warpverbs").resolve()
    assert told.status == 1
    assert told.facts["bin/wv"]["value"] == f"{folder / '_prefix/bin/wv'} is missing"
    assert told.facts["lib/warpverbs/libsofthca.so"]["value"] == f"{folder / '_prefix/lib/warpverbs/libsofthca.so'} is missing"
    assert told.facts["native module"]["value"].startswith(f"{folder / '_native.abi3.so'} is missing (ModuleNotFoundError: ")
    assert [told.state(what) for what in ("bin/wv", "lib/warpverbs/libsofthca.so", "native module", "wv --version")] == ["FAIL"] * 4
    assert told.state("copies") == "note"
    assert told.facts["copies"]["value"].startswith(f"{folder}, ")


def test_files_that_do_not_load_or_run_are_named_with_the_reason(tmp_path):
    folder = copied(tmp_path) / "warpverbs"
    (folder / "_native.abi3.so").write_bytes(b"")
    (folder / "_prefix/bin/wv").write_text("#!/bin/sh\necho no such thing >&2\nexit 3\n")
    told = ask(first=tmp_path)
    assert "file too short" in told.facts["native module"]["value"]
    assert told.facts["wv --version"]["value"] == "ended with status 3: no such thing"


def test_parts_of_two_releases_are_a_fail(tmp_path):
    information = copied(tmp_path) / "warpverbs-99.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: warpverbs\nVersion: 99.0\n")
    (information / "WHEEL").write_text("Wheel-Version: 1.0\nTag: cp310-abi3-manylinux_2_999_x86_64\n")
    told = ask(first=tmp_path)
    assert told.facts["package"]["value"].startswith("99.0, ")
    for what in ("native module", "wv --version"):
        assert (told.state(what), "the package is 99.0" in told.all(what)) == ("FAIL", True)
    assert "the wheel needs 2.999" in told.all("glibc")


@pytest.mark.parametrize(("owner", "state"), [("", "note"), ("deep_ep", "note"), ("warpverbs-as-deep-ep", "ok")])
def test_the_owner_of_the_name_deep_ep_is_told(tmp_path, owner, state):
    # It is not imported.
    planted(tmp_path, "deep_ep", "raise SystemExit('imported')")
    if owner:
        information = tmp_path / f"{owner.replace('-', '_')}-1.2.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {owner}\nVersion: 1.2\n")
        (information / "RECORD").write_text("deep_ep/__init__.py,,\n")
    told = ask(first=tmp_path)
    value = f"{owner + ' 1.2' if owner else 'of no package that pip knows'}, {tmp_path / 'deep_ep' / '__init__.py'}"
    assert (told.state("deep_ep"), told.facts["deep_ep"]["value"]) == (state, value)
    if state == "ok":
        planted(tmp_path, "deep_ep_cpp", "")
        assert ask(first=tmp_path).state("deep_ep") == "FAIL"


@pytest.mark.parametrize(
    ("library", "state", "words"),
    [
        ("libibverbs.so.1", "FAIL", "apt-get install libibverbs1"),
        ("libmlx5.so.1", "FAIL", "apt-get install ibverbs-providers"),
        ("libcuda.so.1", "note", "kernels run on the CPU"),
    ],
)
def test_a_library_that_does_not_load_is_told_with_what_is_lost(tmp_path, library, state, words):
    (tmp_path / library).write_bytes(b"")
    told = ask(LD_LIBRARY_PATH=os.pathsep.join([str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]))
    assert told.state(library) == state
    assert "file too short" in told.facts[library]["value"]
    assert words in told.facts[library]["do"]


def test_variables_are_shown_without_a_password():
    told = ask(WARPVERBS_STORE="etcd://user:se@cret@host:1/run", WARPVERBS_GPU="simt", RANK="3", WORLD_SIZE="8", SLURM_PROCID="1")
    shown = {name: told.facts[name]["value"] for name in ("WARPVERBS_STORE", "WARPVERBS_GPU", "RANK", "WORLD_SIZE", "SLURM_PROCID")}
    assert list(shown.values()) == ["etcd://..@host:1/run", "simt", "3", "8", "1"]
    assert (told.state("rank"), told.facts["rank"]["value"]) == ("ok", "3 of 8, by RANK and WORLD_SIZE")
    assert "variables" not in told.facts


def test_half_of_a_launcher_is_a_note():
    told = ask(SLURM_PROCID="1")
    assert (told.state("rank"), told.facts["rank"]["value"]) == ("note", "SLURM_PROCID without its other half")


def test_a_check_that_raises_is_a_fact():
    def broken():
        yield doctor.Fact("ok", "one", "1")
        raise ZeroDivisionError("by hand")

    one, error = doctor.guarded("two", broken)
    assert one == ("ok", "one", "1", "")
    assert error[:3] == ("FAIL", "two", "ZeroDivisionError: by hand")


def test_what_is_not_installed_is_a_note(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "distribution", lambda: None)
    for check, words in (
        (lambda: doctor.torch(1), "pip install torch"),
        (doctor.numpy, "numpy's arrays"),
        (doctor.package, "pip does not"),
    ):
        (fact,) = check()
        assert (fact.state, words in fact.do) == ("note", True), fact


def test_launchers_are_those_of_the_runtime():
    source = (Path(__file__).parents[2] / "src" / "config" / "launcher.rs").read_text()
    launchers = source.split("const LAUNCHERS")[1].split("];")[0]
    names = re.findall(r'\branks?: "(\w+)"', launchers)
    assert list(zip(names[::2], names[1::2], strict=True)) == list(doctor.LAUNCHERS)


def test_the_oldest_torch_is_that_of_deep_ep():
    assert doctor.OLDEST_TORCH == deep_ep_torch.OLDEST
    assert [doctor.is_new(version) for version in ("2.5.0+cu124", "2.15.0", "3.0a1", "main", "2.4.1", "1.13.1")] == [True] * 4 + [False] * 2


def test_a_python_without_a_wheel_is_told():
    assert doctor.unsupported((3, 10), "Linux", "x86_64") == ""
    assert "3.10" in doctor.unsupported((3, 9), "Linux", "x86_64")
    assert "x86_64" in doctor.unsupported((3, 11), "Linux", "aarch64")


def test_a_reader_that_leaves_gets_no_traceback():
    command = f"'{sys.executable}' -m warpverbs.doctor | true"
    ended = subprocess.run(["sh", "-c", command], env=around(_LIGHT), capture_output=True, text=True, timeout=240, check=False)
    assert ended.stderr == ""
