"""What a layer can be made for, and what is set of it: placements, layouts, formats, masks, deadlines, calls without a combine."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import groups
import pytest
import torch
import torch.distributed as dist

import warpverbs
from warpverbs import deep_ep

#: Ends a hang.
LONG = 60.0
SHAPE: dict[str, Any] = {"hidden": 64, "experts": 4, "top_k": 2, "max_tokens": 4}


def team(deadline: float = LONG) -> warpverbs.Team:
    return warpverbs.Team(deadline=deadline, join_timeout=LONG)


def batch(rank: int, tokens: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens that differ by rank and row; the choices of each are an expert of rank 0 and one of rank 1."""
    x = (torch.arange(tokens * 64).view(tokens, 64) % 31 + rank).to(torch.bfloat16)
    experts = torch.tensor([[token % 2, 2 + token % 2] for token in range(tokens)])
    return x, experts, torch.tensor([[0.25, 0.75]] * tokens)


def whole(call: warpverbs.Call) -> None:
    """A call to experts that give their tokens back brings the sum of all weights: the tokens."""
    x, experts, weights = batch(call.moe.team.rank)
    got = call.dispatch(x, experts, weights)
    assert torch.equal(call.combine(got.x).out, x)
    call.check()


def abandoned(count: str) -> None:
    """Calls that turn out to have no combine have ended, and a change of members does not wait for them."""
    with team() as own:
        moe = warpverbs.Moe(own, "abandoned", **SHAPE)
        call = moe.call()
        with warpverbs.Group(own, moe, lease=LONG) as group:
            group.wait("serving", LONG)
            own.barrier("serving")
            for _ in range(int(count)):
                call.dispatch(*batch(own.rank))
                call.abandon()
            assert moe.progress() == (int(count), int(count))
            own.barrier("abandoned")
            if own.rank == 1:
                group.leave(LONG)
                return
            view = group.view
            assert view is not None
            assert group.wait_view(view.epoch + 1, LONG).members == {0: 1}
            x, experts, weights = batch(0)
            got = call.dispatch(x, experts, weights)
            result = call.combine(got.x)
            assert result.token_valid.tolist() == [0] * 3
            assert torch.equal(result.out, x * 0.25)


def abandoned_batches() -> None:
    """A batch of a buffer that is abandoned is over, and later ones are whole."""
    with groups.world() as group:
        buffer = deep_ep.Buffer(group, low_latency_mode=True, explicitly_destroy=True, deadline=LONG, join_timeout=LONG)
        x, ids = torch.ones(4, 128, dtype=torch.bfloat16), torch.tensor([[0, 3]] * 4)

        def dispatch() -> Any:
            rows, _, handle, _, hook = buffer.low_latency_dispatch(x, ids, 4, 4, use_fp8=False, return_recv_hook=True)
            return rows, handle, hook

        for _ in range(5):
            _, handle, hook = dispatch()
            with pytest.raises(warpverbs.Refused, match="has not been called"):
                buffer.abandon(handle)
            hook()
            buffer.abandon(handle)
            with pytest.raises(warpverbs.Refused, match="is over"):
                buffer.abandon(handle)
        rows, handle, hook = dispatch()
        hook()
        (layer,) = buffer._place._layers
        assert layer.moe.progress() == (6, 5)
        out, _, hook = buffer.low_latency_combine(rows, ids, torch.full((4, 2), 0.5), handle, return_recv_hook=True)
        with pytest.raises(warpverbs.Refused, match="hook of"):
            buffer.abandon(handle)
        hook()
        assert torch.equal(out, x)
        buffer.destroy()


def table() -> None:
    """A table says which rank holds which expert, in the order of its local numbers; an expert may be at two ranks."""
    held = [[3, 0], [2, 1, 0]]
    with team() as own:
        moe = warpverbs.Moe(own, "table", placement=held, **SHAPE)
        assert (moe.local_experts(), moe.room) == (held[own.rank], 3)
        call = moe.call()
        x, experts, weights = batch(own.rank)
        got = call.dispatch(x, experts, weights)
        for place, expert in enumerate(moe.local_experts()):
            if expert != 0:
                assert int(got.counts[place]) == 2 * int((experts == expert).sum())
        assert torch.equal(call.combine(got.x).out, x)
    # A rank that fails tells its team.
    with warpverbs.Team(0, 1, "") as alone:
        for wrong, words in (([[0, 4]], "4"), ([[0, 0]], "twice"), ([[0], [1]], "on 2 ranks")):
            with pytest.raises(warpverbs.Refused, match=words):
                warpverbs.Moe(alone, "wrong", placement=wrong, **SHAPE)


def policy() -> None:
    """Behind a change of members the experts are where the policy says, or the table for these members."""
    with team() as own:
        layers = [warpverbs.Moe(own, name, local_experts=4, **SHAPE) for name in ("spread", "table")]
        for moe in layers:
            with pytest.raises(warpverbs.Refused, match=r"best.*fixed and spread"):
                moe.set_placement_policy("best")
            moe.set_placement_policy("spread")
        layers[1].set_placement_of([0], [[3, 1, 2], []])
        for wrong, words in ((([], None), "0"), (([2], None), "2"), (([0], [[4], []]), "4")):
            with pytest.raises(warpverbs.Refused, match=words):
                moe.set_placement_of(*wrong)
        members = [warpverbs.Group(own, layers[0], lease=LONG)]
        members[0].wait("serving", LONG)
        own.barrier("serving")
        whole(layers[0].call())
        if own.rank == 0:
            members[0].wait_view(2, LONG)
            assert layers[0].local_experts() == [0, 1, 2, 3]
            whole(layers[0].call())
        else:
            members[0].leave(LONG)
        members[0].close()


def table_of_members() -> None:
    """The table of some members outranks the policy."""
    with team() as own:
        moe = warpverbs.Moe(own, "table", local_experts=4, **SHAPE)
        moe.set_placement_policy("spread")
        moe.set_placement_of([0], [[3, 1, 2, 0], []])
        with warpverbs.Group(own, moe, lease=LONG) as group:
            group.wait("serving", LONG)
            own.barrier("serving")
            if own.rank == 1:
                group.leave(LONG)
                return
            group.wait_view(2, LONG)
            assert moe.local_experts() == [3, 1, 2, 0]
            whole(moe.call())


def by_rank() -> None:
    """Rows by source rank, with the local experts of each and their weights; what combine takes is summed over the experts."""
    with team() as own:
        call = warpverbs.Moe(own, "by-rank", layout="rank", **SHAPE).call()
        x, experts, weights = batch(own.rank)
        # The last token goes to the other rank alone, and the middle one nowhere.
        experts[2, own.rank] = -1
        experts[1] = -1
        got = call.dispatch(x, experts, weights)
        call.check()
        assert got.counts.tolist() == [1 + (source != own.rank) for source in range(2)]
        y = torch.zeros_like(got.x)
        for source, count in enumerate(got.counts.tolist()):
            theirs, choices, shares = batch(source)
            for row in range(count):
                token = int(got.src_info[source, row])
                assert torch.equal(got.x[source, row], theirs[token])
                mine = got.experts[source, row]
                assert mine[own.rank] == choices[token, own.rank] - 2 * own.rank
                taken = mine >= 0
                assert torch.equal(got.weights[source, row][taken], shares[token][taken])
                y[source, row] = got.x[source, row] * got.weights[source, row][taken].sum()
        share = torch.tensor([[1.0], [0.0], [float(weights[2, 1 - own.rank])]])
        assert torch.equal(call.combine(y).out, (x * share).to(torch.bfloat16))
        call.check()


def unweighted() -> None:
    """Without weights a token is the sum of what its experts gave back, whatever weights dispatch or combine has, in one launch or two."""
    with team() as own:
        x, experts, weights = batch(own.rank)
        experts[2, 0] = -1
        chosen = (experts >= 0).sum(1, keepdim=True)
        for returns in ("sums", "rows"):
            call = warpverbs.Moe(own, returns, returns=returns, **SHAPE).call()
            for phases in (1, 2):
                got = call.dispatch(x, experts, weights)
                if phases == 1:
                    with pytest.raises(warpverbs.Refused, match="weights are given with unweighted=True"):
                        call.combine(got.x, weights=weights, unweighted=True)
                    out = call.combine(got.x, unweighted=True).out
                else:
                    call.combine_send(got.x, unweighted=True)
                    with pytest.raises(warpverbs.Refused, match="weights are given with unweighted=True"):
                        call.combine_receive(weights=weights)
                    out = call.combine_receive().out
                call.check()
                assert torch.equal(out, (x * chosen).to(torch.bfloat16)), (returns, phases)
            got = call.dispatch(x, experts, weights)
            share = torch.where(experts >= 0, weights, 0).sum(1, keepdim=True)
            assert torch.equal(call.combine(got.x).out, (x * share).to(torch.bfloat16))
            call.check()


def waits() -> None:
    """Each phase that receives adds what it waited for the other rank, and nothing for the own one; the tensors are the caller's."""
    with team() as own:
        call = warpverbs.Moe(own, "waits", **SHAPE).call()
        x, experts, weights = batch(own.rank)
        out, back = call.moe.received(wait_ns=True), torch.full((2,), 7, dtype=torch.int64)
        out.wait_ns += 7
        before = 7, 7
        for _ in range(3):
            got = call.dispatch(x, experts, weights, out=out)
            combined = call.combine(got.x, wait_ns=back)
            assert combined.wait_ns is back
            assert torch.equal(combined.out, x)
            for ns, least in zip((out.wait_ns, back), before, strict=True):
                assert int(ns[own.rank]) == 7, ns
                assert int(ns[1 - own.rank]) > least, (ns, before)
            before = int(out.wait_ns[1 - own.rank]), int(back[1 - own.rank])


def masked() -> None:
    """A rank that is set inactive is in no result; a token that lost experts may be divided by what is left of its weights."""
    with team() as own:
        moe = warpverbs.Moe(own, "masked", **SHAPE)
        call = moe.call()
        x, experts, weights = batch(own.rank)
        with pytest.raises(warpverbs.Refused, match="3"):
            moe.set_active([True] * 3)
        share = float(weights[0, own.rank])
        for renormalise in (False, True):
            moe.set_active([rank == own.rank for rank in range(2)])
            got = call.dispatch(x, experts, weights)
            result = call.combine(got.x, renormalise=renormalise)
            assert result.active.tolist() == [int(rank == own.rank) for rank in range(2)]
            assert result.token_valid.tolist() == [0] * 3
            assert torch.equal(result.out, x if renormalise else (x * share).to(torch.bfloat16))
        moe.set_active([True, True])
        own.barrier("active")
        whole(call)


def deadlines() -> None:
    """The first calls wait as long as others may need to load, later ones as long as the steady deadline. The error names the missing
    rank."""
    steady = 0.05
    with team() as own:
        moe = warpverbs.Moe(own, "deadlines", **SHAPE)
        for wrong in ((0.0,), (1.0, -1.0), (float("nan"),)):
            with pytest.raises((warpverbs.Refused, warpverbs.ConfigError)):
                moe.set_deadlines(*wrong)
        moe.set_deadlines(steady, warm=LONG, warm_calls=1)
        own.barrier("set")
        call = moe.call()
        waited = Path(os.environ["WARPVERBS_STORE"].removeprefix("file://"), "waited")
        if own.rank == 0:
            # Tells when this rank has waited for longer than the steady deadline.
            threading.Timer(10 * steady, waited.touch).start()
        else:
            until = time.monotonic() + LONG
            while not waited.exists():
                assert time.monotonic() < until
                time.sleep(0.005)
        whole(call)
        own.barrier("warm")
        if own.rank == 0:
            call.dispatch(*batch(0))
            report = call.report()
            assert (report.complete, report.ranks, report.phase) == (False, (1,), 1), report
            assert "rank 1" in str(moe.last_fault())
            assert moe.suspected() == [1]
        own.barrier("late")


def opaque() -> None:
    """Tokens and scales of bytes arrive as they are; a token of the largest and of the smallest size, too."""
    with team() as own:
        for payload, scale in ((48, 8), (16, 0), (1024, 16)):
            call = warpverbs.Moe(own, f"opaque-{payload}", format=(payload, scale), **SHAPE).call()
            x, experts, weights = batch(own.rank)

            def of(rank: int, width: int, begin: int) -> torch.Tensor:
                return (torch.arange(3 * width).view(3, width) * 7 + begin + rank).to(torch.uint8)

            tokens, scales = of(own.rank, payload, 1), of(own.rank, scale, 2) if scale else None
            got = call.dispatch(tokens, experts, weights, scales=scales)
            call.check()
            for place, expert in enumerate(call.moe.local_experts()):
                begin_count = got.layout_range[place].tolist()
                for source, packed in enumerate(begin_count):
                    first, count = packed >> 32, packed & 0xFFFFFFFF
                    chosen = (experts == expert).any(1).nonzero().flatten()
                    assert count == len(chosen)
                    found = got.src_info[place, first : first + count].long()
                    assert torch.equal(found.sort().values, chosen)
                    assert torch.equal(got.x[place, first : first + count], of(source, payload, 1)[found])
                    if scale:
                        assert torch.equal(got.scales[place, first : first + count], of(source, scale, 2)[found])
            y = torch.ones(*got.x.shape[:2], 64, dtype=torch.bfloat16)
            assert torch.equal(call.combine(y).out, torch.ones_like(x))
            call.check()
            if scale:
                with pytest.raises(warpverbs.Refused, match=f"{scale} bytes of them"):
                    call.dispatch(tokens, experts, weights)
        for wrong in ((0, 0), (17, 0), (16, 3), (1 << 20, 0)):
            with pytest.raises(warpverbs.Refused):
                warpverbs.Moe.required_bytes(2, format=wrong, **SHAPE)


def different_shapes() -> None:
    """Ranks whose first dispatch under DeepEP's names has another H or maxT are named, with what they differ in."""
    with groups.world():
        for name, mine in {"hidden": (128, 256), "max_tokens": (4, 5)}.items():
            buffer = deep_ep.Buffer(dist.new_group([0, 1]), low_latency_mode=True, deadline=LONG, join_timeout=LONG)
            own = mine[buffer.rank]
            hidden, most = (own, 4) if name == "hidden" else (128, own)
            x, ids = torch.ones(4, hidden, dtype=torch.bfloat16), torch.tensor([[0, 3]] * 4)
            with pytest.raises(warpverbs.Error, match=rf"{name} is .* at rank . but .* at rank ."):
                buffer.low_latency_dispatch(x, ids, most, 4, use_fp8=False)
