"""What the tests share: ranks as processes on software HCAs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "ranks.py"
#: Longest run of all ranks of a test, seconds.
LONG = 7200 if os.environ.get("WV_TEST_FULL") else 240


class Ran:
    """What the ranks of one run printed, and how the run ended."""

    def __init__(self, status: int, lines: list[str], text: str) -> None:
        self.status, self.lines, self.text = status, lines, text

    def check(self) -> Ran:
        assert self.status == 0, self.text
        return self


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory):
    """Runs a function of a module of the tests at each of so many ranks: ``run_ranks(2, "oracle:grid", "argument")``."""

    def run(ranks: int, function: str, *arguments: str, sim: tuple[str, ...] = ()) -> Ran:
        store = tmp_path_factory.mktemp("store")
        command = [sys.executable, "-m", "warpverbs.sim", *sim, "--", sys.executable, str(RANKS)]
        ended = subprocess.run(
            [*command, str(ranks), str(store), function, *arguments],
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        lines = ended.stdout.splitlines()
        return Ran(ended.returncode, lines, ended.stdout + ended.stderr)

    return run
