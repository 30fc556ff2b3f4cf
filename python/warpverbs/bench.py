"""``python -m warpverbs.bench``: what the package costs on the host, beside what kernels, NICs and networks do.

Nothing runs on a device: the calls are those of a team of one rank on a CPU device and a software HCA. Launches of that device have ended
when they are made, and the HCA has nothing to do. No other program gets such a team. Goals are printed and never enforced.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _native
from ._numbers import whole_option
from .moe import Moe
from .team import Team

#: What a library of tensors is called; none may come with the package.
LIBRARIES = ("numpy", "torch")
#: Starts of Python that import the package.
STARTS = 9
#: Times that each cost is measured.
ROUNDS = 15
SHAPE: dict[str, Any] = {"hidden": 7168, "experts": 8, "top_k": 8, "max_tokens": 128}
#: Longest run of a child process, seconds.
LONG = 300.0


class Cost(NamedTuple):
    """One line: nanoseconds of the median and of the fastest round; no goal is 0."""

    what: str
    median_ns: float
    least_ns: float
    goal_ns: float


def main() -> None:
    """Prints the costs. The status is 1 if they cannot be measured."""
    parser = argparse.ArgumentParser(prog="python -m warpverbs.bench", description="Measures what the package costs on the host.")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--calls", type=whole_option, default=1000, help="calls in each round [default: 1000]")
    parser.add_argument("--only-calls", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.calls < 1:
        parser.error(f"--calls is {options.calls}; it must be at least 1")
    if options.only_calls:
        print(json.dumps(calls(options.calls)))
        return
    found = measure(options.calls)
    print(json.dumps(found) if options.json else text(found))


def measure(count: int) -> dict[str, Any]:
    """Measures everything that the program prints."""
    imported = imports()
    # Software HCAs run on every machine, and this process may have none.
    child = [sys.executable, "-m", "warpverbs.sim", "--", sys.executable, "-m", "warpverbs.bench", "--only-calls", f"--calls={count}"]
    of_calls = json.loads(output(child, WARPVERBS_DEVICE="auto"))
    return {
        "python": platform.python_version(),
        "torch": of_calls["torch"],
        "device": of_calls["device"],
        "kernels": "stubbed",
        "calls": count,
        "rounds": ROUNDS,
        "imports": imported["imports"],
        "costs": [imported["cost"], *of_calls["costs"]],
    }


def output(command: list[str], **variables: str) -> str:
    ended = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=LONG, check=False)
    if ended.returncode:
        sys.exit(f"warpverbs.bench: {' '.join(command)} ended with status {ended.returncode}:\n{ended.stderr.strip()}")
    return ended.stdout


#: Says how long the import took, and which libraries came with it.
IMPORT = """
import sys, time
before = set(sys.modules)
start = time.perf_counter_ns()
import warpverbs
taken = time.perf_counter_ns() - start
print(taken, *sorted({name.partition(".")[0] for name in set(sys.modules) - before} & set(%r)))
"""


def imports() -> dict[str, Any]:
    """The import of the package in a new Python, and the libraries of tensors that it has imported."""
    taken: list[int] = []
    came: set[str] = set()
    for _ in range(STARTS):
        first, *libraries = output([sys.executable, "-c", IMPORT % (LIBRARIES,)]).split()
        taken.append(int(first))
        came.update(libraries)
    cost = Cost("import warpverbs", statistics.median(taken), min(taken), 100e6)
    return {"cost": cost._asdict(), "imports": sorted(came)}


class Stubbed(Team):
    """A team whose kernels do not run."""

    def __init__(self) -> None:
        self._hold(_native.team_of_stubs(), False, False)


def calls(count: int) -> dict[str, Any]:
    """The costs of calls, in this process. Without torch, only the bare call."""
    team = Stubbed()
    given = (0, 0, 0, 0, 0, 0, 0, False, False, False, 0, 0)
    costs = [rounds("bare native call", count, lambda: _native.cross(given, 0, None), 1e3)]
    try:
        import torch  # noqa: PLC0415 The package itself must do without.
    except ImportError:
        version = None
    else:
        version = torch.__version__
        costs += of_phases(team, count) + of_buffers(team, count)
    return {"torch": version, "device": team.device, "costs": [cost._asdict() for cost in costs]}


def rounds(what: str, count: int, call: Callable[[], object], goal_ns: float = 0) -> Cost:
    """The time that one ``call`` takes."""
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(count):
            call()
        taken.append((time.perf_counter_ns() - start) / count)
    return Cost(what, statistics.median(taken), min(taken), goal_ns)


class Batch:
    """What a rank dispatches, and what its experts make of it."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415

        tokens, hidden, top_k = SHAPE["max_tokens"], SHAPE["hidden"], SHAPE["top_k"]
        self.x = torch.zeros(tokens, hidden, dtype=torch.bfloat16)
        self.experts = torch.arange(top_k).repeat(tokens, 1)
        self.weights = torch.ones(tokens, top_k)
        self.y = torch.zeros(SHAPE["experts"], tokens, hidden, dtype=torch.bfloat16)
        self.sums, self.valid = torch.empty_like(self.x), torch.empty(tokens, dtype=torch.uint8)


def of_phases(team: Team, count: int) -> list[Cost]:
    """The package's own calls, each as two launches."""
    moe = Moe(team, "phases", returns="rows", **SHAPE)
    call, batch, received = moe.call(), Batch(), moe.received()

    def dispatch() -> None:
        call.dispatch_send(batch.x, batch.experts)
        call.dispatch_receive(received)

    def step() -> None:
        dispatch()
        call.combine_send(batch.y)
        call.combine_receive(batch.sums, batch.weights, token_valid=batch.valid, active=received.active)

    return [rounds("Call: dispatch, outputs reused", count, dispatch), rounds("Call: dispatch and combine, outputs reused", count, step)]


class Group:
    """Stands for a process group, of which nothing is asked."""


def of_buffers(team: Team, count: int) -> list[Cost]:
    """DeepEP's calls, with hooks."""
    from .deep_ep import Buffer  # noqa: PLC0415 It imports torch.
    from .deep_ep._layers import Place  # noqa: PLC0415

    group, batch = Group(), Batch()
    here = type("Here", (Place,), {"_meet": lambda self, founders: team})
    Place._all[group] = here(group, None, None, {})
    tokens, experts = SHAPE["max_tokens"], SHAPE["experts"]

    def steps(buffer: Buffer) -> tuple[Callable[[], Any], Callable[[], None]]:
        def dispatch() -> Any:
            sent = buffer.low_latency_dispatch(batch.x, batch.experts, tokens, experts, use_fp8=False, return_recv_hook=True)
            _, _, handle, _, hook = sent
            if hook is not None:
                hook()
            return handle

        def step() -> None:
            _, _, hook = buffer.low_latency_combine(
                batch.y, batch.experts, batch.weights, dispatch(), return_recv_hook=True, out=batch.sums
            )
            if hook is not None:
                hook()

        return dispatch, step

    dispatch, step = steps(Buffer(group, low_latency_mode=True, reuse_outputs=True))
    costs = [
        rounds("Buffer: dispatch with hook, outputs reused", count, dispatch, 8e3),
        rounds("Buffer: dispatch and combine with hooks, outputs reused", count, step),
    ]
    dispatch, _ = steps(Buffer(group, low_latency_mode=True))
    return [*costs, rounds("Buffer: dispatch with hook", count, dispatch)]


def text(found: dict[str, Any]) -> str:
    """The same for people."""
    imported = ", ".join(found["imports"]) or "none"
    lines = [
        f"Python {found['python']}, torch {found['torch'] or 'cannot be imported'}, {found['device']}: no kernel runs",
        f"import warpverbs: {STARTS} starts; of {', '.join(LIBRARIES)} it imports {imported}",
        f"calls: {found['rounds']} rounds of {found['calls']}, {SHAPE['max_tokens']} tokens of {SHAPE['hidden']}",
        "",
        f"{'':56}{'median':>12}{'least':>12}{'goal':>12}",
    ]
    for cost in found["costs"]:
        goal = microseconds(cost["goal_ns"]) if cost["goal_ns"] else ""
        lines.append(f"{cost['what']:56}{microseconds(cost['median_ns']):>12}{microseconds(cost['least_ns']):>12}{goal:>12}")
    return "\n".join(lines)


def microseconds(ns: float) -> str:
    return f"{ns / 1e3:,.2f} us"


if __name__ == "__main__":
    main()
