"""Ctrl-C ends every wait for other ranks, and for the store in which they meet."""

from __future__ import annotations

import installed
import pytest


def test_ctrl_c_ends_a_bring_up_and_the_others_are_told(run_ranks):
    run_ranks(1, "ctrl_c:bring_up").check()


@pytest.mark.parametrize("function", ["barrier", "leave"])
def test_two_ranks(run_ranks, function):
    run_ranks(2, f"ctrl_c:{function}").check()


@pytest.mark.skipif(installed.etcd() is None, reason="needs etcd: apt install etcd-server, then pytest test_ctrl_c.py")
def test_ctrl_c_ends_calls_of_a_store_that_stands_still(run_ranks):
    run_ranks(1, "ctrl_c:store_that_stands_still").check()
