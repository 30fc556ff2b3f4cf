"""What the tests share: ranks as processes on software HCAs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import figures
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


class Runs:
    """The process that makes the runs of ranks, one after another: it has read torch once for all of them."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "warpverbs.sim", "--", sys.executable, str(RANKS)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
        )

    def make(self, ranks: int, store: Path, function: str, *arguments: str) -> Ran:
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        asked.write(json.dumps([ranks, str(store), function, *arguments]) + "\n")
        there, _, _ = select.select([answers], [], [], LONG)
        answer = answers.readline() if there else ""
        out, err = ((store.parent / name).read_text() if (store.parent / name).exists() else "" for name in ("out", "err"))
        assert answer, f"no end within {LONG} seconds, or of the process that makes all runs:\n{out}{err}"
        return Ran(int(answer), out.splitlines(), out + err)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(1)
        except subprocess.TimeoutExpired:
            # wv sim ends the processes of its command, too.
            self._process.terminate()
            self._process.wait()


@pytest.fixture(scope="session")
def run_ranks(tmp_path_factory: pytest.TempPathFactory):
    """Runs a function of a module of the tests at each of so many ranks: ``run_ranks(2, "oracle:grid", "argument")``. With ``sim``,
    options of ``wv sim``, the run has a process of its own."""
    runs: list[Runs] = []

    def run(ranks: int, function: str, *arguments: str, sim: tuple[str, ...] = ()) -> Ran:
        store = tmp_path_factory.mktemp("run") / "store"
        store.mkdir(mode=0o700)
        if not sim:
            if not runs:
                runs.append(Runs())
            try:
                return runs[0].make(ranks, store, function, *arguments)
            except AssertionError:
                # It may be in the middle of the run.
                runs.pop().end()
                raise
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

    yield run
    for each in runs:
        each.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """The report of a test takes what it has told to the process that prints: another one, where tests run two at a time."""
    report = yield
    report.told = tuple(figures.TOLD)
    figures.TOLD.clear()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Figures of tests that pass are seen with ``-q``, too."""
    reports = (report for reports in terminalreporter.stats.values() for report in reports)
    told = [line for report in reports for line in getattr(report, "told", ())]
    if told:
        terminalreporter.section("figures")
        for line in told:
            terminalreporter.line(line)
