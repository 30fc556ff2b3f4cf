"""What a call says that has missed a rank, or whose own tokens are refused. On the CPU that call itself says so."""

from __future__ import annotations

import os
import time
from typing import Any

import groups
import pytest
import torch
import torch.distributed as dist
from differing import ALL, EXPERTS, HIDDEN, MOST, TOKENS, Calls

import warpverbs

LONG = groups.LONG
#: The longest wait of a phase where a rank is missed, and what makes a rank late, seconds.
SHORT, SLEEP = 1.0, 2.5
ODD = 2

#: Choices that are refused, by what is wrong with them.
WRONG = {"beyond": [0, 2, 4, EXPERTS], "below": [0, 2, 4, -2], "twice": [0, 2, 4, 4], "far beyond": [0, 2, 4, 1 << 32]}


def late_in_combine() -> None:
    """Rank 2 sleeps between its dispatch and its combine, without masks. The combine of each other rank names it, and no rank waits for a
    later call to say so. Its own combine is whole: the others have sent what it asked for."""
    rank, _ = groups.start()
    calls = Calls("deep_ep", False, SHORT)
    calls.whole()
    dist.barrier()
    sent = calls.dispatch(ALL)
    dist.barrier()
    if rank == ODD:
        time.sleep(SLEEP)
        assert bool((calls.combine(*sent) == 1).all())
        # It learns by its next call that the others have given their buffer up.
        with pytest.raises(warpverbs.RankLost):
            calls.sums()
    else:
        with pytest.raises(warpverbs.RankLost, match="this call was not complete: combine receive") as lost:
            calls.combine(*sent)
        assert (lost.value.ranks, lost.value.phase) == ((ODD,), 3)
        with pytest.raises(warpverbs.RankLost):
            calls.deep_ep.check()
    dist.barrier()
    again = Calls("deep_ep", False, SHORT)
    again.whole()
    again.deep_ep.check()
    groups.finish()


def last_dispatch() -> None:
    """Rank 2 does not come to a dispatch that has no combine, and no call follows: :meth:`Buffer.check` names it."""
    rank, _ = groups.start()
    calls = Calls("deep_ep", False, SHORT)
    calls.whole()
    calls.deep_ep.check()
    dist.barrier()
    if rank != ODD:
        calls.dispatch(ALL)
        with pytest.raises(warpverbs.RankLost, match="an earlier call was not complete: dispatch receive") as lost:
            calls.deep_ep.check()
        assert lost.value.ranks == (ODD,)
    dist.barrier()
    groups.finish()


def by_hook(calls: Calls, ids: list[int]) -> Any:
    """A dispatch whose tokens a hook receives."""
    x, topk = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16), torch.tensor([ids] * TOKENS)
    return calls.deep_ep.low_latency_dispatch(x, topk, MOST, EXPERTS, use_fp8=False, return_recv_hook=True)


def refused(of: str, masked: str) -> None:
    """Rank 2 passes choices that are refused, and still serves the others. Its combine says so; their sums are whole."""
    rank, _ = groups.start()
    calls = Calls(of, masked == "masked", LONG)
    calls.whole()
    for number, wrong in enumerate(WRONG.values()):
        dist.barrier()
        if rank == ODD:
            if calls.deep_ep is not None and number % 2:
                rows, _, handle, _, hook = by_hook(calls, wrong)
                hook()
                sent = rows, torch.tensor([wrong] * TOKENS), handle
            else:
                sent = calls.dispatch(wrong)
            with pytest.raises(
                warpverbs.MoeError, match=rf"this call .*token 0 chooses expert {min(wrong[3], 2**31 - 1)}, which is"
            ) as raised:
                calls.combine(*sent)
            assert type(raised.value) is warpverbs.MoeError, repr(raised.value)
            assert (raised.value.ranks, raised.value.phase) == ((), 0)
            assert calls.masked() == []
        else:
            sums = calls.sums()
            assert bool((sums == 1).all()), sums[:, 0]
            if calls.deep_ep is not None and calls.masks:
                calls.deep_ep.low_latency_clean_mask_buffer()
            elif calls.active is not None:
                calls.active.fill_(1)
        dist.barrier()
        calls.whole()
        calls.whole()
        if calls.deep_ep is not None:
            calls.deep_ep.check()
    groups.finish()


def dropped_hook(phase: str) -> None:
    """The program changes the memory that a hook would have written, and drops the hook: one call says so, and the next is whole."""
    groups.start()
    calls = Calls("deep_ep", False, LONG)
    calls.whole()
    if phase == "dispatch":
        rows, *_, hook = by_hook(calls, ALL)
        rows.untyped_storage().resize_(0)
    else:
        rows, topk, handle = calls.dispatch(ALL)
        out, _, hook = calls.deep_ep.low_latency_combine(rows, topk, torch.ones(topk.shape), handle, return_recv_hook=True)
        out.untyped_storage().resize_(0)
    del hook
    with pytest.raises(warpverbs.Refused, match=rf"the hook of low_latency_{phase} of batch 1 was never called"):
        calls.dispatch(ALL)
    calls.whole()
    calls.whole()
    groups.finish()


def closed(what: str) -> None:
    """Rank 2 closes its team while the others wait for it, in a call or in what all do together: they hear it long before a deadline."""
    store = f"{os.environ['WARPVERBS_STORE']}/own"
    os.makedirs(store.removeprefix("file://"), 0o700, exist_ok=True)
    rank, ranks = groups.start()
    with warpverbs.Team.from_group(store=store, deadline=100 * LONG, join_timeout=100 * LONG) as team:
        moe = warpverbs.Moe(team, "layer", hidden=HIDDEN, experts=EXPERTS, top_k=4, max_tokens=MOST)
        call = moe.call()
        x, ids = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16), torch.tensor([ALL] * TOKENS, dtype=torch.int32)
        call.combine(call.dispatch(x, ids).x)
        call.check()
        team.barrier("called")
        if rank == ODD:
            team.close()
            dist.barrier()
            return
        waits = {
            "call": lambda: call.dispatch(x, ids),
            "barrier": lambda: team.barrier("another"),
            "layer": lambda: warpverbs.Moe(team, "another", hidden=HIDDEN, experts=EXPERTS, top_k=4, max_tokens=MOST),
        }
        with pytest.raises(warpverbs.TeamError, match=f"rank {ODD} has closed its team") as raised:
            waits[what]()
        # What all do together ends by the word of whoever has heard it first.
        assert raised.value.ranks in [(ODD,), *((each,) for each in range(ranks) if what != "call")]
        team.close()
        # Until then rank 2 lives.
        dist.barrier()


def again_without_a_rank() -> None:
    """A batch is combined once more when rank 2 is masked: rows have other places then, and no rank gets wrong sums."""
    rank, _ = groups.start()
    calls = Calls("deep_ep", True, LONG)
    sent = calls.dispatch(ALL)
    assert bool((calls.combine(*sent) == 1).all())
    assert bool((calls.combine(*sent) == 1).all())
    dist.barrier()
    for other in range(4):
        if (rank == ODD) != (other == ODD):
            calls.deep_ep.low_latency_update_mask_buffer(other, True)
    with pytest.raises(warpverbs.MoeError, match="cannot be combined once more: the ranks do not dispatch the rows that they did"):
        calls.combine(*sent)
    dist.barrier()
    calls.deep_ep.low_latency_clean_mask_buffer()
    calls.whole()
    groups.finish()


def divided() -> None:
    """Three ranks have 10 experts as 4, 3 and 3, and a buffer says so before it has made the layer, too."""
    rank, _ = groups.start()
    buffer = Calls("deep_ep", False, LONG).deep_ep
    before = buffer.local_experts(10)
    assert before == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]][rank]
    buffer.warm_up(MOST, HIDDEN, 10, 2)
    assert buffer.local_experts(10) == before
    groups.finish()
