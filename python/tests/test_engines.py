"""Engines' own dispatchers give what plain torch says."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

FULL = bool(os.environ.get("WV_TEST_FULL"))
#: Where `./x test python` puts the wheels of engines.
ENGINES = Path(__file__).parents[2] / "target" / "python" / "engines"
FILES = {
    "sglang": [f"sglang/srt/layers/moe/token_dispatcher/{name}.py" for name in ("base", "deepep", "mooncake")],
    "vllm": [
        "vllm/distributed/device_communicators/all2all.py",
        "vllm/distributed/device_communicators/base_device_communicator.py",
        "vllm/model_executor/layers/fused_moe/prepare_finalize/deepep_ll.py",
    ],
}


@pytest.fixture
def files_of(tmp_path):
    """Unpacks what is needed of an engine's wheel."""

    def unpack(engine: str) -> Path:
        wheels = sorted(ENGINES.glob(f"{engine}-*.whl"))
        assert wheels, f"no wheel of {engine} in {ENGINES}; ./x test python downloads it"
        with zipfile.ZipFile(wheels[-1]) as wheel:
            wheel.extractall(tmp_path, FILES[engine])
        return tmp_path

    return unpack


@pytest.mark.parametrize("form", ["bf16", "fp8"])
def test_sglang(run_ranks, files_of, form):
    run_ranks(2, "engines:sglang", str(files_of("sglang")), form).check()


def test_sglang_with_mooncake(run_ranks, files_of):
    run_ranks(2, "engines:mooncake", str(files_of("sglang"))).check()


@pytest.mark.skipif(not FULL, reason="the wheel of vLLM has 336 MB: ./x test full downloads it")
@pytest.mark.parametrize("form", ["bf16", "fp8"])
def test_vllm(run_ranks, files_of, form):
    run_ranks(2, "engines:vllm", str(files_of("vllm")), form).check()
