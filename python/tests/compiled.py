"""Calls of a buffer inside a compiled function give what they give outside."""

from __future__ import annotations

from typing import Any

import groups
import torch
from differing import EXPERTS, HIDDEN, MOST

from warpverbs import deep_ep

TOKENS = 5
FORMATS: dict[str, dict[str, bool]] = {
    "bf16": {"use_fp8": False},
    "fp8": {"use_fp8": True},
    "fp8-ue8m0": {"use_fp8": True, "round_scale": True, "use_ue8m0": True},
}


def fullgraph(form: str) -> None:
    """A layer with two micro-batches, compiled as one graph: its sums and rows are those of the calls outside, and it runs again with other
    tokens, and with other numbers of them."""
    rank, _ = groups.start()
    buffer = deep_ep.Buffer(torch.distributed.group.WORLD, low_latency_mode=True, join_timeout=groups.LONG)
    options = FORMATS[form]
    buffer.warm_up(MOST, HIDDEN, EXPERTS, 2, **options)

    def layer(x: Any, topk_idx: Any, weights: Any) -> tuple[Any, ...]:
        one = buffer.low_latency_dispatch(x, topk_idx, MOST, EXPERTS, **options)
        two = buffer.low_latency_dispatch(x + 1, topk_idx, MOST, EXPERTS, **options)
        sums = []
        for rows, _, handle, _, _ in (one, two):
            y = (rows[0] if isinstance(rows, tuple) else rows).to(torch.bfloat16) * 2
            sums.append(buffer.low_latency_combine(y, topk_idx, weights, handle)[0])
        return (*sums, one[1], one[0][1] if isinstance(one[0], tuple) else one[0][:, 0])

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    random = torch.Generator().manual_seed(7 + rank)
    for tokens in (TOKENS, TOKENS, TOKENS + 1, 1):
        x = torch.randn(tokens, HIDDEN, generator=random).bfloat16()
        topk = torch.stack([torch.randperm(EXPERTS, generator=random)[:2] for _ in range(tokens)])
        weights = torch.rand(tokens, 2, generator=random)
        expected, found = layer(x, topk, weights), compiled(x, topk, weights)
        for nth, (wanted, got) in enumerate(zip(expected[:3], found[:3], strict=True)):
            assert torch.equal(wanted, got), (form, tokens, nth)
        assert expected[3].shape == found[3].shape
        assert expected[3].stride() == found[3].stride()
    assert buffer._kept._handles == {} or all(kept.batch.stage == "combined" for kept in buffer._kept._handles.values())
    groups.finish()
