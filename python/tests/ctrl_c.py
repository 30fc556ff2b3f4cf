"""Ctrl-C while one process waits for others, or for a store that does not answer: it comes at once, and nothing is half done."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import installed
import pytest

import warpverbs

#: Ends a hang. No wait that is interrupted here would be over before.
LONG = 60.0
PACKAGE = Path(warpverbs.__file__).parent
SHAPE: dict[str, Any] = {"hidden": 64, "experts": 2, "top_k": 1, "max_tokens": 4}


def folder() -> Path:
    return Path(os.environ["WARPVERBS_STORE"].removeprefix("file://"))


def waits_in(name: str) -> bool:
    """Whether the main thread is in the package's function of this name."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    while frame is not None:
        if frame.f_code.co_name == name and Path(frame.f_code.co_filename).parent == PACKAGE:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def interrupted(call: Callable[[], object], waits: Callable[[], bool]) -> None:
    """Makes ``call``, and sends Ctrl-C when it waits. It ends by that, and not by an error that came first."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def send() -> None:
        until = time.monotonic() + LONG
        while not waits() and time.monotonic() < until:
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(KeyboardInterrupt) as found:
        call()
    sender.join()
    assert found.value.__context__ is None, found.value.__context__


def bring_up() -> None:
    """Rank 0 waits for rank 1, which comes later and reads why rank 0 has gone. Rank 0 leaves nothing behind."""
    left: list[tuple[int, int]] = []
    for run in ("once", "again"):
        place = folder() / run
        place.mkdir(mode=0o700)
        own: dict[str, Any] = {"ranks": 2, "store": f"file://{place}", "join_timeout": LONG, "gpu": "simt"}
        interrupted(partial(warpverbs.Team, rank=0, **own), lambda place=place: waits_in("_start") and any(place.iterdir()))
        with pytest.raises(warpverbs.TeamError, match=r"rank 0 .*interrupted.*KeyboardInterrupt"):
            warpverbs.Team(rank=1, **own)
        until = time.monotonic() + LONG
        # Threads that have been joined may be seen for a moment.
        while left and any(now > before for now, before in zip(open_now(), left[0], strict=True)):
            assert time.monotonic() < until, (open_now(), left)
            time.sleep(0.01)
        left.append(open_now())


def open_now() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def barrier() -> None:
    """Ctrl-C in a barrier, and while a layer is made together. Then the others read the error of this rank's program."""
    team = warpverbs.Team(join_timeout=LONG)
    if team.rank == 0:
        interrupted(lambda: team.barrier("never"), lambda: waits_in("barrier"))
        interrupted(lambda: warpverbs.Moe(team, "layer", **SHAPE), lambda: waits_in("__init__"))
        (folder() / "over").touch()
    while not (folder() / "over").exists():
        time.sleep(0.005)
    team.close()


def leave() -> None:
    """Rank 1 stands still, so rank 0 waits for it when it leaves. It has asked to leave: after Ctrl-C it does."""
    team = warpverbs.Team(join_timeout=LONG)
    group = warpverbs.Group(team, warpverbs.Moe(team, "layer", **SHAPE), lease=LONG)
    group.wait("serving", LONG)
    team.barrier("serving")
    if team.rank == 1:
        (folder() / "stopped").write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        team.close()
        return
    other = stopped()
    interrupted(lambda: group.leave(LONG), lambda: waits_in("leave"))
    assert group.state in ("serving", "changing")
    os.kill(other, signal.SIGCONT)
    group.leave(LONG)
    assert group.state == "left"
    group.close()
    team.close()


def stopped() -> int:
    """Waits until rank 1 stands still; returns its process."""
    until = time.monotonic() + LONG
    while time.monotonic() < until:
        try:
            other = int((folder() / "stopped").read_text())
            if Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                return other
        except (OSError, ValueError):
            pass
        time.sleep(0.005)
    raise AssertionError("rank 1 does not stand still")


@contextmanager
def etcd() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """An etcd of one member: what names it as a store, and its process."""
    for number in range(5):
        # Ports are free when they are picked, and may be taken a moment later.
        port, process = start_etcd(folder() / f"etcd{number}")
        try:
            until = time.monotonic() + LONG
            while process.poll() is None and not answers(port):
                assert time.monotonic() < until, "etcd does not answer"
                time.sleep(0.02)
            if process.poll() is None:
                yield f"etcd://127.0.0.1:{port}/run", process
                return
        finally:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
    raise AssertionError("etcd ends when it is started, five times")


def start_etcd(data: Path) -> tuple[int, subprocess.Popen[bytes]]:
    """Its port for clients, and its process."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    client, peer = (f"http://127.0.0.1:{port}" for port in ports)
    program = installed.etcd()
    assert program is not None
    command = [program, "--data-dir", str(data), "--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    return ports[0], subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def store_that_stands_still() -> None:
    """An etcd stops while a rank opens it, waits in it for another rank, or starts a group in it."""
    with etcd() as (place, process):
        own = {"join_timeout": LONG, "gpu": "simt"}
        interrupted(lambda: warpverbs.Team(0, 2, place, **own), lambda: waits_in("_start"))
        with warpverbs.Team(0, 1, f"{place}-alone", **own) as team:
            moe = warpverbs.Moe(team, "layer", **SHAPE)
            process.send_signal(signal.SIGSTOP)
            interrupted(lambda: warpverbs.Team(0, 2, f"{place}-still", **own), lambda: waits_in("_start"))
            interrupted(lambda: warpverbs.Group(team, moe), lambda: waits_in("__init__"))
            process.send_signal(signal.SIGCONT)
            # The rank has no group yet.
            with warpverbs.Group(team, moe, lease=LONG) as group:
                group.wait("serving", LONG)
