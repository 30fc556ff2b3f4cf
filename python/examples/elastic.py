"""A loop of steps whose killed rank comes back. Each rank has a torchrun of its own, since torchrun restarts all ranks that it started:

    export WARPVERBS_STORE=file://$(mktemp -d) WARPVERBS_RANKS=3
    for rank in 0 1 2; do
        WARPVERBS_RANK=$rank torchrun --standalone --max-restarts 100 elastic.py &
    done

Each rank holds two experts, and expert e multiplies by e + 1. The loop ends when all ranks have been members for 500 steps in a row.
"""

import os
import sys

import torch

import warpverbs

RANKS, STEPS, TOKENS, HIDDEN, LONG = int(os.environ["WARPVERBS_RANKS"]), 500, 16, 64, 120.0
EXPERTS = 2 * RANKS


def say(text: str) -> None:
    """Lines of several ranks do not mix: one write each, where torchrun makes print write twice."""
    sys.stdout.write(f"{text}\n")


def step(call: warpverbs.Call, seed: int) -> tuple[int, int]:
    """One dispatch and combine, checked; returns how many tokens lost experts, and how many are wrong."""
    numbers = torch.Generator().manual_seed(seed)
    x = torch.randint(-8, 8, (TOKENS, HIDDEN), generator=numbers).bfloat16()
    experts = torch.rand(TOKENS, EXPERTS, generator=numbers).topk(2).indices.int()
    rows = call.dispatch(x, experts, torch.full((TOKENS, 2), 0.5)).x
    factors = torch.tensor(call.moe.local_experts()).bfloat16() + 1
    result = call.combine(rows * factors[:, None, None])
    whole = result.token_valid.bool()
    right = x * (experts + 1).sum(1, keepdim=True) / 2
    wrong = (result.out != right).any(1) & whole
    # A token is whole if the ranks of all its experts took part.
    wrong |= whole != result.active.bool()[experts // 2].all(1)
    return TOKENS - int(whole.sum()), int(wrong.sum())


def serve(team: warpverbs.Team) -> bool:
    """Steps until all ranks have been members for so many. Whether this rank saw that; if not it has lost its place."""
    moe = warpverbs.Moe(team, "layer", hidden=HIDDEN, experts=EXPERTS, top_k=2, max_tokens=TOKENS)
    call, steps, lost, told = moe.call(), 0, 0, []
    with warpverbs.Group(team, moe, lease=2.0) as group:
        group.wait("serving", LONG)
        say(f"rank {team.rank}: process {os.getpid()} serves as generation {team.generation}")
        while group.state in ("serving", "changing"):
            view = group.view
            missing, wrong = step(call, steps)
            report, active = call.report(), group.active.tolist()
            if wrong:
                say(f"rank {team.rank}: call {report.call}: {wrong} tokens are wrong")
            if active != told:
                say(f"rank {team.rank}: call {report.call}: active {active}, {missing} of {TOKENS} tokens lost experts")
            steps, lost, told = steps + 1, lost + missing, active
            # All ranks know the same views, and so end after the same call. None leaves before all have begun it.
            if view.epoch == report.epoch and len(view.members) == RANKS and report.call - view.first >= STEPS:
                group.leave(LONG)
                say(f"rank {team.rank}: {steps} steps, {lost} tokens lost experts")
                return True
        return False


def main() -> None:
    again = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) > 0
    with (warpverbs.Team.rejoin if again else warpverbs.Team)(deadline=10, join_timeout=LONG) as team:
        if not serve(team):
            sys.exit(f"rank {team.rank} has lost its place: torchrun starts it again")


if __name__ == "__main__":
    main()
