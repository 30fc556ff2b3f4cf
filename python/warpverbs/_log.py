"""Events of the runtime as records of the logger ``warpverbs``.

A thread of Python's own calls the handlers. The interpreter may end it in a handler that takes long: no frame of Rust is below that.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading

from ._native import end_log, next_events


def start() -> None:
    """Starts the thread. The native module calls this with its first event."""
    threading.Thread(target=_hand_over, name="log to Python", daemon=True).start()


def _hand_over() -> None:
    while True:
        _tell(*next_events())


def _tell(events: list[tuple[int, str]], left_out: int) -> None:
    log = logging.getLogger("warpverbs").log
    if left_out:
        log(logging.WARNING, "%d events were left out: too many others waited for a handler", left_out)
    for level, words in events:
        try:
            # The words are no pattern.
            log(level, "%s", words)
        except Exception:
            sys.excepthook(*sys.exc_info())


def _end() -> None:
    _tell(*end_log())


# What is registered first runs last: what ends engines and teams at exit is registered after this, and its events are still handed over.
atexit.register(_end)
