"""The wheel as a file: its size, what its objects need, and the same file under every Python of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from figures import tell

WHEELS = Path(__file__).parents[2] / "target" / "python" / "wheels"
#: Most bytes of the wheel.
MOST = 30_000_000
#: What every glibc system has. softhca and wv find libibverbs and CUDA when they run, or are preloaded into programs that have them.
ALLOWED = ("libc.so", "libm.so", "libgcc_s.so", "libstdc++.so", "ld-linux", "libpthread.so", "libdl.so", "librt.so")


@pytest.fixture(scope="module")
def wheel() -> Path:
    (found,) = WHEELS.glob("warpverbs-*-abi3-*.whl")
    return found


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
        for entry in packed.infolist():
            # What pip does: the program is one.
            os.chmod(folder / entry.filename, (entry.external_attr >> 16) & 0o777 or 0o644)
    return folder


def test_it_is_small(wheel):
    size = wheel.stat().st_size
    tell(f"the wheel has {size / 1e6:.1f} MB of {MOST / 1e6:.0f}")
    assert size < MOST


def test_no_object_inside_needs_torch_cuda_nccl_or_verbs(unpacked):
    objects = [path for path in unpacked.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    names = sorted(path.name for path in objects)
    assert [name for name in names if name.startswith("_native")] != []
    assert {"wv", "libsofthca.so"} <= set(names)
    for each in objects:
        said = subprocess.run(["readelf", "-d", str(each)], capture_output=True, text=True, check=True).stdout
        needed = [line.split("[")[1].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line]
        assert needed, each
        assert [name for name in needed if not name.startswith(ALLOWED)] == [], each


#: Two ranks meet, make a layer, and serve in a group; needs no other package.
PROGRAM = """
import os, sys, warpverbs
if os.environ.get("WARPVERBS_RANK") is None:
    rank = 0 if os.fork() else 1
    os.environ["WARPVERBS_RANK"] = str(rank)
with warpverbs.Team(join_timeout=60) as team:
    moe = warpverbs.Moe(team, "layer", hidden=64, experts=4, top_k=2, max_tokens=4)
    with warpverbs.Group(team, moe, lease=60) as group:
        group.wait("serving", 60)
        assert group.view.active(2) == [True, True], group.view
        team.barrier("serving")
    assert moe.local_experts() == [2 * team.rank, 2 * team.rank + 1]
if team.rank == 0:
    assert os.wait()[1] == 0
    print("%d.%d" % sys.version_info[:2], warpverbs.__file__)
"""


def pythons() -> dict[str, str]:
    """Interpreters of this machine from 3.10 on, other than this version, by version."""
    named = [shutil.which(f"python3.{minor}") for minor in range(10, 20)]
    # As pyenv lays them out.
    beside = Path(sys.base_prefix).resolve().parent.glob("*/bin/python3.[1-9][0-9]")
    found: dict[str, str] = {}
    for path in [*filter(None, named), *map(str, sorted(beside))]:
        asked = subprocess.run(
            [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys.implementation.name)"],
            capture_output=True,
            text=True,
            check=False,
        )
        version, _, kind = asked.stdout.strip().partition(" ")
        if asked.returncode == 0 and kind == "cpython" and version != f"{sys.version_info[0]}.{sys.version_info[1]}":
            found.setdefault(version, path)
    return found


def test_the_same_file_runs_under_other_pythons(unpacked, tmp_path):
    others = pythons()
    if not others:
        pytest.skip("no second Python from 3.10 on is here: apt install python3.12, or pyenv install 3.12; then pytest test_wheel.py")
    for version, python in others.items():
        store = tmp_path / version
        store.mkdir(mode=0o700)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WARPVERBS_")},
            "PYTHONPATH": str(unpacked),
            "WARPVERBS_RANKS": "2",
            "WARPVERBS_STORE": f"file://{store}",
            "WARPVERBS_GPU": "simt",
        }
        command = [python, "-m", "warpverbs.sim", "--", python, "-c", PROGRAM]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
        assert ended.returncode == 0, (version, ended.stdout, ended.stderr)
        assert ended.stdout.split() == [version, str(unpacked / "warpverbs" / "__init__.py")]
    tell(f"the wheel also runs under Python {', '.join(others)}")
