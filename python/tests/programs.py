"""Programs of several ranks as a user starts them: on software HCAs, watched line by line, and gone when they end."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

#: The directory in which the commands of the document are typed.
EXAMPLES = Path(__file__).parents[1] / "examples"
#: Ends a hang: the longest wait for a line and for the end, seconds.
LONG = 3600.0 if os.environ.get("WV_TEST_FULL") else 240.0


class Program:
    """A command under ``python -m warpverbs.sim``, whose ranks meet in the directory ``store``."""

    def __init__(self, command: list[str], store: Path, **variables: str) -> None:
        self.store, self.lines = store, list[str]()
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "WARPVERBS_GPU": os.environ.get("WARPVERBS_GPU", "simt"),
            "OMP_NUM_THREADS": "1",
            "TORCHDYNAMO_DISABLE": "1",
            "PROGRAM_OF_TEST": str(store),
            **variables,
        }
        self._errors = (store / "stderr").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "warpverbs.sim", "--", *command],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=EXAMPLES,
        )
        self._queue: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._over = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._queue.put(line.rstrip("\n"))
        self._queue.put(None)

    def __iter__(self) -> Iterator[str]:
        """Lines as they come, until the end of all ranks."""
        while not self._over:
            try:
                line = self._queue.get(timeout=LONG)
            except queue.Empty:
                raise AssertionError(f"no line for {LONG} seconds:\n{self.text()}") from None
            if line is None:
                self._over = True
                return
            self.lines.append(line)
            yield line

    def text(self) -> str:
        self._errors.flush()
        return "\n".join(self.lines) + "\n" + (self.store / "stderr").read_text()

    def end(self) -> int:
        """Reads what is left and waits for the end; no process may be left."""
        for _ in self:
            pass
        status = self._process.wait(LONG)
        assert self.processes() == [], self.text()
        return status

    def processes(self) -> list[int]:
        """Those that this program has started, and that live."""
        return [pid for pid in _processes() if _belongs(pid, self.store)]

    def __enter__(self) -> Program:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while left := self.processes():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.05)
        self._process.wait()
        self._reader.join()
        self._errors.close()


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _belongs(pid: int, store: Path) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return status != "Z" and f"PROGRAM_OF_TEST={store}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
