"""A rank of ``wv chaos --buffer NAMES``: calls of a Buffer with masks, each checked, until ``wv`` says which call is the last.

``wv chaos`` starts each rank as ``python -m warpverbs._chaos``. It gives orders on standard input, and reads events on standard output,
one JSON object a line, as for the ranks of its own (``crates/demo/src/messages.rs`` and ``rank/instructions.rs``).
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from . import deep_ep, mooncake_ep
from ._numbers import whole_option
from .errors import MoeError

#: Ends a hang while the ranks meet, seconds.
LONG = 240.0
#: Experts of each rank, and choices of a token.
LOCAL, TOP_K = 4, 4
#: Calls before the run: the first ones of a buffer wait as long as ranks may need to load.
WARM = deep_ep.buffer.WARM_CALLS

_lock = threading.Lock()


def tell(message: dict[str, Any]) -> None:
    """One line to ``wv``, whole although two threads write."""
    with _lock:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


class Orders:
    """What ``wv`` has ordered so far."""

    def __init__(self) -> None:
        self.last = 0xFFFF_FFFF
        self.late = 0.0
        self.other = False
        #: The call before which this rank takes back all that it masks.
        self.take_back: int | None = None
        self.closed = False
        threading.Thread(target=self._follow, name="orders", daemon=True).start()

    def _follow(self) -> None:
        for line in sys.stdin:
            self._obey(json.loads(line))
        self.closed = True
        # Its end ends the rank, which may wait in a call.
        time.sleep(2)
        os._exit(1)

    def _obey(self, order: Any) -> None:
        if order == "arguments":
            self.other = True
            return
        ((name, value),) = order.items()
        if name == "last":
            self.last = value
        elif name == "late":
            self.late = value / 1000
        elif name == "take_back":
            self.take_back = value
        elif name == "faults":
            set_faults(value)
        else:
            fail(f"no such order for a program of Python: {name}")


def fail(message: str) -> None:
    tell({"failed": {"message": message, "remote": False}})
    os._exit(1)


def set_faults(spec: str) -> None:
    """Gives ``spec`` to the software HCA of this process."""
    call = ctypes.CDLL(None).softhca_set_faults
    call.argtypes, call.restype = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t), ctypes.c_size_t
    text = ctypes.create_string_buffer(512)
    length = call(spec.encode(), text, 512)
    if length:
        fail(text.raw[:length].decode(errors="replace"))


def addresses() -> list[str]:
    """The IPv4 address of each HCA of this process."""
    found = []
    devices = "/sys/class/infiniband"
    for device in sorted(os.listdir(devices)):
        gids = f"{devices}/{device}/ports/1/gids"
        for index in sorted(os.listdir(gids), key=int):
            with open(f"{gids}/{index}") as file:
                words = file.read().strip().split(":")
            if words[:5] == ["0000"] * 5 and words[5] == "ffff":
                number = int(words[6], 16) << 16 | int(words[7], 16)
                found.append(".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0)))
                break
    return found


def hold(folder: Path, ranks: int) -> None:
    """Holds the store of the ranks, whichever of them stands still, until its input ends."""
    store = dist.TCPStore("127.0.0.1", 0, ranks, True, timeout=datetime.timedelta(seconds=LONG), wait_for_workers=False)
    written = folder / "port.new"
    written.write_text(str(store.port))
    written.rename(folder / "port")
    sys.stdin.read()


def meet(folder: Path, rank: int, ranks: int) -> Any:
    """Makes the process group. Returns what keeps its store."""
    holder = None
    if rank == 0:
        plain = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        command = [sys.executable, "-m", "warpverbs._chaos", "--hold", str(folder), "--rank", str(ranks)]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, env=plain)
    until = time.monotonic() + LONG
    while not (folder / "port").exists():
        if time.monotonic() > until:
            fail(f"no store of the process group after {LONG} s")
        time.sleep(0.01)
    limit = datetime.timedelta(seconds=LONG)
    store = dist.TCPStore("127.0.0.1", int((folder / "port").read_text()), ranks, False, timeout=limit)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=limit)
    return holder


class Batch:
    """The tokens of one rank in one call. All numbers are exact in f32, so sums do not depend on their order."""

    def __init__(self, seed: int, call: int, rank: int, ranks: int, tokens: int, hidden: int) -> None:
        numbers = torch.Generator().manual_seed((seed * 1_000_003 + call) * 64 + rank)
        self.x = torch.randint(-8, 8, (tokens, hidden), generator=numbers).bfloat16()
        self.experts = torch.rand(tokens, LOCAL * ranks, generator=numbers).topk(TOP_K).indices
        self.weights = torch.full((tokens, TOP_K), 0.25)
        self.homes = self.experts // LOCAL

    def sums(self, seen: frozenset[int]) -> Any:
        """The sums of what the experts of these ranks make: expert e multiplies by e + 1."""
        there = torch.isin(self.homes, torch.tensor(sorted(seen), dtype=torch.int64))
        factors = ((self.experts + 1) * there).sum(1).float() * 0.25
        return (self.x.float() * factors[:, None]).bfloat16()

    def seen(self, sums: Any, likely: frozenset[int], ranks: int) -> frozenset[int] | None:
        """The ranks whose experts are in ``sums``, as many as explain them; None if no ranks do."""
        if torch.equal(sums, self.sums(likely)):
            return likely
        for count in range(ranks, -1, -1):
            for some in itertools.combinations(range(ranks), count):
                if torch.equal(sums, self.sums(frozenset(some))):
                    return frozenset(some)
        return None

    def losses(self, seen: frozenset[int], cause: Any) -> list[dict[str, Any]]:
        """The tokens that lack experts, by the ranks of these."""
        sets: dict[tuple[int, ...], int] = {}
        for homes in self.homes.tolist():
            lacks = tuple(sorted(set(homes) - seen))
            if lacks:
                sets[lacks] = sets.get(lacks, 0) + 1
        return [{"tokens": count, "of": list(of), "causes": [cause(rank) for rank in of]} for of, count in sorted(sets.items())]


class Ranks:
    """A Buffer of either names, with its mask."""

    def __init__(self, names: str, max_tokens: int, experts: int, deadline: float) -> None:
        self._max_tokens, self._experts, self._deadline = max_tokens, experts, deadline
        self.count = dist.get_world_size()
        self._active = torch.ones(self.count, dtype=torch.int32)
        self._deep: Any = None
        self._mooncake: Any = None
        if names == "deep_ep":
            self._deep = deep_ep.Buffer(
                dist.group.WORLD, low_latency_mode=True, enable_shrink=True, deadline=deadline, warm_deadline=LONG, join_timeout=LONG
            )
        else:
            self._mooncake = mooncake_ep.Buffer(dist.group.WORLD, deadline=LONG, join_timeout=LONG)

    def active(self) -> list[int]:
        """1 for each rank that takes part."""
        if self._deep is not None:
            self._deep.low_latency_query_mask_buffer(self._active)
            return [1 - masked for masked in self._active.tolist()]
        return list(self._active.tolist())

    def unbuffered(self) -> int:
        """Calls so far that found no free send buffer, and so sent nothing."""
        return int((self._deep if self._deep is not None else self._mooncake).unbuffered)

    def take_back(self) -> None:
        if self._deep is not None:
            self._deep.low_latency_clean_mask_buffer()
        else:
            self._active.fill_(1)

    def call(self, batch: Batch, rank: int, warm: bool, other: bool) -> Any:
        """One dispatch and combine. With ``other`` maxT is half of what the others pass."""
        most = self._max_tokens // 2 if other else self._max_tokens
        factors = torch.arange(rank * LOCAL, (rank + 1) * LOCAL).bfloat16() + 1
        if self._deep is not None:
            x, _, handle, _, _ = self._deep.low_latency_dispatch(batch.x, batch.experts, most, self._experts, use_fp8=False)
            return self._deep.low_latency_combine(x * factors[:, None, None], batch.experts, batch.weights, handle)[0]
        us = int((LONG if warm else self._deadline) * 1e6)
        x, _, handle, _, _ = self._mooncake.dispatch(batch.x, batch.experts, self._active, most, self._experts, us, use_fp8=False)
        y = x * factors[:, None, None]
        return self._mooncake.combine(y, batch.experts, batch.weights, self._active, us, handle)[0]


class Rank:
    def __init__(self, spec: dict[str, Any], names: str, rank: int) -> None:
        options = spec["options"]
        self.rank, self.began = rank, spec["began_us"]
        self.seed, self.tokens, self.hidden = options["seed"], options["tokens"], options["hidden"]
        self.deadline = spec["deadline_ms"] / 1000
        self.orders = Orders()
        folder = Path(spec["store"].removeprefix("file://"))
        self._holder = meet(folder, rank, options["ranks"])
        # A call of half the tokens is possible, and differs.
        self.buffer = Ranks(names, 2 * self.tokens, LOCAL * options["ranks"], self.deadline)

    def event(self, what: str, **more: Any) -> None:
        us = time.time_ns() // 1000 - self.began
        tell({"event": {"us": max(us, 0), "rank": self.rank, "generation": 1, "what": what, **more}})

    def watch_clock(self) -> None:
        """Reports when this process got no time for a quarter of a deadline."""

        def look() -> None:
            before = time.monotonic()
            while True:
                time.sleep(self.deadline / 40)
                now = time.monotonic()
                if now - before >= self.deadline / 4:
                    self.event("stood", ms=int((now - before) * 1000))
                before = now

        threading.Thread(target=look, name="clock", daemon=True).start()

    def step(self, number: int, warm: bool = False, other: bool = False) -> None:
        buffer, ranks = self.buffer, self.buffer.count
        batch = Batch(self.seed, number, self.rank, ranks, self.tokens, self.hidden)
        before, unbuffered = buffer.active(), buffer.unbuffered()
        start = time.monotonic()
        error = None
        try:
            sums = buffer.call(batch, self.rank, warm, other)
        except MoeError as raised:
            error = raised
        took = time.monotonic() - start
        active = buffer.active()
        if error is None:
            likely = frozenset(rank for rank in range(ranks) if active[rank] or rank == self.rank)
            seen = batch.seen(sums, likely, ranks)
            if seen is None:
                fail(f"call {number}: the sums are those of no ranks; active {before} before and {active} after it")
                return
        else:
            seen = frozenset()

        starved = buffer.unbuffered() != unbuffered

        def cause(of: int) -> str:
            if starved:
                return "no send buffer was free"
            if error is not None:
                return f"MoeError in {error.phase}" if getattr(error, "phase", None) else "MoeError"
            if of == self.rank:
                return "its own rows were not added"
            if not before[of]:
                return "masked before the call"
            return "not added, and active" if active[of] else "masked by the call"

        if warm:
            if len(seen) != ranks:
                fail(f"call {number}, before the first deed: only the experts of {sorted(seen)} are in the sums ({error})")
            return
        losses = batch.losses(seen, cause)
        self.event(
            "step",
            step=number,
            epoch=1,
            tokens=self.tokens,
            lost=sum(loss["tokens"] for loss in losses),
            missing=[of for of in range(ranks) if of not in seen and of != self.rank],
            losses=losses,
            took_us=int(took * 1e6),
        )

    def run(self) -> None:
        ranks, orders = self.buffer.count, self.orders
        for number in range(1, WARM + 1):
            self.step(number, warm=True)
        dist.barrier()
        self.watch_clock()
        gpu = os.environ.get("WARPVERBS_GPU", "simt")
        tell({"joined": {"device": "softhca", "soft": True, "gpu": gpu, "addresses": addresses(), "paths": []}})
        self.event("serves", epoch=1, members=list(range(ranks)), parted=[], commands=0, bytes=0)
        number, told = WARM, None
        while not orders.closed:
            if number >= orders.last:
                if told != orders.last:
                    told = orders.last
                    tell({"finished": {"step": told}})
                time.sleep(0.002)
                continue
            number += 1
            late, orders.late = orders.late, 0.0
            if late:
                time.sleep(late)
                self.event("slept")
            other, orders.other = orders.other, False
            at = orders.take_back
            if at is not None and number >= at:
                orders.take_back = None
                # From this call on each rank waits for the others, and a rank that was away may be far behind.
                dist.barrier()
                self.buffer.take_back()
            self.step(number, other=other)
            # No other rank paces a rank that masks them all. Before all ranks meet again the others would have to make as many calls as it.
            if sum(self.buffer.active()) == 1 and orders.take_back is None:
                time.sleep(self.deadline)
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
        sys.stdout.flush()
        # The others may have ended, and torch waits for them.
        os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--buffer", choices=("deep_ep", "mooncake_ep"))
    parser.add_argument("--spec", type=Path)
    parser.add_argument("--rank", type=whole_option, required=True)
    parser.add_argument("--hold", type=Path)
    given = parser.parse_args()
    if given.hold is not None:
        hold(given.hold, given.rank)
        return
    torch.set_num_threads(1)
    try:
        Rank(json.loads(given.spec.read_text()), given.buffer, given.rank).run()
    except Exception as error:
        fail(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
