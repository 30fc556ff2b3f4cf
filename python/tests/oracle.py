"""What dispatch and combine must give, in plain torch, and ranks that compare the package with it.

The oracle shares no code with Warpverbs. Every rank makes the tokens of all ranks from the same seed, so it knows what it must
receive without asking anybody. Sums are in f32, each product and each sum rounded to it:

- ``returns="sums"``: the rank of the experts adds ``weight * y`` in ascending k and rounds to BF16. The source adds these in the
  order of the ranks, and rounds to BF16.
- ``returns="rows"``: the source adds ``weight * y`` in ascending k, and rounds to BF16.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import torch

import warpverbs


@dataclass(frozen=True)
class Case:
    """One shape of a layer, and how tokens choose."""

    hidden: int = 128
    experts: int = 6
    top_k: int = 2
    max_tokens: int = 16
    format: str = "bf16"
    layout: str = "expert"
    returns: str = "sums"
    #: ``random``, ``one`` (all tokens to expert 0), ``holes`` (some choices are -1), ``empty`` (rank 0 has no token).
    choices: str = "random"
    #: By launches of one phase each.
    apart: bool = False


@dataclass(frozen=True)
class Batch:
    x: torch.Tensor
    experts: torch.Tensor
    weights: torch.Tensor


def batches(case: Case, ranks: int, seed: int) -> list[Batch]:
    """The tokens of every rank."""
    made = []
    for rank in range(ranks):
        random = torch.Generator().manual_seed(seed * 1000 + rank)
        tokens = int(torch.randint(1, case.max_tokens + 1, (), generator=random))
        if case.choices == "empty" and rank == 0:
            tokens = 0
        x = torch.randn(tokens, case.hidden, generator=random).to(torch.bfloat16)
        order = torch.rand(tokens, case.experts, generator=random).argsort(dim=1)
        experts = order[:, : case.top_k].to(torch.int32).contiguous()
        if case.choices == "one":
            experts = torch.full((tokens, case.top_k), -1, dtype=torch.int32)
            experts[:, 0] = 0
        if case.choices == "holes":
            experts[torch.rand(tokens, case.top_k, generator=random) < 0.3] = -1
        weights = torch.rand(tokens, case.top_k, generator=random)
        made.append(Batch(x, experts, weights))
    return made


def homes(case: Case, ranks: int) -> list[int]:
    """The rank of each expert: contiguous blocks, the first ones of one more."""
    each, more = divmod(case.experts, ranks)
    return [rank for rank in range(ranks) for _ in range(each + (rank < more))]


def expert(number: int, x: torch.Tensor) -> torch.Tensor:
    """What an expert makes of rows, each operation rounded to BF16."""
    return x * torch.tensor(1 + number / 4, dtype=torch.bfloat16) + torch.tensor(number, dtype=torch.bfloat16)


def rows_of(batch: Batch, number: int) -> list[int]:
    """The tokens of a batch that chose an expert, in their order."""
    return [int(token) for token in (batch.experts == number).any(dim=1).nonzero().flatten()]


def combined(case: Case, batch: Batch, ranks: int, seen: torch.Tensor) -> torch.Tensor:
    """What combine must give for ``batch``, whose tokens experts have seen as ``seen``."""
    home = homes(case, ranks)
    out = torch.zeros(len(batch.x), case.hidden, dtype=torch.bfloat16)
    for token in range(len(batch.x)):
        parts: dict[int, torch.Tensor] = {}
        for k in range(case.top_k):
            number = int(batch.experts[token, k])
            if number < 0:
                continue
            row = expert(number, seen[token]).float() * batch.weights[token, k]
            key = home[number] if case.returns == "sums" else 0
            parts[key] = parts[key] + row if key in parts else row
        total = torch.zeros(case.hidden)
        for key in sorted(parts):
            part = parts[key].to(torch.bfloat16).float() if case.returns == "sums" else parts[key]
            total = total + part if key != sorted(parts)[0] else part
        out[token] = total.to(torch.bfloat16)
    return out


def check_received(case: Case, got: warpverbs.Received, all_batches: list[Batch], rank: int) -> None:
    """Every row that an expert must get has arrived once, from the right token."""
    ranks, rows = len(all_batches), case.max_tokens
    own = [number for number, home in enumerate(homes(case, ranks)) if home == rank]
    for local, number in enumerate(own):
        at = 0
        for source, batch in enumerate(all_batches):
            tokens = rows_of(batch, number)
            begin, count = divmod(int(got.layout_range[local, source]), 1 << 32)
            assert (count, begin) == (len(tokens), at) or count == len(tokens) == 0, (number, source, begin, count)
            found = got.src_info[local, begin : begin + count].tolist()
            assert sorted(found) == tokens, (number, source, found, tokens)
            if case.format == "bf16":
                assert torch.equal(got.x[local, begin : begin + count], batch.x[found]), (number, source)
            at += count
        assert int(got.counts[local]) == at <= ranks * rows


def seen_by_experts(case: Case, got: warpverbs.Received) -> torch.Tensor:
    """The rows as BF16: what FP8 has left of them."""
    if case.format == "bf16":
        return got.x
    scales = got.scales
    if case.format == "fp8-ue8m0":
        exponents = scales.contiguous().view(torch.uint8)[..., : case.hidden // 128]
        scales = torch.ldexp(torch.tensor(1.0), exponents.to(torch.int32) - 127)
    wide = got.x.float().unflatten(-1, (-1, 128)) * scales.unsqueeze(-1)
    return wide.flatten(-2).to(torch.bfloat16)


def one(case: Case, moe: warpverbs.Moe, call: warpverbs.Call, seed: int) -> None:
    """One dispatch and combine, compared with what they must give."""
    rank, ranks = moe.team.rank, moe.team.ranks
    all_batches = batches(case, ranks, seed)
    own = all_batches[rank]
    weights = own.weights if case.returns == "sums" else None
    if case.apart:
        call.dispatch_send(own.x, own.experts, weights)
        got = call.dispatch_receive()
    else:
        got = call.dispatch(own.x, own.experts, weights)
    call.check()
    assert got.active.tolist() == [1] * ranks
    check_received(case, got, all_batches, rank)
    seen = seen_by_experts(case, got)
    y = torch.zeros(moe.room, ranks * case.max_tokens, case.hidden, dtype=torch.bfloat16)
    for local, number in enumerate(moe.local_experts()):
        count = int(got.counts[local])
        y[local, :count] = expert(number, seen[local, :count])
    weights = own.weights if case.returns == "rows" else None
    if case.apart:
        call.combine_send(y)
        result = call.combine_receive(weights=weights)
    else:
        result = call.combine(y, weights=weights)
    call.check()
    assert result.token_valid.tolist() == [1] * len(own.x)
    if case.format == "bf16":
        expected = combined(case, own, ranks, own.x)
        assert torch.equal(result.out, expected), (result.out - expected).abs().max()
    elif len(own.x):
        expected = combined(case, own, ranks, own.x).float()
        error = (result.out.float() - expected).norm() / expected.norm()
        assert error < 0.05, error


CASES = [
    Case(),
    Case(apart=True),
    Case(returns="rows", top_k=3),
    Case(experts=7, top_k=4, choices="holes"),
    Case(choices="one"),
    Case(choices="empty", returns="rows", apart=True),
    Case(format="fp8", hidden=256),
    Case(format="fp8-pow2", hidden=256, returns="rows"),
    Case(format="fp8-ue8m0", hidden=1024, apart=True),
    Case(hidden=2048, max_tokens=4, top_k=6),
]


#: Layers of one team: each takes three of its 16 windows.
LAYERS = 5


def grid(seeds: str) -> None:
    """Every case, with so many seeds; prints a line of JSON for each."""
    for first in range(0, len(CASES), LAYERS):
        store = f"{os.environ['WARPVERBS_STORE']}/{first}"
        os.makedirs(store.removeprefix("file://"), exist_ok=True)
        with warpverbs.Team(store=store, deadline=60, join_timeout=60) as team:
            for number in range(first, min(first + LAYERS, len(CASES))):
                case_of_grid(team, number, int(seeds))


def case_of_grid(team: warpverbs.Team, number: int, seeds: int) -> None:
    case = CASES[number]
    moe = warpverbs.Moe(
        team,
        f"case{number}",
        hidden=case.hidden,
        experts=case.experts,
        top_k=case.top_k,
        max_tokens=case.max_tokens,
        format=case.format,
        returns=case.returns,
    )
    call = moe.call()
    for seed in range(seeds):
        try:
            one(case, moe, call, seed)
        except AssertionError as error:
            raise AssertionError(f"rank {team.rank}, {case}, seed {seed}: {error}") from error
    if team.rank == 0:
        print(json.dumps({"case": number, "seeds": seeds}), flush=True)
