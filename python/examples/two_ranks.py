"""Two ranks share four experts: `python -m warpverbs.sim -- python two_ranks.py`. Expert e multiplies by e + 1."""

import tempfile

import torch

import warpverbs


def rank(number: int, store: str) -> None:
    with warpverbs.Team(number, 2, store, deadline=30) as team:
        moe = warpverbs.Moe(team, "layer", hidden=64, experts=4, top_k=2, max_tokens=16)
        call, x = moe.call(), torch.ones(1, 64, dtype=torch.bfloat16)
        experts, weights = torch.tensor([[0, 3]], dtype=torch.int32), torch.tensor([[0.75, 0.25]])
        rows = call.dispatch(x, experts, weights).x  # [local experts, ranks * max_tokens, hidden]
        factors = torch.tensor(moe.local_experts(), dtype=torch.bfloat16) + 1
        out = call.combine(rows * factors[:, None, None]).out
        print(f"rank {number}: {out[0, 0].item()}", flush=True)


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, args=(f"file://{tempfile.mkdtemp()}",), nprocs=2)
