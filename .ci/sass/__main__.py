"""`./x sass`: what each call of the device library costs in SASS, and whether it stays within its budget.

Compiles the cost kernels (crates/test-support/kernels/cost*.cu) with the pinned nvcc for sm_80, sm_90 and sm_100, and prints a table for
each. It fails over budget (budgets.toml), on an illegal opcode, a generic atomic, and a WQE store that is not 16 bytes wide. It fails on
a non-coherent load of window memory, any use of the stack, and a public header that does not compile by itself. It also fails on lanes
that wait for each other while they have a claim on ring space (converge.py). Of the MoE kernels (kernels/moe) it prints registers, shared
memory, stack, spills and loads in flight. It fails on a spill and on a loop over rows with fewer than four loads of 16 bytes in flight
(loads.py). Counts, not measurements: nothing runs.

    python3 .ci/sass [--arch 90] [--trace KERNEL WALK] [--json FILE]
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path

import measure
import resources
from report import facts, table, verdicts
from walk import shortest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def main():
    parser = argparse.ArgumentParser(prog="./x sass", description=__doc__.split("\n\n")[0])
    parser.add_argument("--arch", type=int, choices=measure.ARCHITECTURES, action="append", help="only this sm_..")
    parser.add_argument("--trace", nargs=2, metavar=("KERNEL", "WALK"), help="print the instructions of a walk")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts of the cost kernels")
    options = parser.parse_args()
    budgets = tomllib.loads((HERE / "budgets.toml").read_text())
    architectures = options.arch or measure.ARCHITECTURES
    try:
        measured, failures = measure.measure_all(ROOT, budgets, architectures)
    except RuntimeError as why:
        sys.exit(f"sass: {why}")
    if options.trace:
        return trace(measured, budgets, *options.trace)
    for arch in architectures:
        print(f"\nsm_{arch}, nvcc -O3: static counts; a walk is the path that one call executes\n{table(measured, arch)}")
    if options.json:
        options.json.write_text(json.dumps(facts(measured), indent=1) + "\n")
    kernels = resources.measure_all(ROOT, architectures)
    print(f"\nMoE kernels: registers and stack of a thread, shared memory of a block, spilled bytes, loops over rows and the fewest loads in flight of one\n{resources.table(kernels)}")
    failures += verdicts(measured, budgets) + resources.verdicts(kernels)
    headers = len(measure.public_headers(ROOT))
    counted = f"{len(measured)} cost kernels, {len(kernels)} MoE kernels, {headers} headers by themselves"
    print(f"\n{counted}: {len(failures)} over budget or against a rule")
    for failure in failures:
        print(f"  {failure}")
    return 1 if failures or not measured or not kernels else 0


def trace(measured, budgets, name, walk):
    for m in measured:
        if m.name == name:
            print(f"sm_{m.arch}")
            wanted = {kind: budgets[name]["walk"][walk].get(kind, 0) for kind in measure.CHOSEN}
            for i in shortest(m.counts, wanted | {"result": 1})[1]:
                print(f"  {i.address:04x}  {i}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
