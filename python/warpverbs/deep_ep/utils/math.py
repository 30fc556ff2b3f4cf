"""Arithmetic of DeepEP's test programs: casts to FP8 and back, differences, hashes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

__all__ = [
    "align",
    "calc_diff",
    "ceil_div",
    "count_bytes",
    "create_grouped_scores",
    "hash_tensor",
    "hash_tensors",
    "inplace_unique",
    "per_token_cast_back",
    "per_token_cast_to_fp8",
    "safe_div",
]

#: Channels that share a scale, the largest number of e4m3, and the least that a scale stands for.
GROUP, LARGEST, LEAST = 128, 448.0, 1e-4


def ceil_div(x: int, y: int) -> int:
    """x / y, rounded up."""
    return -(-x // y)


def align(x: int, y: int) -> int:
    """The least multiple of y that is not below x."""
    return ceil_div(x, y) * y


def safe_div(a: float, b: float) -> float:
    """a / b, where nothing by nothing is nothing."""
    return 0 if a == 0 and b == 0 else a / b


def calc_diff(x: Any, y: Any) -> float:
    """How far two tensors are apart: 0 if they are equal, at most 2. Both are moved by one, so that zeros count."""
    x, y = x.double() + 1, y.double() + 1
    squares = (x.square() + y.square()).sum()
    return float(1 - 2 * (x * y).sum() / squares)


def _grouped(x: Any) -> Any:
    """``[rows, channels]`` as ``[rows, groups, 128]``, with zeros after the last channel."""
    rows, channels = x.shape
    return torch.nn.functional.pad(x, (0, align(channels, GROUP) - channels)).view(rows, -1, GROUP)


def per_token_cast_to_fp8(x: Any) -> tuple[Any, Any]:
    """``[rows, channels]`` in e4m3, and f32 scales ``[rows, groups]``: a number is that of FP8 by the scale of its 128 channels."""
    groups = _grouped(x)
    largest = groups.abs().float().amax(dim=2).clamp(LEAST)
    cast = (groups * (LARGEST / largest.unsqueeze(2))).to(torch.float8_e4m3fn)
    return cast.view(x.shape[0], -1)[:, : x.shape[1]].contiguous(), largest / LARGEST


def per_token_cast_back(x_fp8: Any, x_scales: Any) -> Any:
    """What :func:`per_token_cast_to_fp8` was given, in BF16. Scales that are i32 hold the exponents of four scales each."""
    if x_fp8.numel() == 0:
        return x_fp8.to(torch.bfloat16)
    if x_scales.dtype == torch.int32:
        x_scales = (x_scales.contiguous().view(-1).view(torch.uint8).to(torch.int32) << 23).view(torch.float32)
    rows, channels = x_fp8.shape
    groups = _grouped(x_fp8.float()) * x_scales.reshape(rows, -1, 1)
    return groups.to(torch.bfloat16).view(rows, -1)[:, :channels].contiguous()


def inplace_unique(x: Any, num_slots: int) -> None:
    """Leaves in each row of ``x`` one of each number that it has, below ``num_slots``: those that it had most often come to stand by
    their numbers, largest first, and -1 fills the rest."""
    chosen = x.masked_fill(x < 0, num_slots)
    counts = torch.zeros((x.shape[0], num_slots + 1), dtype=x.dtype, device=x.device)
    counts.scatter_add_(1, chosen, torch.ones_like(chosen))
    often, numbers = counts[:, :num_slots].sort(dim=1, descending=True)
    numbers = numbers.masked_fill(often == 0, -1).sort(dim=1, descending=True).values
    kept = min(num_slots, x.shape[1])
    x.fill_(-1)
    x[:, :kept] = numbers[:, :kept]


def create_grouped_scores(scores: Any, group_idx: Any, num_groups: int) -> Any:
    """``scores`` ``[tokens, experts]``, 0 but in the groups of experts that ``group_idx`` names for each token."""
    tokens, experts = scores.shape
    chosen = torch.zeros((tokens, num_groups), dtype=torch.bool, device=scores.device).scatter_(1, group_idx, True)
    return scores * chosen.repeat_interleave(experts // num_groups, dim=1)


def _tensors(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _tensors(value)
        elif value is not None:
            yield value


def hash_tensor(t: Any) -> int:
    """A number that equal tensors share: the sum of their bytes as i32."""
    return int(t.view(torch.int32).sum())


def hash_tensors(*tensors: Any) -> int:
    """The same of all tensors in nested lists."""
    value = 0
    for tensor in _tensors(tensors):
        value ^= hash_tensor(tensor)
    return value


def count_bytes(*tensors: Any) -> int:
    """Bytes of all tensors in nested lists."""
    return sum(tensor.nbytes for tensor in _tensors(tensors))
