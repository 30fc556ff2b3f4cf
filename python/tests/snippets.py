"""The blocks of Python in the documents, as programs of two ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import groups
import low_latency
import torch

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks_of(document: str) -> list[str]:
    """In the order of the document."""
    return _BLOCK.findall((ROOT / document).read_text())


def experts(rows: torch.Tensor, scales: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Each expert gives its tokens back."""
    return low_latency.dequantized(rows, scales).to(torch.bfloat16)


def calls_of_a_buffer(document: str, number: str) -> None:
    """A block that makes a buffer of `group`, dispatches and combines: what comes back is `x`, in FP8."""
    x = (torch.arange(4 * 128).view(4, 128) % 15 - 7).to(torch.bfloat16)
    with groups.world() as group:
        given: dict[str, Any] = {
            "group": group,
            "torch": torch,
            "experts": experts,
            "x": x,
            "topk_idx": torch.tensor([[0, 255]] * 4),
            "topk_weights": torch.tensor([[0.25, 0.75]] * 4),
        }
        exec(compile(blocks_of(document)[int(number)], document, "exec"), given)
        far = (given["out"].float() - x.float()).norm() / x.float().norm()
        assert float(far) < 0.05, far
