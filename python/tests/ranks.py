"""``ranks.py RANKS STORE MODULE:FUNCTION [ARGUMENT..]``: calls a function in a process for each rank, and ends with the first bad
status. The ranks meet in the directory STORE; with no rank the function makes its own. Where one fails, the others get a few seconds
to end by themselves.

``ranks.py`` alone makes such a run for each line of its standard input. A line is the list of arguments in JSON. The output of the run
goes to the files ``out`` and ``err`` in STORE. It answers with a line, the status. A run is a fork of this process, which has imported
torch and nothing else. So no run needs seconds for that, and none affects another."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn

#: How long the other ranks may go on after one that failed.
GRACE = 10


def rank(function: str, arguments: list[str]) -> None:
    module, _, name = function.partition(":")
    getattr(importlib.import_module(module), name)(*arguments)


def shared(number: int, store: str) -> dict[str, str]:
    """The variables that ``number`` ranks have in common, which meet in the directory ``store``."""
    return {
        "WARPVERBS_RANKS": str(number),
        "WARPVERBS_STORE": f"file://{store}",
        "WARPVERBS_GPU": os.environ.get("WARPVERBS_GPU", "simt"),
    }


def begin(number: int, environment: dict[str, str], function: str, arguments: list[str], finalize: bool = False) -> int:
    """Forks rank `number`: it needs no seconds to read torch, and has no device yet. With `finalize` the rank ends as any Python does,
    which takes torch a second or more; else what was registered for the end runs."""
    # What is here stays as it is, so that no child copies it to collect it.
    gc.freeze()
    child = os.fork()
    if child == 0:
        os.environ.update({**environment, "WARPVERBS_RANK": str(number)})
        rank(function, arguments)
        if not finalize:
            atexit._run_exitfuncs()
            end(0)
        sys.exit(0)
    return child


def end(status: int) -> NoReturn:
    """Ends this process at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def run(ranks: int, store: str, function: str, *arguments: str) -> int:
    """Calls a function at each rank; returns the first bad status. With no rank it is called here, with STORE before its arguments."""
    if ranks == 0:
        rank(function, [store, *arguments])
        return 0
    environment = shared(ranks, store)
    running = [begin(each, environment, function, list(arguments)) for each in range(ranks)]
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


def serve() -> None:
    """Makes the runs that are asked for, one after another."""
    for line in sys.stdin:
        ranks, store, *rest = json.loads(line)
        child = os.fork()
        if child == 0:
            for descriptor, name in ((1, "out"), (2, "err")):
                written = os.open(f"{store}/../{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.dup2(written, descriptor)
                os.close(written)
            end(run(ranks, store, *rest))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    sys.path.insert(0, str(Path(__file__).parent))
    importlib.import_module("torch.distributed")
    importlib.import_module("pytest")
    if sys.argv[1:]:
        sys.exit(run(int(sys.argv[1]), *sys.argv[2:]))
    serve()


if __name__ == "__main__":
    main()
