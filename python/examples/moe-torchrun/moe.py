"""A MoE block whose experts lie at all ranks of a torchrun, beside the same block in one process."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import silu

import warpverbs

HIDDEN, INNER, EXPERTS, TOP_K, TOKENS = 256, 512, 8, 2, 32


class Block(nn.Module):
    """A router and experts, all in one process."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, INNER, HIDDEN) / HIDDEN**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, INNER) / INNER**0.5)

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        weights, experts = self.router(x).float().softmax(-1).topk(TOP_K)
        return experts, weights / weights.sum(-1, keepdim=True)

    def expert(self, number: int, x: torch.Tensor) -> torch.Tensor:
        return silu(x @ self.up[number].T) @ self.down[number].T

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        experts, weights = self.route(x)
        out = torch.zeros(x.shape)
        for choice in range(TOP_K):
            for token, number in enumerate(experts[:, choice].tolist()):
                out[token] += weights[token, choice] * self.expert(number, x[token]).float()
        return out.to(x.dtype)


class Spread(nn.Module):
    """The same block over the ranks of a team: each rank computes its own experts for the tokens of all."""

    def __init__(self, block: Block, team: warpverbs.Team) -> None:
        super().__init__()
        self.block = block
        self.moe = warpverbs.Moe(team, "block", hidden=HIDDEN, experts=EXPERTS, top_k=TOP_K, max_tokens=TOKENS)
        self.call = self.moe.call()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        experts, weights = self.block.route(x)
        got = self.call.dispatch(x, experts.int(), weights)
        y = torch.empty_like(got.x)
        for place, number in enumerate(self.moe.local_experts()):
            rows = int(got.counts[place])
            y[place, :rows] = self.block.expert(number, got.x[place, :rows])
        return self.call.combine(y).out


@torch.no_grad()
def main() -> int:
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    block = Block().bfloat16()
    with warpverbs.Team.from_group() as team:
        spread = Spread(block, team)
        x = torch.randn(TOKENS, HIDDEN, generator=torch.Generator().manual_seed(team.rank)).bfloat16()
        alone, together = block(x).float(), spread(x).float()
        far = float((together - alone).norm() / alone.norm())
        sys.stdout.write(f"rank {team.rank}: experts {list(spread.moe.local_experts())}, {TOKENS} tokens, off by {far:.1%}\n")
    return int(far > 0.01)


if __name__ == "__main__":
    sys.exit(main())
