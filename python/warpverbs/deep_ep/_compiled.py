"""The low-latency calls inside ``torch.compile``: operators of torch, whose results have known shapes before anything runs.

A graph holds no objects of Python. So a buffer is a number here, and a handle is a tuple of tensors, the last of which has the number of
the batch. Each operator writes the tensor ``order`` of its buffer: so torch neither drops one whose results nobody reads, nor changes
their order, which is the same at all ranks.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch

from ..moe import GROUP
from ._calls import format_of, refuse
from ._layers import PARTS

__all__ = ["Compiled"]

_buffers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = itertools.count()


class Compiled:
    """What a buffer needs to be called in a compiled function."""

    def __init__(self, buffer: Any, device: Any) -> None:
        self.number = next(_numbers)
        #: Written by each call.
        self.order = torch.zeros(1, dtype=torch.int64, device=device)
        _buffers[self.number] = buffer

    def dispatch(
        self,
        x: Any,
        topk_idx: Any,
        max_tokens: int,
        experts: int,
        formed: tuple[bool, bool, bool],
        others: tuple[Any, ...],
    ) -> tuple[Any, Any, Any, Any, None]:
        """A dispatch without event or hook. ``formed``: ``use_fp8``, ``round_scale`` and ``use_ue8m0``; ``others`` are no arguments of a
        compiled one."""
        self._only(others)
        rows, scales, counts, sources, layout, batch = torch.ops.warpverbs.low_latency_dispatch(
            x, topk_idx, self.order, self.number, max_tokens, experts, *formed
        )
        handle = (sources, layout, max_tokens, x.shape[1], experts, batch)
        return (rows, scales) if formed[0] else rows, counts, handle, None, None

    def combine(self, x: Any, topk_idx: Any, topk_weights: Any, handle: Any, others: tuple[Any, ...]) -> tuple[Any, Any, None]:
        """A combine of what a compiled dispatch has returned, without event or hook."""
        self._only(others)
        sums = torch.ops.warpverbs.low_latency_combine(x, topk_idx, topk_weights, handle[-1], self.order, self.number)
        return sums, None, None

    @staticmethod
    def _only(others: tuple[Any, ...]) -> None:
        for other in others:
            if other is not None and other is not False:
                refuse(
                    "an argument",
                    "that a compiled call does not have was given: it has tokens, choices, weights, maxT, experts and the "
                    "format; call the others outside torch.compile",
                )


DISPATCH = (
    "(Tensor x, Tensor topk_idx, Tensor(a!) order, int buffer, int max_tokens, int experts, bool use_fp8, bool round_scale, "
    "bool use_ue8m0) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _dispatch(
    x: Any, topk_idx: Any, order: Any, buffer: int, max_tokens: int, experts: int, use_fp8: bool, round_scale: bool, use_ue8m0: bool
) -> Any:
    own = _buffers[buffer]
    rows, counts, handle, _, _ = own.low_latency_dispatch(
        x, topk_idx, max_tokens, experts, use_fp8=use_fp8, round_scale=round_scale, use_ue8m0=use_ue8m0
    )
    order.add_(1)
    rows, scales = rows if use_fp8 else (rows, rows.new_empty(0))
    return rows, scales, counts, handle[0], handle[1], torch.tensor([own._kept.keep(handle)])


def _shaped_dispatch(
    x: Any, topk_idx: Any, order: Any, buffer: int, max_tokens: int, experts: int, use_fp8: bool, round_scale: bool, use_ue8m0: bool
) -> Any:
    ranks, hidden = _buffers[buffer].group_size, x.shape[1]
    room = -(-experts // ranks)
    lead = (room, ranks * max_tokens)
    counts, sources = (x.new_empty(shape, dtype=torch.int32) for shape in ((room,), lead))
    layout = x.new_empty((room, ranks), dtype=torch.int64)
    batch = torch.empty((1,), dtype=torch.int64, device="cpu")
    if not use_fp8:
        return x.new_empty((*lead, hidden)), x.new_empty((0,)), counts, sources, layout, batch
    groups = -(-hidden // GROUP)
    packed = format_of(use_fp8, round_scale, use_ue8m0) == "fp8-ue8m0"
    words, kind = (-(-groups // 4), torch.int32) if packed else (groups, torch.float32)
    # As they lie in memory: rows innermost.
    scales = x.new_empty((room, words, lead[1]), dtype=kind).transpose(1, 2)
    return x.new_empty((*lead, hidden), dtype=torch.float8_e4m3fn), scales, counts, sources, layout, batch


COMBINE = "(Tensor x, Tensor topk_idx, Tensor topk_weights, Tensor batch, Tensor(a!) order, int buffer) -> Tensor"


def _combine(x: Any, topk_idx: Any, topk_weights: Any, batch: Any, order: Any, buffer: int) -> Any:
    own = _buffers[buffer]
    sums = own.low_latency_combine(x, topk_idx, topk_weights, (None,) * (PARTS - 1) + (batch,))[0]
    order.add_(1)
    return sums


def _shaped_combine(x: Any, topk_idx: Any, topk_weights: Any, batch: Any, order: Any, buffer: int) -> Any:
    return x.new_empty((topk_idx.shape[0], x.shape[2]))


for _name, _schema, _runs, _shaped in (
    ("dispatch", DISPATCH, _dispatch, _shaped_dispatch),
    ("combine", COMBINE, _combine, _shaped_combine),
):
    torch.library.custom_op(f"warpverbs::low_latency_{_name}", _runs, mutates_args=("order",), schema=_schema).register_fake(_shaped)
