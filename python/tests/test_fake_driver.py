"""Teams on a CUDA driver without a GPU, which launches nothing: where the tensors of a call must lie."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = Path(__file__).parents[2] / "crates" / "test-support" / "fake_cuda" / "libcuda.c"

#: The team is on the second GPU. No torch: its CUDA half would want a real driver.
PROGRAM = """
import json
import numpy
import warpverbs


class On:
    def __init__(self, array, gpu):
        self.array, self.gpu = array, gpu

    def __dlpack_device__(self):
        return (1, 0) if self.gpu is None else (2, self.gpu)

    def __dlpack__(self):
        return self.array.__dlpack__()


def tokens(gpu):
    return On(numpy.zeros((1, 64), numpy.uint16), gpu), On(numpy.zeros((1, 1), numpy.int32), gpu)


texts = {}
with warpverbs.Team(0, 1, gpu=1) as team:
    moe = warpverbs.Moe(team, "layer", hidden=64, experts=1, top_k=1, max_tokens=1)
    assert (team.on_cpu, team.gpu, moe.gpu) == (False, 1, 1)
    for name, (x, _), (_, ids) in (
        ("right", tokens(1), tokens(1)),
        ("x on GPU 0", tokens(0), tokens(1)),
        ("x on the CPU", tokens(None), tokens(1)),
        ("experts on GPU 0", tokens(1), tokens(0)),
    ):
        try:
            moe.call().dispatch_send(x, ids, stream=0)
            texts[name] = ["nothing", "was refused"]
        except warpverbs.Error as error:
            texts[name] = [type(error).__name__, str(error)]
print(json.dumps(texts))
"""
RUNS_ON = "the team runs on cuda:1 (WARPVERBS_GPU, or Team(gpu=..), chooses)"


@pytest.mark.skipif(shutil.which("cc") is None, reason="the driver is compiled: apt install gcc, then pytest test_fake_driver.py")
def test_tensors_of_another_gpu_are_refused(tmp_path):
    library = tmp_path / "libcuda.so.1"
    subprocess.run(["cc", "-std=gnu11", "-O1", "-shared", "-fPIC", "-o", str(library), str(DRIVER), "-ldl", "-pthread"], check=True)
    # What is looked for first.
    (tmp_path / "libcuda.so").symlink_to(library.name)
    settings = tmp_path / "settings"
    settings.write_text("devices 2\n")
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{tmp_path}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "FAKE_CUDA": str(settings),
        "WARPVERBS_NVRTC": "/nowhere/libnvrtc.so",
    }
    command = [sys.executable, "-m", "warpverbs.sim", "--", sys.executable, "-c", PROGRAM]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout) == {
        "right": ["nothing", "was refused"],
        "x on GPU 0": ["Refused", f"x is on cuda:0; {RUNS_ON}"],
        "x on the CPU": ["Refused", f"x is on cpu; {RUNS_ON}"],
        "experts on GPU 0": ["Refused", f"experts is on cuda:0; {RUNS_ON}"],
    }
