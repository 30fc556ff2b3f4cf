"""Cases of a grid of tests that wait: all of them in full runs, else some that have each value."""

from __future__ import annotations

import itertools
import os

import pytest


def cases(names: str, sample: list[tuple[str, ...]], *values: tuple[str, ...]) -> pytest.MarkDecorator:
    """Parametrizes a test by ``sample``, or by all cases of ``values`` under ``WV_TEST_FULL``."""
    every = list(itertools.product(*values))
    for at, wanted in enumerate(values):
        assert {case[at] for case in sample} == set(wanted), f"the sample of {names} is {sample}; it must have each of {wanted}"
    assert set(sample) <= set(every), sample
    return pytest.mark.parametrize(names, every if os.environ.get("WV_TEST_FULL") else sample)
