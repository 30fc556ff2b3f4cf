"""The examples that have a directory and a page: each prints what its page shows."""

from __future__ import annotations

import re
from pathlib import Path

from programs import EXAMPLES, Program

#: Parts of a line that differ between runs.
ANY = re.compile(r"at port \d+|off by .*")


def page(example: str) -> tuple[list[str], list[str]]:
    """The command that the page of an example gives, in the folder of examples, and the lines that it shows."""
    text = (EXAMPLES / example / "README.md").read_text()
    commands, lines = re.findall(r"^```(?:sh|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (command,) = re.findall(r"python -m warpverbs\.sim -- (.*)", commands)
    return command.replace("python/examples/", "").split(), lines.splitlines()


def ran(example: str, store: Path) -> tuple[list[str], list[str]]:
    """The lines of a run, and those of the page, without what differs."""
    command, shown = page(example)
    with Program(command, store, TMPDIR=str(store)) as program:
        assert program.end() == 0, program.text()
    return [ANY.sub("", line) for line in program.lines], [ANY.sub("", line) for line in shown]


def test_a_block_over_four_ranks_gives_what_one_process_gives(tmp_path):
    lines, shown = ran("moe-torchrun", tmp_path)
    assert sorted(lines) == sorted(shown)


def test_answers_name_lost_experts_until_the_killed_rank_is_back(tmp_path):
    lines, shown = ran("moe-served", tmp_path)
    first = [f"rank {rank} serves as generation 1 " for rank in range(4)]
    assert lines == first + shown
