"""Loads in flight: what the loops of the MoE kernels that copy, cast or sum rows issue before they use any of it.

A load from device memory takes some hundred times as long as an instruction. A thread stops at the first use of a register that a load
has not filled yet. So a loop over the 16-byte vectors of rows has at least IN_FLIGHT such loads before the first instruction that reads a
result of one. Loops are found by their backward branches. A loop counts if it loads rows, and if no loop lies in it but one that stores
what it has loaded to several places.
"""

from dataclasses import dataclass

from flow import LOADS, REGISTER, names, results, width

IN_FLIGHT = 3


@dataclass
class Loop:
    """A loop over vectors. `address`: of its first instruction."""

    address: int
    loads: int
    in_flight: int


def is_row_load(instruction):
    """Whether it loads 16 bytes of a row. Constants of a QP or peer are loaded as such, words that others change as strong."""
    parts = instruction.modifiers
    return instruction.base in ("LD", "LDG") and "128" in parts and not {"CONSTANT", "STRONG"}.intersection(parts)


def is_row_store(instruction):
    """Whether it stores 16 bytes of a row. WQEs are stored as words that others see."""
    return instruction.base in ("ST", "STG") and "128" in instruction.modifiers and "STRONG" not in instruction.modifiers


def reads(instruction):
    """Registers that an instruction reads. Of a wide product only the last operand is wide."""
    found = set()
    operands = instruction.operands[results(instruction)[2] :]
    for at, operand in enumerate(operands):
        wide = "WIDE" not in instruction.modifiers or at + 1 == len(operands)
        for prefix, number, pair in REGISTER.findall(operand):
            count = 2 if pair else width(instruction) if wide and "[" not in operand else 1
            found.update(names(prefix, int(number), count))
    return found


def in_flight(code):
    """Row loads of `code` before the first instruction that reads what one of them has loaded."""
    pending, count = set(), 0
    for i in code:
        if pending & reads(i):
            break
        if is_row_load(i):
            pending.update(results(i)[0])
            count += 1
        elif i.base not in LOADS:
            pending.difference_update(results(i)[0])
    return count


def loops(kernel):
    """The loops of a kernel that load rows: innermost ones, and those around a loop that only stores rows."""
    code = kernel.code
    place = {i.address: n for n, i in enumerate(code)}
    edges = []
    for n, i in enumerate(code):
        target = i.operands[-1] if i.base == "BRA" and i.operands else ""
        if target.startswith("0x") and int(target, 16) <= i.address and int(target, 16) in place:
            edges.append((place[int(target, 16)], n))
    found = []
    for start, end in edges:
        body = code[start : end + 1]
        inside = [code[c : d + 1] for c, d in edges if start <= c and d <= end and (c, d) != (start, end)]
        only_store = all(any(map(is_row_store, loop)) and not any(map(is_row_load, loop)) for loop in inside)
        count = sum(map(is_row_load, body))
        if count and only_store:
            found.append(Loop(code[start].address, count, in_flight(body)))
    return found


def violations(seen):
    """Sentences, one for each of the loops with too few loads in flight."""
    return [
        f"the loop at {loop.address:#x} has {loop.in_flight} loads of 16 bytes in flight, not {IN_FLIGHT}"
        for loop in seen
        if loop.in_flight < IN_FLIGHT
    ]
