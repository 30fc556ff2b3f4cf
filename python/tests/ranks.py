"""``ranks.py RANKS STORE MODULE:FUNCTION [ARGUMENT..]``: calls a function in a process for each rank, and ends with the first bad
status. The ranks meet in the directory STORE. Where one fails, the others get a few seconds to end by themselves."""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import signal
import sys
import time
from pathlib import Path

#: How long the other ranks may go on behind one that failed.
GRACE = 10


def rank(function: str, arguments: list[str]) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


def begin(number: int, environment: dict[str, str], function: str, arguments: list[str], finalize: bool = False) -> int:
    """Forks rank `number`. This process has read torch and nothing else: no rank needs seconds for that, and none has a device yet.
    With `finalize` the rank ends as any Python does, which takes torch a second or more; else what was registered for the end runs."""
    # What is here stays as it is, so that no child copies it to collect it.
    gc.freeze()
    child = os.fork()
    if child == 0:
        os.environ.update({**environment, "WARPVERBS_RANK": str(number)})
        rank(function, arguments)
        if not finalize:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        sys.exit(0)
    return child


def main() -> int:
    ranks, store = int(sys.argv[1]), sys.argv[2]
    shared = {
        "WARPVERBS_RANKS": str(ranks),
        "WARPVERBS_STORE": f"file://{store}",
        "WARPVERBS_GPU": os.environ.get("WARPVERBS_GPU", "simt"),
    }
    os.environ["OMP_NUM_THREADS"] = "1"
    importlib.import_module("torch.distributed")
    importlib.import_module("pytest")
    running = [begin(each, shared, sys.argv[3], sys.argv[4:]) for each in range(ranks)]
    status, until = 0, None
    while running:
        for child in running:
            ended, how = os.waitpid(child, os.WNOHANG)
            if ended:
                running.remove(child)
                status = status or os.waitstatus_to_exitcode(how)
                break
        else:
            if status and until is None:
                until = time.monotonic() + GRACE
            if until is not None and time.monotonic() > until:
                for child in running:
                    os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
    return status


if __name__ == "__main__":
    sys.exit(main())
