"""Every block of Python in the documents runs, or stands in an example that runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import silent
import snippets

EXAMPLES = Path(__file__).parents[1] / "examples"
README = "python/README.md"


def test_no_block_is_left_out():
    """The first is that of `test_package`, and the others have tests here."""
    heads = [block.splitlines()[0] for block in snippets.blocks_of(README)]
    assert heads == [
        "import tempfile",
        'again = int(os.environ["TORCHELASTIC_RESTART_COUNT"]) > 0',
        "from warpverbs import deep_ep",
        "from warpverbs import mooncake_ep",
    ]
    assert len(snippets.blocks_of("docs/serving.md")) == len(snippets.blocks_of("docs/engine.md")) == 1


def test_the_lines_of_the_loop_are_those_of_its_example():
    lines = [line.strip() for line in snippets.blocks_of(README)[1].splitlines() if line.strip() != "..."]
    example = (EXAMPLES / "elastic.py").read_text()
    assert lines
    assert [line for line in lines if line not in example] == []


@pytest.mark.parametrize("number", [2, 3], ids=["deep_ep", "mooncake_ep"])
def test_the_calls_of_a_buffer_give_the_tokens_back(run_ranks, number):
    run_ranks(2, "snippets:calls_of_a_buffer", README, str(number)).check()


def test_the_block_for_engines_runs(run_ranks):
    (block,) = snippets.blocks_of("docs/serving.md")
    silent.runs(run_ranks, f"import torch\n{block}\nfrom mooncake.mooncake_ep_buffer import Buffer\nassert Buffer is mooncake_ep.Buffer\n")


def test_the_tour_of_host_engines_runs(run_ranks):
    (block,) = snippets.blocks_of("docs/engine.md")
    run_ranks(1, "silent:program", block, "").check()
