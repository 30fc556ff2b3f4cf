"""The example of a loop whose killed rank comes back: by the commands of its document, and as `wv chaos` drives it."""

from __future__ import annotations

import ast
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from figures import tell
from programs import LONG, Program, _processes

from warpverbs import sim

PYTHON = Path(__file__).parents[1]
EXAMPLE = PYTHON / "examples" / "elastic.py"
FULL = bool(os.environ.get("WV_TEST_FULL"))
DEATHS = 20 if FULL else 1
RANKS = 4 if FULL else 3

SERVES = re.compile(r"rank (\d+): process (\d+) serves as generation (\d+)")
ACTIVE = re.compile(r"rank (\d+): call (\d+): active \[(.+)\], (\d+) of \d+ tokens lost experts")
ENDED = re.compile(r"rank (\d+): (\d+) steps, (\d+) tokens lost experts")


def commands() -> str:
    """Those of the example's own text, for as many ranks as the test has."""
    text = ast.get_docstring(ast.parse(EXAMPLE.read_text()))
    assert text is not None
    block = "\n".join(line.removeprefix("    ") for line in text.splitlines() if line.startswith("    "))
    assert block in (PYTHON / "README.md").read_text(), "the document has other commands than the example"
    ranks = "for rank in " + " ".join(map(str, range(RANKS)))
    return block.replace("for rank in 0 1 2", ranks).replace("WARPVERBS_RANKS=3", f"WARPVERBS_RANKS={RANKS}") + "\nwait"


class Watch:
    """The reports of the ranks so far: process and generation, and the active ranks in the newest call of each."""

    def __init__(self) -> None:
        self.process: dict[int, tuple[int, int]] = {}
        self.active: dict[int, list[int]] = {}
        self.call: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        self.ended: set[int] = set()

    def hear(self, line: str) -> None:
        assert "wrong" not in line, line
        if found := SERVES.fullmatch(line):
            rank, process, generation = map(int, found.groups())
            self.process[rank] = (process, generation)
        elif found := ACTIVE.fullmatch(line):
            rank = int(found[1])
            self.call[rank], self.active[rank], self.lost[rank] = int(found[2]), [int(each) for each in found[3].split(", ")], int(found[4])
        elif found := ENDED.fullmatch(line):
            self.ended.add(int(found[1]))

    def whole(self) -> bool:
        """All ranks have reported a call with all ranks, in which no token lost an expert."""
        return len(self.active) == RANKS and all(map(all, self.active.values())) and not any(self.lost.values())

    def missed(self, rank: int) -> bool:
        """All others have reported a call without ``rank``."""
        return all(not active[rank] for other, active in self.active.items() if other != rank)


def kill_ranks_and_watch(program: Program, line_of: Callable[[str], str] = str) -> None:
    """Kills ranks of ``program`` by a seed, one when the one before has come back. ``line_of`` takes a rank's report out of a line."""
    seed = int(os.environ.get("WV_SEED", random.randrange(1 << 32)))
    tell(f"WV_SEED={seed}")
    chance = random.Random(seed)
    watch, deaths, victim = Watch(), 0, -1
    for line in map(line_of, program):
        watch.hear(line)
        assert watch.ended == set() or deaths == DEATHS, program.text()
        if victim >= 0 and watch.missed(victim):
            # The others go on: each of them has made calls without it.
            victim = -1
        elif victim < 0 and deaths < DEATHS and watch.whole():
            deaths, victim = deaths + 1, chance.randrange(RANKS)
            process, generation = watch.process.pop(victim)
            assert process in program.processes(), program.text()
            tell(f"death {deaths}: rank {victim}, generation {generation}, near call {max(watch.call.values())}")
            os.kill(process, signal.SIGKILL)
            del watch.active[victim]
    assert program.end() == 0, program.text()
    print(program.text())
    assert deaths == DEATHS
    assert watch.ended == set(range(RANKS)), program.text()
    assert watch.whole(), program.text()
    assert sum(generation - 1 for _, generation in watch.process.values()) >= DEATHS


def test_killed_ranks_come_back_and_no_sum_is_wrong(tmp_path):
    with Program(["bash", "-c", commands()], tmp_path, TMPDIR=str(tmp_path)) as program:
        kill_ranks_and_watch(program)


def wv_chaos(*options: str) -> subprocess.CompletedProcess[str]:
    command = [str(sim.PREFIX / "bin" / "wv"), "chaos", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * LONG, check=False)


def test_wv_chaos_kills_the_ranks_of_the_example():
    deaths = 20 if FULL else 1
    seed = os.environ.get("WV_SEED", str(random.randrange(1 << 32)))
    tell(f"WV_SEED={seed}")
    of_example = ("--program", str(EXAMPLE), "--python", sys.executable, "--ranks", "3")
    ended = wv_chaos(*of_example, "--deeds", str(deaths), "--seed", seed, "--json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout)
    print(ended.stdout)
    assert (found["ranks"], found["deaths"], found["seed"]) == (3, deaths, int(seed))
    assert len(found["missed_us"]) == len(found["back_us"]) == deaths
    assert ended.stderr.count("\ndeath ") + ended.stderr.startswith("death ") == deaths
    assert found["tokens_lost"] > 0


#: Programs that do not do what the example does, and what is said of them.
WRONG = {
    "sums": ("print(f'rank {rank}: call 1: 3 tokens are wrong')", "its sums are wrong"),
    "silence": ("import time; time.sleep(600)", "nothing came of Whole(None) for 10 s (--patience)"),
    "an early end": ("print('rank 0: process 1 serves')", "has ended too early"),
    "a rank too many": ("print('rank 3: 1 steps, 0 tokens lost experts')", "the program has no rank 3"),
    "another's process": (
        "print(f'rank {rank}: process 1 serves as generation 1\\nrank {rank}: call 1: active [1, 1, 1], 0 of 1 tokens lost', flush=True)\n"
        "import time; time.sleep(600)",
        "says that it is process 1, which it is not",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wv_chaos_tells_of_a_program_that_does_something_else(tmp_path, name):
    body, words = WRONG[name]
    program = tmp_path / "program.py"
    program.write_text(f"import os\nrank = os.environ['WARPVERBS_RANK']\n{body}\n")
    # In place of torchrun, which takes seconds.
    (tmp_path / "python").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$6"\n')
    (tmp_path / "python").chmod(0o755)
    options = ("--program", str(program), "--ranks", "3", "--patience", "10" if name == "silence" else "100")
    ended = wv_chaos(*options, "--python", str(tmp_path / "python"))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert words in ended.stderr
    assert ended.stdout == ""
    # Nothing of it is left: what was killed may be seen for a moment.
    until = time.monotonic() + LONG
    while left := [each for each in _processes() if f"{program}\0".encode() in _command(each)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(("option", "value"), [("--minutes", "1"), ("--tokens", "8"), ("--etcd", "1"), ("--only", "kills")])
def test_wv_chaos_refuses_what_such_a_program_knows_nothing_of(option, value):
    ended = wv_chaos("--program", str(EXAMPLE), option, value)
    assert ended.returncode == 2
    assert "cannot be used with" in ended.stderr
