"""Mixtral, Qwen3-MoE and DeepSeek-V3 of transformers, with random weights, whose experts lie at four ranks:

    python -m warpverbs.sim -- torchrun --nproc-per-node 4 hf_moe.py

Each rank has prompts of its own, and compares with the unmodified model. With a torchrun for each rank, as in elastic.py, a rank may be
killed meanwhile. The program names the tokens that lost experts, and only those differ. All are right again when the rank is back.
"""

import copy
import datetime
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.functional import linear
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import warpverbs

PROMPTS, LENGTH, NEW, VOCABULARY, PASSES, LONG = 2, 12, 4, 64, 50, 120.0
#: Of the prompts. No model has two next tokens within 1% of each other after these.
SEED = 55
#: Largest relative distance (norm) of the logits. FP8 may tip a router to another expert, which moves a token by more than the format.
BF16, FP8 = 0.01, {"mixtral": 0.1, "qwen3": 0.02, "deepseek": 0.2}
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}


def make(name: str) -> Any:
    """A model of two layers, the same at each rank."""
    torch.manual_seed(16)
    if name == "mixtral":
        own = {"intermediate_size": 256, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2}
        model: Any = MixtralForCausalLM(MixtralConfig(**SMALL, **own))
    elif name == "qwen3":
        own = {"moe_intermediate_size": 128, "num_key_value_heads": 2, "head_dim": 64, "num_experts": 16, "num_experts_per_tok": 4}
        model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**SMALL, **own))
    else:
        own = {"moe_intermediate_size": 128, "n_routed_experts": 16, "num_experts_per_tok": 4, "n_group": 4, "topk_group": 2}
        heads = {"num_key_value_heads": 4, "q_lora_rank": 128, "kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16}
        model = DeepseekV3ForCausalLM(DeepseekV3Config(**SMALL, **own, **heads, v_head_dim=32, first_k_dense_replace=0))
    return model.to(torch.bfloat16).eval()


class Exchange:
    """The MoE layers of a model, in their order. Call n of all ranks is of layer (n - 1) modulo their number."""

    def __init__(self, team: warpverbs.Team, name: str, model: Any, format: str) -> None:
        blocks = [module for module in model.modules() if hasattr(module, "experts")]
        first = blocks[0].experts
        experts, hidden = first.gate_up_proj.shape[0], first.gate_up_proj.shape[2]
        tokens, top_k = PROMPTS * (LENGTH + NEW), model.config.num_experts_per_tok
        self.moe = warpverbs.Moe(
            team, f"{name}-{format}", hidden=hidden, experts=experts, top_k=top_k, max_tokens=tokens, format=format, returns="rows"
        )
        own = self.moe.local_experts()
        self.layers = [(each.experts.gate_up_proj[own], each.experts.down_proj[own], each.experts.act_fn) for each in blocks]
        #: Of each layer in the last pass: whether all experts of a token took part.
        self.valid: list[torch.Tensor] = []
        self.call, self.empty = self.moe.call(), (torch.empty(0, hidden).bfloat16(), torch.empty(0, top_k).int(), torch.empty(0, top_k))
        for block in blocks:
            block.experts = Experts(self)

    def next_layer(self) -> int:
        return self.moe.progress()[0] % len(self.layers)

    def run(self, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """What the experts of all ranks make of x."""
        gate_up, down, act = self.layers[self.next_layer()]
        got = self.call.dispatch(x.contiguous(), index.int())
        y = torch.empty(got.x.shape, dtype=torch.bfloat16)
        for expert, rows in enumerate(got.counts.tolist()):
            seen = got.x[expert, :rows]
            if got.scales is not None:
                seen = (seen.float() * got.scales[expert, :rows].repeat_interleave(128, dim=1)).bfloat16()
            gate, up = linear(seen, gate_up[expert]).chunk(2, dim=-1)
            y[expert, :rows] = linear(act(gate) * up, down[expert])
        result = self.call.combine(y, weights=weights.float())
        self.valid = [*self.valid[1 - len(self.layers) :], result.token_valid.bool()]
        return result.out


class Experts(torch.nn.Module):
    """Takes the place of a block's experts."""

    def __init__(self, exchange: Exchange) -> None:
        super().__init__()
        self.exchange = exchange

    def forward(self, x: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return self.exchange.run(x, index, weights)


def greedy(model: Any, prompts: torch.Tensor) -> torch.Tensor:
    for _ in range(NEW):
        prompts = torch.cat((prompts, model(prompts, use_cache=False).logits[:, -1:].argmax(-1)), dim=1)
    return prompts[:, LENGTH:]


def distance(logits: torch.Tensor, of: torch.Tensor) -> float:
    return float((logits.float() - of.float()).norm() / of.float().norm()) if of.numel() else 0.0


def compare(team: warpverbs.Team, name: str, prompts: torch.Tensor) -> bool:
    """Whether the model gives the same over several ranks, in each format."""
    model, good = make(name), True
    logits, tokens = model(prompts, use_cache=False).logits, greedy(model, prompts)
    for format, limit in (("bf16", BF16), ("fp8", FP8[name])):
        spread = copy.deepcopy(model)
        Exchange(team, name, spread, format)
        far, same = distance(spread(prompts, use_cache=False).logits, logits), int((greedy(spread, prompts) == tokens).sum())
        good &= far <= limit and (format != "bf16" or same == tokens.numel())
        say(f"rank {team.rank}: {name} {format}: logits differ by {far:.5f} of {limit}, {same} of {tokens.numel()} greedy tokens are equal")
    return good


def keep_on(team: warpverbs.Team, name: str, prompts: torch.Tensor) -> bool:
    """Makes passes until all ranks have been members for PASSES of them; whether no token was wrong."""
    model, good, told = make(name), True, []
    logits = model(prompts, use_cache=False).logits
    exchange = Exchange(team, name, model, "bf16")
    with warpverbs.Group(team, exchange.moe, lease=2.0) as group:
        group.wait("serving", LONG)
        say(f"rank {team.rank}: process {os.getpid()} serves as generation {team.generation}")
        while exchange.next_layer():
            exchange.run(*exchange.empty)  # The others are in the middle of a pass: this rank has experts for them, and no tokens yet.
        while group.state in ("serving", "changing"):
            view, now = group.view, model(prompts, use_cache=False).logits
            lost = torch.zeros(prompts.shape, dtype=torch.bool)
            for valid in exchange.valid:
                # Attention spreads what earlier layers lost to the later tokens of a prompt.
                lost = (lost.cumsum(1) > 0) | ~valid.view(lost.shape)
            far, report = distance(now[~lost], logits[~lost]), exchange.call.report()
            if far > BF16:
                good = False
                say(f"rank {team.rank}: call {report.call}: tokens that lost nothing are wrong by {far:.5f}")
            count, differ = int(lost.sum()), int((now != logits)[lost].any(1).sum())
            if (active := group.active.tolist()) != told:
                told, rest = active, f"{count} of {lost.numel()} tokens lost experts, {differ} of these differ"
                say(f"rank {team.rank}: call {report.call}: active {active}, {rest}, the others by {far:.5f}")
            passes = (report.call - view.first) // len(exchange.layers)
            if view.epoch == report.epoch and len(view.members) == team.ranks and passes >= PASSES:
                group.leave(LONG)
                say(f"rank {team.rank}: {name}: {'all right' if good else 'wrong'}")
                return good
    return False


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


@torch.no_grad()
def main() -> int:
    names = sys.argv[1:] or ["mixtral", "qwen3", "deepseek"]
    make_team, check = warpverbs.Team.from_group, compare
    if "WARPVERBS_RANK" in os.environ:
        again = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) > 0
        make_team, check, names = warpverbs.Team.rejoin if again else warpverbs.Team, keep_on, names[:1]
    else:
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=LONG))
    for name in names:
        with make_team(deadline=30, join_timeout=LONG) as team:
            prompts = torch.randint(VOCABULARY, (PROMPTS, LENGTH), generator=torch.Generator().manual_seed(SEED + team.rank))
            if not check(team, name, prompts):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
