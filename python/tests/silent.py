"""A program that says nothing, as a run of one rank: in a process that has read torch, and none of the package."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def program(text: str, first: str = "") -> None:
    """Runs it to its end. It looks for modules in ``first`` first."""
    assert not [name for name in sys.modules if name.partition(".")[0] in ("warpverbs", "deep_ep", "mooncake")]
    if first:
        sys.path.insert(0, first)
    exec(compile(text, "<program>", "exec"), {"__name__": "__main__"})


def runs(run_ranks: Callable[..., Any], text: str, first: Path | None = None) -> None:
    """Such a process runs ``text`` to its end without a word."""
    ran = run_ranks(1, "silent:program", text, "" if first is None else str(first)).check()
    assert ran.text == ""
