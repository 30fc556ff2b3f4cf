"""Ranks that are stopped, so that the HCAs of the others go on sending to them: what calls have no memory for meanwhile, and say so."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any, NoReturn

import differing
import groups
import ranks
import torch

import warpverbs

LONG = groups.LONG
DEADLINE = 1.0
#: Packets are sent again for 4.096 us * 2^20 * 8, 34 seconds: for longer than a test runs.
PATIENT = {"WARPVERBS_ACK_TIMEOUT": "20", "WARPVERBS_RETRY_COUNT": "7"}
SHAPE: dict[str, Any] = {"hidden": 64, "experts": 4, "top_k": 4, "max_tokens": 4, "returns": "rows"}


class Living:
    """The ranks that are not stopped yet. A barrier of all would wait for those that are."""

    def __init__(self) -> None:
        self.rank, self._store = int(os.environ["WARPVERBS_RANK"]), Path(os.environ["WARPVERBS_STORE"].removeprefix("file://"))

    def meet(self, what: str, number: int) -> None:
        """The first ``number`` ranks meet."""
        self.tell(f"{what} at {self.rank}")
        for other in range(number):
            self.wait_for(f"{what} at {other}")

    def tell(self, word: str) -> None:
        (self._store / word).touch()

    def wait_for(self, word: str) -> None:
        until = time.monotonic() + LONG
        while not (self._store / word).exists():
            assert time.monotonic() < until, f"no rank has said {word!r}"
            time.sleep(0.005)

    def without(self, rank: int) -> None:
        """``rank`` stands still, and its HCA with it, which acknowledges nothing any more. The ranks below it go on after that."""
        self.meet(f"before {rank} stands still", rank + 1)
        if self.rank == rank:
            os.kill(os.getpid(), signal.SIGSTOP)
            raise AssertionError("this process was told to go on")
        self.wait_for(f"{rank} stands still")

    def finish(self, number: int) -> NoReturn:
        """The first ``number`` ranks end, and then the others are killed."""
        self.meet("over", number)
        self.tell("done")
        ranks.end(0)


def living(*stopped: int) -> Living | None:
    """``stopped`` go on in children that stand still later. Where a child was, this is None, when the others are done and it is killed."""
    os.environ.update(PATIENT)
    found = Living()
    if found.rank not in stopped:
        return found
    child = os.fork()
    if child == 0:
        # PR_SET_PDEATHSIG: no process stands still for ever where the run fails.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        return found
    how = os.waitpid(child, os.WUNTRACED)[1]
    assert os.WIFSTOPPED(how), os.waitstatus_to_exitcode(how)
    try:
        found.tell(f"{found.rank} stands still")
        found.wait_for("done")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return None


def whole(call: warpverbs.Call) -> warpverbs.Combined:
    """A call of one token to all experts, which give it back."""
    x, weights = torch.ones(1, SHAPE["hidden"], dtype=torch.bfloat16), torch.full((1, 4), 0.25)
    return call.combine(call.dispatch(x, torch.tensor([[0, 1, 2, 3]]), weights).x)


def pool(links: str) -> None:
    """Ranks 3 and 2 stop, one after another. The HCAs of ranks 0 and 1 keep a send buffer for each. Without ``links`` that may fail there
    is none for a later call: it sends nothing, and says so. With one link every call goes on."""
    others = living(2, 3)
    if others is None:
        return
    with warpverbs.Team(deadline=DEADLINE, join_timeout=LONG) as team:
        moe = warpverbs.Moe(team, "layer", failing_links=int(links), **SHAPE)
        call = moe.call()
        for _ in range(4):
            assert bool((whole(call).out == 1).all())
            report = call.check()
            assert (report.offered, report.unbuffered) == (True, 0), report
        for stops, share in ((3, 0.75), (2, 0.5)):
            others.without(stops)
            sums, report = whole(call), call.report()
            assert bool((sums.out == share).all()), (report, sums)
            assert set(report.ranks) == set(range(stops, 4)), report
        for later in (1, 2):
            sums, report = whole(call), call.report()
            if links == "0":
                assert (report.complete, report.unbuffered, moe.unbuffered) == (False, later, later), report
                assert "make the layer with more failing_links" in report.text
                assert bool((sums.out == 0).all()), (report, sums)
            else:
                assert (report.unbuffered, moe.unbuffered) == (0, 0), report
                assert bool((sums.out == 0.5).all()), (report, sums)
        others.finish(2)


class Calls(differing.Calls):
    """Calls whose combine sends from the memory that the buffer says."""

    @property
    def buffer(self) -> Any:
        return self.deep_ep or self.mooncake

    def next_buffer(self, handle: Any) -> torch.Tensor:
        if self.deep_ep is not None:
            return self.deep_ep.get_next_low_latency_combine_buffer(handle)
        return self.mooncake.get_next_combine_buffer(handle)

    def ahead(self) -> tuple[Any, ...]:
        """A batch that is sent, and received by a hook."""
        x, topk = torch.ones(differing.TOKENS, differing.HIDDEN, dtype=torch.bfloat16), torch.tensor([differing.ALL] * differing.TOKENS)
        shape = (differing.MOST, differing.EXPERTS)
        if self.deep_ep is not None:
            rows, _, handle, _, hook = self.deep_ep.low_latency_dispatch(x, topk, *shape, use_fp8=False, return_recv_hook=True)
        else:
            rows, _, handle, _, hook = self.mooncake.dispatch(x, topk, self.active, *shape, self.us, use_fp8=False, return_recv_hook=True)
        return rows, topk, handle, hook

    def zero_copy(self) -> tuple[torch.Tensor, bool]:
        """What comes back, and whether the layer's own memory was sent from."""
        rows, topk, handle = self.dispatch(differing.ALL)
        memory = self.next_buffer(handle)
        assert self.next_buffer(handle).data_ptr() == memory.data_ptr()
        memory.copy_(rows)
        rows.zero_()
        weights = torch.full(topk.shape, 0.25)
        if self.deep_ep is not None:
            sums = self.deep_ep.low_latency_combine(rows, topk, weights, handle, zero_copy=True)[0]
        else:
            sums = self.mooncake.combine(rows, topk, weights, self.active, self.us, handle, zero_copy=True)[0]
        (layer,) = self.buffer._place.made()
        return sums, memory.data_ptr() in [layer.moe.staging(set).data_ptr() for set in range(2)]


def zero_copy(of: str) -> None:
    """Rank 3 stops before its combine. The HCAs of the others go on reading what they send back to it: each second call, which is of the
    same set, gets other memory to send from. No call loses more than the experts of rank 3."""
    others = living(3)
    if others is None:
        return
    groups.start()
    calls = Calls(of, True, DEADLINE)
    for _ in range(4):
        sums, own = calls.zero_copy()
        assert (bool((sums == 1).all()), own) == (True, True), sums[:, 0]
    batch = calls.dispatch(differing.ALL)
    others.without(3)
    assert bool((calls.combine(*batch) == 0.75).all())
    for wanted in (True, False, True, False):
        sums, own = calls.zero_copy()
        assert (bool((sums == 0.75).all()), own, calls.masked()) == (True, wanted, [3]), sums[:, 0]
    assert calls.buffer.unbuffered == 0
    others.finish(3)


def exhausted(of: str) -> None:
    """Ranks 3 and 2 stop, one after another, each while two batches are sent to it. Their HCAs keep all four send buffers: later calls
    send nothing and are counted. They mask no rank more."""
    others = living(2, 3)
    if others is None:
        return
    groups.start()
    calls = Calls(of, True, DEADLINE)
    for _ in range(4):
        calls.whole()
    for stops, share in ((3, 0.75), (2, 0.5)):
        others.without(stops)
        batches = [calls.ahead() for _ in range(2)]
        for rows, topk, handle, hook in batches:
            hook()
            sums = calls.combine(rows, topk, handle)
            assert bool((sums == share).all()), (stops, sums[:, 0])
        assert calls.masked() == list(range(stops, 4))
        assert calls.buffer.unbuffered == 0
    for later in (1, 2):
        sums = calls.sums()
        assert bool((sums == 0).all()), sums[:, 0]
        assert (calls.buffer.unbuffered, calls.masked()) == (later, [2, 3])
    others.finish(2)
