"""Numbers in options and variables are written in one way, and others are refused by name."""

from __future__ import annotations

import argparse

import pytest

from warpverbs import _numbers, doctor
from warpverbs.errors import Refused

#: Python's `int` takes all of these but the last three, and `float` takes the last ones.
ODD = ("+4", "-4", "04", "00", " 4", "4 ", "4_0", "\u0664", "0b1", "0o7", "0X4", "0x", "0x+4", "0x_4", "", "x", "inf", "nan", "1e3")


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("10", 10), ("0x0f", 15), ("0xF", 15), ("1" * 30, int("1" * 30))])
def test_a_whole_number_is_decimal_or_hexadecimal(text, number):
    assert _numbers.whole(text) == _numbers.whole_option(text) == number


@pytest.mark.parametrize(("text", "number"), [("0", 0.0), ("2", 2.0), ("0.5", 0.5), ("10.25", 10.25)])
def test_a_fraction_is_digits_with_a_point_between_them(text, number):
    assert doctor.fraction(text) == number


@pytest.mark.parametrize("text", ODD)
def test_other_spellings_are_refused_with_the_value(text, monkeypatch):
    for read in (_numbers.whole_option, doctor.fraction):
        with pytest.raises(argparse.ArgumentTypeError) as refused:
            read(text)
        assert repr(text) in str(refused.value)
    monkeypatch.setenv("WORLD_SIZE", text)
    with pytest.raises(Refused) as refused:
        _numbers.of_variable("WORLD_SIZE", 1)
    assert str(refused.value).startswith(f"WORLD_SIZE is {text!r}; it must be a whole number")


def test_a_variable_that_is_not_set_has_its_default(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert _numbers.of_variable("WORLD_SIZE", 7) == 7
    monkeypatch.setenv("WORLD_SIZE", "0x10")
    assert _numbers.of_variable("WORLD_SIZE", 7) == 16
