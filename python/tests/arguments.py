"""The tables of arguments in the README."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"


def rows_of(heading: str) -> dict[tuple[str, str], str]:
    """What the table below ``heading`` says of each argument of each call."""
    section = README.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (used|ignored|refused) \|", section, re.MULTILINE)
    table = {(call, argument): what for call, argument, what in rows}
    assert len(table) == len(rows), "an argument stands twice in the table"
    return table


def arguments_of(calls: Mapping[str, Callable[..., Any]]) -> set[tuple[str, str]]:
    """Every argument of these calls that has a name."""
    return {
        (call, name)
        for call, function in calls.items()
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self" and parameter.kind is not parameter.VAR_KEYWORD
    }
