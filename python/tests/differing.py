"""Ranks that pass arguments which differ: each learns which argument, and two ranks with their values; none is masked for it."""

from __future__ import annotations

import os
import time
from typing import Any

import groups
import pytest
import torch
import torch.distributed as dist

import warpverbs
from warpverbs import deep_ep, mooncake_ep

LONG = groups.LONG
#: The longest wait of a phase where a rank is missed, seconds.
SHORT = 1.5
MOST, HIDDEN, EXPERTS, ODD = 64, 128, 8, 1
TOKENS = 4
#: An expert of each rank.
ALL = [0, 2, 4, 6]


class Calls:
    """Calls of a buffer, whose ranks may be masked."""

    def __init__(self, of: str, masks: bool, deadline: float, store: str | None = None) -> None:
        group = dist.group.WORLD
        self.masks, self.us, self.ranks = masks, int(deadline * 1e6), group.size()
        self.active = torch.ones(self.ranks, dtype=torch.int32) if masks else None
        self.deep_ep: Any = None
        self.mooncake: Any = None
        if of == "deep_ep":
            self.deep_ep = deep_ep.Buffer(
                group, low_latency_mode=True, enable_shrink=masks, deadline=deadline, warm_deadline=deadline, join_timeout=LONG, store=store
            )
        else:
            self.mooncake = mooncake_ep.Buffer(group, join_timeout=LONG, store=store, lease=10.0)

    def dispatch(self, ids: list[int], most: int = MOST, experts: int = EXPERTS, fp8: bool = False) -> tuple[Any, ...]:
        x = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16)
        topk = torch.tensor([ids] * TOKENS)
        if self.deep_ep is not None:
            rows, _, handle, *_ = self.deep_ep.low_latency_dispatch(x, topk, most, experts, use_fp8=fp8)
        else:
            rows, _, handle, *_ = self.mooncake.dispatch(x, topk, self.active, most, experts, self.us, use_fp8=fp8)
        return rows, topk, handle

    def combine(self, rows: Any, topk: Any, handle: Any) -> torch.Tensor:
        weights = torch.full(topk.shape, 1 / topk.shape[1])
        if isinstance(rows, tuple):
            x, scales = rows
            groups_of = x.float().view(*x.shape[:-1], -1, 128)
            rows = (groups_of * scales.unsqueeze(-1)).view(x.shape).bfloat16()
        if self.deep_ep is not None:
            return self.deep_ep.low_latency_combine(rows, topk, weights, handle)[0]
        return self.mooncake.combine(rows, topk, weights, self.active, self.us, handle)[0]

    def sums(self, ids: list[int] = ALL, **shape: Any) -> torch.Tensor:
        """What comes back of tokens of ones, by experts that return what they get."""
        return self.combine(*self.dispatch(ids, **shape))

    def whole(self, **shape: Any) -> None:
        sums = self.sums(**shape)
        assert bool((sums == 1).all()), (sums[:, 0], self.masked())

    def masked(self) -> list[int]:
        if not self.masks:
            return []
        mask = torch.empty(self.ranks, dtype=torch.int32)
        if self.deep_ep is not None:
            self.deep_ep.low_latency_query_mask_buffer(mask)
        else:
            assert self.active is not None
            mask = 1 - self.active
        return mask.nonzero().flatten().tolist()

    def differs(self, call: Any, argument: str, usual: str, odd: str) -> warpverbs.MoeError:
        """``call`` raises what ranks differ in, within one deadline, and masks none."""
        began = time.monotonic()
        with pytest.raises(warpverbs.MoeError) as raised:
            call()
        # Of one phase: it waits as long as two deadlines at most.
        assert time.monotonic() - began < 2 * max(self.us / 1e6, LONG)
        error = raised.value
        assert type(error) is warpverbs.MoeError, repr(error)
        assert error.argument == argument, error
        values = dict(error.values)
        assert values.pop(ODD) == odd, error
        assert list(values.values()) == [usual], error
        assert self.masked() == [], error
        assert "enable_shrink" not in str(error)
        assert "active_ranks" not in str(error)
        return error


#: What rank 1 passes, and how errors name it: argument, its value, that of the others.
SHAPES = {
    "maxT": ({"most": 32}, "max_tokens of a call", "64", "32"),
    "FP8": ({"fp8": True}, "format", "Bf16", "Fp8(F32)"),
}


def shapes(of: str, masked: str, what: str) -> None:
    """Rank 1 calls with another maxT or format, after calls of that shape at all ranks. Each rank has rows of it."""
    rank, _ = groups.start()
    calls = Calls(of, masked == "masked", LONG)
    shape, argument, usual, odd = SHAPES[what]
    calls.whole()
    for _ in range(3):
        dist.barrier()
        # No wait for a deadline: the rows themselves say it.
        error = calls.differs(lambda: calls.dispatch(ALL, **(shape if rank == ODD else {})), argument, usual, odd)
        assert set(error.ranks) <= ({ODD} if rank != ODD else {0, 2, 3}), error
        assert error.ranks
        # The next calls have the same arguments again, and the other shape at all ranks is whole, too.
        calls.whole()
        calls.whole(**shape)
    groups.finish()


def without_rows(of: str, masked: str) -> None:
    """Rank 3 has no rows of rank 1, which calls with another maxT: it learns of it from rank 0, which goes no further in the call."""
    rank, _ = groups.start()
    calls = Calls(of, masked == "masked", SHORT)
    calls.whole()
    dist.barrier()
    shape = {"most": 32} if rank == ODD else {}
    ids = [6, 7, 0, -1] if rank == 3 else [0, 2, 4, -1]
    argument, usual, odd = SHAPES["maxT"][1:]
    if rank == 3:
        sent = calls.dispatch(ids)
        calls.differs(lambda: calls.combine(*sent), argument, usual, odd)
    else:
        calls.differs(lambda: calls.dispatch(ids, **shape), argument, usual, odd)
    dist.barrier()
    calls.whole()
    groups.finish()


def other_layer(of: str, masked: str) -> None:
    """After ten calls rank 1 calls with other E and K. No rank has memory for that, so rank 1 waits for the others to make it."""
    rank, _ = groups.start()
    calls = Calls(of, masked == "masked", SHORT)
    for _ in range(10):
        calls.whole()
    dist.barrier()
    if rank == ODD:
        calls.differs(lambda: calls.dispatch([0, 4], experts=16), "experts", "8", "16")
    else:
        error = calls.differs(lambda: calls.dispatch(ALL), "experts", "8", "16")
        assert error.ranks == (ODD,)
    dist.barrier()
    # Rank 1 is in step again, and all ranks may call with either together.
    for _ in range(3):
        calls.whole()
        calls.whole(ids=[0, 4, 8, 12], experts=16)
    groups.finish()


def first_use(of: str, masked: str) -> None:
    """The first call of all: no rank has the memory of any shape yet."""
    rank, _ = groups.start()
    calls = Calls(of, masked == "masked", SHORT)
    shape = {"most": 32} if rank == ODD else {}
    error = calls.differs(lambda: calls.dispatch(ALL, **shape), "max_tokens", "64", "32")
    assert error.call is None
    dist.barrier()
    calls.whole()
    groups.finish()


def refused_alone() -> None:
    """A buffer of Mooncake's names with a store of its own has one layer: rank 1, which asks for another, is refused by its own buffer,
    and the others learn why they miss it."""
    place = f"{os.environ['WARPVERBS_STORE']}/own"
    os.makedirs(place.removeprefix("file://"), 0o700, exist_ok=True)
    rank, _ = groups.start()
    calls = Calls("mooncake_ep", True, SHORT, place)
    calls.whole()
    dist.barrier()
    if rank == ODD:
        with pytest.raises(warpverbs.Refused, match="one layer"):
            calls.dispatch([0, 4], experts=16)
        assert calls.masked() == []
    else:
        calls.differs(lambda: calls.dispatch(ALL), "experts", "8", "16")
    dist.barrier()
    calls.mooncake.destroy()
    groups.finish()


def raw() -> None:
    """Calls of a layer by Warpverbs' own names say the same, when they are checked."""
    rank, _ = groups.start()
    with warpverbs.Team.from_group(dist.group.WORLD) as team:
        moe = warpverbs.Moe(team, "layer", hidden=HIDDEN, experts=EXPERTS, top_k=4, max_tokens=MOST)
        call = moe.call()
        x, ids = torch.ones(TOKENS, HIDDEN, dtype=torch.bfloat16), torch.tensor([ALL] * TOKENS)
        call.dispatch(x, ids, max_tokens=32 if rank == ODD else None)
        with pytest.raises(warpverbs.MoeError, match=r"max_tokens of a call is .* at rank . but .* pass the same at all ranks") as raised:
            call.check()
        assert raised.value.values[ODD] == "32"
    groups.finish()
