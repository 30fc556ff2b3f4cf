"""What instructions cost, and what they must not do."""

from collections import Counter

from flow import LOADS, RESULT, SQ, WINDOW, address_labels, origins

SCOPES = {"CTA": "cta", "SM": "cta", "GPU": "gpu", "SYS": "sys", "VC": "gpu"}
COUNTED = (
    "fence_cta", "fence_gpu", "fence_sys", "fence_sc", "invalidate", "atomic", "exchange", "mmio", "mailbox", "record",
    "wqe", "result", "call",
)


def kinds(instruction, labels):
    """Which of COUNTED an instruction is. `labels`: what its address points into."""
    i, parts = instruction, instruction.modifiers
    if i.base == "MEMBAR":
        scope = SCOPES.get(parts[-1], "sys")
        return [f"fence_{scope}"] + (["fence_sc"] if "SC" in parts and scope != "cta" else [])
    if i.base == "CCTL" and any(part.startswith("IVALL") for part in parts):
        return ["invalidate"]
    if i.base in ("ATOM", "ATOMG", "RED", "REDG"):
        mailbox = i.base in ("RED", "REDG") and "SYS" in parts and "MAX" in parts
        return ["mailbox"] if mailbox else ["atomic"] + (["exchange"] if "EXCH" in parts else [])
    if i.base in ("ST", "STG"):
        if "MMIO" in parts:
            return ["mmio"]
        if RESULT in labels:
            return ["result"]
        if SQ in labels:
            return ["wqe"]
        return ["record"] if parts[-2:] == ["STRONG", "SYS"] and "64" not in parts else []
    return ["call"] if i.base == "CALL" else []


class Counts:
    """One kernel, counted: `total` and, apart from it, `cold` (what is out of line)."""

    def __init__(self, kernel, arch):
        self.kernel = kernel
        self.before = origins(kernel, arch)
        self.kinds = [kinds(i, self.labels(n)) for n, i in enumerate(kernel.code)]
        self.total, self.cold = Counter(), Counter()
        for n, i in enumerate(kernel.code):
            place = self.cold if kernel.function_at(i.address) else self.total
            place["instructions"] += 1
            place.update(self.kinds[n])
            if i.base in LOADS and WINDOW in self.labels(n):
                place["window_loads"] += 1

    def labels(self, n):
        """What the address of instruction `n` points into; nothing where no path leads to it."""
        return address_labels(self.kernel.code[n], self.before[n] or {})

    def violations(self):
        """Sentences, one per instruction that no kernel of this library may hold."""
        found = []
        for n, i in enumerate(self.kernel.code):
            parts, labels = i.modifiers, self.labels(n)
            if i.base == "ATOM" or i.base == "QSPC":
                found.append(f"generic atomic: {i}")
            elif i.base in ("ST", "STG") and SQ in labels and "MMIO" not in parts and "128" not in parts:
                found.append(f"WQE store that is not 16 bytes wide: {i}")
            elif i.base in LOADS and WINDOW in labels and "CONSTANT" in parts:
                found.append(f"non-coherent load of window memory: {i}")
            elif i.base in ("LDL", "STL"):
                found.append(f"local memory: {i}")
        return found
