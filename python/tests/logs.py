"""Processes that end while the runtime still has something to tell.

:func:`ends` starts such a process again and again and prints the status of each, with what it has told."""

from __future__ import annotations

import atexit
import builtins
import importlib
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from typing import Any

#: Ends a hang, seconds.
LONG = 60.0
#: Longer than the end of Python waits for a handler, seconds.
SLOW = 1.5

told: list[str] = []
kept: list[Any] = []
#: Set when a handler is called.
called = threading.Event()


class Kept(logging.Handler):
    """Keeps what it is told; each record takes it ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(logging.DEBUG)
        self._seconds = seconds

    def handle(self, record: logging.LogRecord) -> bool:
        # Without the lock of handlers, for which the end of Python waits.
        called.set()
        time.sleep(self._seconds)
        told.append(record.getMessage())
        return True


class Last:
    """An object that takes its time when the interpreter takes modules apart."""

    def __del__(self, sleep: Any = time.sleep, seconds: float = SLOW) -> None:
        # Globals are gone by then.
        sleep(seconds)


def listening(seconds: float = 0) -> str:
    """A handler hears all that the runtime tells, and at the end what it was told is printed. Nothing closes the engine before the end of
    Python does. Returns the engine's address."""
    # Before the package is imported: so it runs after all that the package does at the end.
    atexit.register(lambda: print(json.dumps(told), flush=True))
    logger = logging.getLogger("warpverbs")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(Kept(seconds))
    kept.append(importlib.import_module("warpverbs").Engine("a"))
    return str(kept[0].listen("127.0.0.1:0"))


def strange(address: str) -> None:
    """One that is no engine connects, of which the engine tells."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), LONG) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\n\r\n")
        # Until the engine has ended the connection.
        while stream.recv(1000):
            pass


class Meets:
    """Stands for an engine that is closed at the end: then a stranger connects."""

    def __init__(self, address: str, is_heard: bool) -> None:
        self._address, self._is_heard = address, is_heard

    def close(self) -> None:
        strange(self._address)
        assert not self._is_heard or called.wait(LONG)


def first_word_at_the_end(is_heard: bool = True) -> None:
    """The first that the runtime tells comes while what the program has left open is closed."""
    address = listening()
    kept.append(Meets(address, is_heard))
    engines = importlib.import_module("warpverbs.engine")._open
    engines.clear()
    engines.add(kept[-1])


def first_word_after_the_end() -> None:
    """The same, and nothing waits for it."""
    first_word_at_the_end(False)


def slow_handler() -> None:
    """A handler still runs when Python ends, and wants the GIL while modules are taken apart."""
    strange(listening(SLOW))
    assert called.wait(LONG)
    # This module's own names live as long as the handler's frame, and so does the thread of it.
    setattr(builtins, "kept by logs", Last())


def ends(store: str, function: str, times: str) -> None:
    """Calls ``function`` so often, in a process of its own each time."""
    program = f"import sys; sys.path.insert(0, {sys.path[0]!r}); import logs; logs.{function}()"
    found = []
    for _ in range(int(times)):
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=LONG, check=False)
        found.append((ran.returncode, json.loads(ran.stdout.splitlines()[-1]) if ran.stdout else [], ran.stderr))
    print(json.dumps(found))
