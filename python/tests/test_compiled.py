"""Calls of a buffer inside ``torch.compile``."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize("form", ["bf16", "fp8", "fp8-ue8m0"])
def test_a_layer_is_compiled_as_one_graph(run_ranks, form):
    run_ranks(4, "compiled:fullgraph", form).check()
