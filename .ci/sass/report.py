"""Measurements against budgets, and the table."""

import converge
from measure import ARCHITECTURES, FENCES

LIMITED = ("fence_cta", "invalidate", "record", "call")


def verdicts(measured, budgets):
    """Every way in which the measurements break the budgets or the rules: sentences."""
    by_place = {(m.name, m.arch): m for m in measured}
    found = []
    for m in measured:
        where = f"{m.name}, sm_{m.arch}"
        found += [f"{where}: {v}" for v in m.counts.violations()]
        if posts_alone(m.name):
            found += [f"{where}: {v}" for v in converge.violations(m.counts)]
        if m.name not in budgets:
            found.append(f"{where}: no budget in budgets.toml")
            continue
        found += [f"{where}: {v}" for v in judge(m, budgets[m.name], by_place)]
    found += [f"{name}: has a budget and no cost kernel" for name in budgets.keys() - {m.name for m in measured}]
    return found


def posts_alone(name):
    """Whether a cost kernel posts by single threads to a QP that others use too."""
    return "_thread_" in name and "exclusive" not in name and not name.startswith("wait_")


def judge(m, budget, by_place):
    """One kernel against its budget."""
    total, cold = m.counts.total, m.counts.cold
    limits = {
        "registers": (m.kernel.registers, budget.get("registers", 60)),
        "bytes of stack": (m.kernel.stack + m.kernel.local, 0),
        "instructions out of line": (cold["instructions"], budget.get("cold")),
    }
    if "instructions" in budget:
        limits["instructions"] = (total["instructions"], budget["instructions"][ARCHITECTURES.index(m.arch)])
    if "of" in budget:
        other = by_place[budget["of"], m.arch].counts.total["instructions"]
        limits[f"instructions ({budget['ratio']} x {budget['of']})"] = (total["instructions"], int(budget["ratio"] * other))
    found = [f"{have} {what}, budget {most}" for what, (have, most) in limits.items() if most is not None and have > most]
    for text, times in budget.get("ptx", {}).items():
        if m.ptx.count(text) != times and m.arch >= 90:
            found.append(f"{m.ptx.count(text)} times {text} in its PTX, not {times}")
    everything = total + cold
    if m.arch >= 90 and everything["invalidate"] > budget.get("invalidate", 0):
        found.append(f"{everything['invalidate']} L1 invalidations, budget {budget.get('invalidate', 0)}")
    if budget.get("window_loads", 0) > everything["window_loads"]:
        found.append("it no longer reads the window: the check of such loads looks at nothing")
    for name, walk in m.walks.items():
        found += [f"walk '{name}': {v}" for v in judge_walk(walk, budget["walk"][name], m.arch)]
    return found


def judge_walk(walk, limits, arch):
    if isinstance(walk, str):
        return [walk]
    have = walk | {"fence": sum(walk[kind] for kind in FENCES)}
    most = {kind: limits.get(kind, 0) for kind in ("fence", *LIMITED)}
    if arch < 90:  # before sm_90 a fence that releases or acquires is a full one, which does both
        most["fence"] = most["invalidate"] = most["fence"] + most["invalidate"]
    found = [f"{have[kind]} {kind}, budget {most[kind]}" for kind in most if have[kind] > most[kind]]
    if walk["instructions"] > limits.get("instructions", walk["instructions"]):
        found.append(f"{walk['instructions']} instructions, budget {limits['instructions']}")
    return found


HEADER = (
    "call                               regs  instr  cold | walk            instr  fences  inval  atomic  MMIO  record  WQE x16"
)


def fences_of(counts):
    """Fences by scope, the widest first: `2 gpu`, `1 sys 1 gpu`, `0`."""
    parts = [f"{counts[f'fence_{scope}']} {scope}" for scope in ("sys", "gpu", "cta") if counts[f"fence_{scope}"]]
    return " ".join(parts) + (" sc" if counts["fence_sc"] else "") or "0"


def row(label, counts):
    mmio = f"{counts['mailbox']} box" if counts["mailbox"] else counts["mmio"]
    return (
        f"{label:<15} {counts['instructions']:>5}  {fences_of(counts):>6}  {counts['invalidate']:>5}  {counts['atomic']:>6}"
        f"  {mmio:>4}  {counts['record']:>6}  {counts['wqe']:>7}"
    )


def table(measured, arch):
    """One architecture: static counts of the whole function, and of each walk through it."""
    lines = [HEADER]
    for m in sorted((m for m in measured if m.arch == arch), key=lambda m: m.name):
        total, cold = m.counts.total, m.counts.cold
        everything = total + cold
        everything["instructions"] = total["instructions"]
        start = f"{m.name:<34} {m.kernel.registers:>4}  {total['instructions']:>5}  {cold['instructions']:>4} | "
        lines.append(start + row("all branches", everything))
        for name, walk in m.walks.items():
            lines.append(" " * (len(start) - 2) + "| " + (f"{name}: {walk}" if isinstance(walk, str) else row(name, walk)))
    return "\n".join(lines)


WALKED = ("instructions", *FENCES, "fence_cta", "invalidate", "atomic", "mmio", "mailbox", "record", "wqe")


def facts(measured):
    """What the tables say, for programs. A kernel without the walk that its budget names has the reason in the place of its counts."""

    def walked(walk):
        return walk if isinstance(walk, str) else {kind: walk[kind] for kind in WALKED}

    def one(m):
        total, cold = m.counts.total, m.counts.cold
        return {
            "kernel": m.name,
            "arch": m.arch,
            "registers": m.kernel.registers,
            "instructions": total["instructions"],
            "out_of_line": cold["instructions"],
            "invalidate": (total + cold)["invalidate"],
            "walks": {name: walked(walk) for name, walk in m.walks.items()},
        }

    return [one(m) for m in sorted(measured, key=lambda m: (m.arch, m.name))]
