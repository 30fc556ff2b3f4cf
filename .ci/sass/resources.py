"""What the MoE kernels take of a multiprocessor: registers, shared memory, stack, spills; and the loads that their loops over rows
have in flight (loads.py). From ptxas and the cubin; nothing runs.

A spill is a store to and a load from memory that no line of the source asks for. Blocks of 512 threads keep the copies of rows busy, and
posting, which a phase does once for each peer, gives up a few registers for them. So a kernel may spill some words. The stack holds what the source indexes at run time (the rows that a token's sum is made of).
"""

import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import loads
from listing import USAGE, read_cubin, run, run_all
from measure import ARCHITECTURES, tools

# Most registers and bytes of stack of a thread, bytes of shared memory of a block: what is reached, with little to spare. A block of
# the 512 threads that src/moe launches must fit on a multiprocessor, which has 65,536 registers.
LIMITS = {"registers": 128, "stack": 704, "shared": 4096}

# Most bytes that a kernel stores to spill registers and loads back, together, in all its functions. Those that run where a peer is late
# (the wait for a send buffer, looks at work in flight) are out of line, and save the registers of their callers.
SPILLED = 192

# Kernels that copy, cast or sum rows.
MOVES_ROWS = ("wv_moe_dispatch", "wv_moe_combine")

ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
SPILL = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


@dataclass
class Resources:
    """One kernel for one architecture. Bytes; spills of all its functions together."""

    name: str
    arch: int
    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    loops: tuple = ()  # loops over the vectors of rows


def spills(text):
    """Kernel name -> (bytes of spill stores, of spill loads), from what `ptxas -v` says. A function out of line follows its
    kernel."""
    found, name = {}, None
    for line in text.splitlines():
        if match := ENTRY.search(line):
            name = match.group(1)
            found[name] = (0, 0)
        elif (match := SPILL.search(line)) and name:
            found[name] = tuple(have + int(more) for have, more in zip(found[name], match.groups()))
    return found


def usage(text):
    """Kernel name -> (registers, shared memory, stack), from `cuobjdump -res-usage`."""
    lines = USAGE.findall(re.sub(r":\n\s*", ": ", text))
    return {name: (int(registers), int(shared), int(stack)) for name, registers, stack, shared, _ in lines}


def measure_file(root, source, arch):
    base = Path(root, "target/sass", f"{source.stem}.{arch}")
    base.parent.mkdir(parents=True, exist_ok=True)
    ptx, cubin = base.with_suffix(f".{arch}.ptx"), base.with_suffix(f".{arch}.cubin")
    include = Path(root, "kernels/include")
    run(tools(root) / "nvcc", "-O3", "-std=c++17", "--ptx", f"-arch=compute_{arch}", "-I", include, "-o", ptx, "-x", "cu", source)
    said = run_all(tools(root) / "ptxas", "-O3", "-v", f"-arch=sm_{arch}", "-o", cubin, ptx)
    used, spilled = usage(run(tools(root) / "cuobjdump", "-res-usage", cubin)), spills(said)
    kernels = read_cubin(tools(root) / "cuobjdump", cubin)
    return [Resources(name, arch, *used[name], *spilled[name], tuple(loads.loops(kernels[name]))) for name in sorted(spilled)]


def measure_all(root, architectures=ARCHITECTURES):
    """All kernels of kernels/moe, two compilers at a time."""
    sources = sorted(Path(root, "kernels/moe").glob("*.cu"))
    with ProcessPoolExecutor(2) as pool:
        jobs = [pool.submit(measure_file, root, s, a) for s in sources for a in architectures]
        return [r for job in jobs for r in job.result()]


def verdicts(measured):
    """Every limit that is broken: sentences."""
    found = []
    for r in measured:
        where = f"{r.name}, sm_{r.arch}"
        if r.spill_stores + r.spill_loads > SPILLED:
            found.append(f"{where}: spills {r.spill_stores} bytes and loads {r.spill_loads} back, limit {SPILLED} together")
        for what, most in LIMITS.items():
            have = getattr(r, what)
            if have > most:
                found.append(f"{where}: {have} {'bytes of ' if what != 'registers' else ''}{what}, limit {most}")
        found += [f"{where}: {v}" for v in loads.violations(r.loops)]
        if r.name.startswith(MOVES_ROWS) and not r.loops:
            found.append(f"{where}: no loop loads rows: the check of loads in flight looks at nothing")
    return found


def table(measured):
    """One line for each kernel, by architecture: registers, stack, spills, loops over rows and the fewest 16-byte loads that one
    of those has in flight."""
    architectures = sorted({r.arch for r in measured})
    by_place = {(r.name, r.arch): r for r in measured}
    head = f"{'kernel':<28}" + "".join(f" | sm_{arch:<4} regs shared stack spill loops loads" for arch in architectures)
    lines = [head]
    for name in sorted({r.name for r in measured}):
        parts = [by_place[name, arch] for arch in architectures]
        cells = [
            f" | {'':<7} {r.registers:>4} {r.shared:>6} {r.stack:>5} {r.spill_stores + r.spill_loads:>5} {len(r.loops):>5}"
            f" {min((loop.in_flight for loop in r.loops), default='-'):>5}"
            for r in parts
        ]
        lines.append(f"{name:<28}" + "".join(cells))
    return "\n".join(lines)
