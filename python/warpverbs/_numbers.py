"""Numbers in options and environment variables, written as in the ``WARPVERBS_*`` variables."""

from __future__ import annotations

import argparse
import operator
import os
import re
from typing import SupportsIndex

from .errors import Refused

_WHOLE = re.compile(r"0|[1-9][0-9]*|0x[0-9a-fA-F]+")
_WHOLE_FORM = "a whole number, decimal or with 0x, without a sign and without zeros before it"


def whole(text: str) -> int | None:
    """The number that ``text`` is, if it is one."""
    return int(text, 0) if _WHOLE.fullmatch(text) else None


def whole_option(text: str) -> int:
    """As the type of an option of ``argparse``."""
    number = whole(text)
    if number is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not {_WHOLE_FORM}")
    return number


def of_variable(name: str, default: int) -> int:
    """The number that an environment variable is; ``default`` where it is not set."""
    value = os.environ.get(name)
    if value is None:
        return default
    number = whole(value)
    if number is None:
        raise Refused(f"{name} is {value!r}; it must be {_WHOLE_FORM}")
    return number


def check_whole(name: str, value: object, least: int, most: int) -> None:
    """Refuses what is no whole number of this range. ``True`` is none; numbers of numpy are."""
    number = None if isinstance(value, bool) or not isinstance(value, SupportsIndex) else operator.index(value)
    if number is None or not least <= number <= most:
        raise Refused(f"{name} is {value!r}; it must be a whole number, {least} to {most}")
