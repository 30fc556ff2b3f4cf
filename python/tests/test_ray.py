"""The example with an actor of Ray for each rank. Ray is big: full runs install it."""

from __future__ import annotations

import re
import sys
import tempfile
from importlib.util import find_spec

import pytest
from programs import Program
from test_elastic import RANKS, kill_ranks_and_watch

#: Before what an actor prints.
ACTOR = re.compile(r"^(\x1b\[\d+m)?\(Rank pid=\d+\)(\x1b\[0m)? ")


@pytest.mark.skipif(find_spec("ray") is None, reason="ray, with 260 MB, is not installed: ./x test full installs it")
def test_ray_starts_killed_ranks_again_and_no_sum_is_wrong(tmp_path):
    command = [sys.executable, "ray_elastic.py"]
    # Ray makes sockets in it, whose paths may have 107 characters.
    with tempfile.TemporaryDirectory(prefix="ray") as short:
        # Lines that are alike come from several ranks.
        variables = {"TMPDIR": short, "WARPVERBS_RANKS": str(RANKS), "RAY_DEDUP_LOGS": "0"}
        with Program(command, tmp_path, **variables) as program:
            kill_ranks_and_watch(program, lambda line: ACTOR.sub("", line))
