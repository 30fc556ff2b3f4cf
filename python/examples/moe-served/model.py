"""A small MoE language model with random weights, the same in each process."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import normalize, silu

VOCABULARY, HIDDEN, INNER, LAYERS, EXPERTS, TOP_K = 64, 128, 256, 2, 8, 2

#: What computes the experts of one layer: (layer, tokens, chosen experts, weights) -> tokens.
Experts = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.routers = nn.ParameterList(torch.randn(HIDDEN, EXPERTS) for _ in range(LAYERS))
        self.up = nn.ParameterList(torch.randn(EXPERTS, HIDDEN, INNER) / HIDDEN**0.5 for _ in range(LAYERS))
        self.down = nn.ParameterList(torch.randn(EXPERTS, INNER, HIDDEN) / INNER**0.5 for _ in range(LAYERS))
        self.bfloat16()

    def expert(self, layer: int, number: int, x: torch.Tensor) -> torch.Tensor:
        return silu(x @ self.up[layer][number]) @ self.down[layer][number]

    def forward(self, prompts: torch.Tensor, experts: Experts) -> torch.Tensor:
        """The logits of each prompt's next token. The mean of the earlier tokens takes the place of attention."""
        x = self.embedding(prompts)
        for layer in range(LAYERS):
            x = x + (x.float().cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]).bfloat16()
            flat = normalize(x.float(), dim=-1).bfloat16().flatten(0, 1) * HIDDEN**0.5
            weights, chosen = (flat @ self.routers[layer]).float().softmax(-1).topk(TOP_K)
            x = x + experts(layer, flat, chosen, weights).view(x.shape)
        return (x[:, -1] @ self.embedding.weight.T).float()

    def all_here(self, layer: int, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Experts of one process, for comparison."""
        out = torch.zeros(x.shape)
        for choice in range(TOP_K):
            for token, number in enumerate(chosen[:, choice].tolist()):
                out[token] += weights[token, choice] * self.expert(layer, number, x[token]).float()
        return out.bfloat16()
