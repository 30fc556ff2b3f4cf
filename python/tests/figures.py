"""What tests measure: pytest shows it after its results, also of tests that pass."""

from __future__ import annotations

#: What the test that runs has told.
TOLD: list[str] = []


def tell(*lines: str) -> None:
    """Shows the lines at the end of the run."""
    TOLD.extend(lines)
    print(*lines, sep="\n")
