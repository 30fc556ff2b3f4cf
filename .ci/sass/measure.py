"""Compiles the cost kernels and measures them."""

import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from count import Counts
from listing import Illegal, read_cubin, run
from walk import NoWalk, shortest

ARCHITECTURES = (80, 90, 100)
PREFIX = "wv_cost_"
CHOSEN = ("wqe", "mmio", "mailbox", "exchange", "atomic")  # a walk is chosen by these; all else on it is measured
FENCES = ("fence_gpu", "fence_sys")  # wider than a block


@dataclass
class Measured:
    """One cost kernel for one architecture. `walks`: name -> counts along it, or a sentence that says why the kernel has no such walk."""

    name: str
    arch: int
    counts: Counts
    ptx: str
    walks: dict

    @property
    def kernel(self):
        return self.counts.kernel


def tools(root):
    """Where the pinned wheels have put nvcc and its like."""
    found = sorted(Path(root).glob(".tools/venv/lib/python3*/site-packages/nvidia/cu13/bin"))
    if not found:
        raise SystemExit("sass: no nvcc in .tools/venv: ./x sass installs it")
    return found[-1]


def compile_one(root, source, arch):
    """PTX and cubin of a source file: (paths)."""
    base = Path(root, "target/sass", f"{source.stem}.{arch}")
    base.parent.mkdir(parents=True, exist_ok=True)
    ptx, cubin = base.with_suffix(f".{arch}.ptx"), base.with_suffix(f".{arch}.cubin")
    include = Path(root, "kernels/include")
    run(tools(root) / "nvcc", "-O3", "-std=c++17", "--ptx", f"-arch=compute_{arch}", "-I", include, "-o", ptx, "-x", "cu", source)
    run(tools(root) / "ptxas", "-O3", f"-arch=sm_{arch}", "-o", cubin, ptx)
    return ptx, cubin


def alone(root, header):
    """Compiles one header of the device library, for the CPU, with nothing before it: sentences, if that fails."""
    source = Path(root, "target/sass/headers", header.name + ".cu")
    source.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(root, "kernels/include")
    source.write_text(f"#include <{header.relative_to(folder)}>\n")
    try:
        include = ("-I", folder, "-I", Path(root, "crates/simt/include"))
        run("g++", "-std=c++20", "-fsyntax-only", "-x", "c++", *include, source)
    except RuntimeError as why:
        return [f"{header.name} does not compile by itself: {why}"]
    return []


def public_headers(root):
    """All but the two that platform.cuh includes after it has said what they need."""
    found = sorted(Path(root, "kernels/include/warpverbs").rglob("*.*h"))
    return [h for h in found if h.name not in ("ptx.cuh", "simt_ops.cuh")]


def ptx_of(text):
    """Kernel name -> its PTX."""
    parts = re.split(r"\.visible \.entry (\w+)\(", text)
    return dict(zip(parts[1::2], parts[2::2]))


def measure(counts, ptx, arch, budget):
    walks = {}
    for name, limits in budget.get("walk", {}).items():
        wanted = {kind: limits.get(kind, 0) for kind in CHOSEN}
        try:
            walks[name] = shortest(counts, wanted | {"result": 1})[0]
        except NoWalk as why:
            walks[name] = str(why)
    return Measured(counts.kernel.name.removeprefix(PREFIX), arch, counts, ptx, walks)


def measure_file(root, source, arch, budgets):
    """Measures every cost kernel of a file. An illegal opcode is a sentence instead of a measurement."""
    ptx_path, cubin = compile_one(root, source, arch)
    ptx = ptx_of(ptx_path.read_text())
    try:
        kernels = read_cubin(tools(root) / "cuobjdump", cubin)
    except Illegal as names:
        return [f"{source.name}, sm_{arch}: illegal opcode in {names}"]
    return [
        measure(Counts(kernel, arch), ptx[name], arch, budgets.get(name.removeprefix(PREFIX), {}))
        for name, kernel in sorted(kernels.items())
        if name.startswith(PREFIX)
    ]


def measure_all(root, budgets, architectures=ARCHITECTURES):
    """(measurements, sentences about what cannot be measured), two compilers at a time."""
    sources = sorted(Path(root, "crates/test-support/kernels").glob("cost*.cu"))
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(measure_file, root, s, a, budgets) for s in sources for a in architectures]
        jobs += [pool.submit(alone, root, h) for h in public_headers(root)]
        found = [m for job in jobs for m in job.result()]
    return [m for m in found if isinstance(m, Measured)], [m for m in found if isinstance(m, str)]
