"""Where control and values go in a kernel: successors, registers read and written, and what an address points into.

Origins are followed forward over all paths. `window` is whatever is computed from the kernel's first parameter, `context` is its second
parameter itself. `result` is what is computed from its third, `sq` what is computed from the first constant of a context.
"""

import re
from bisect import bisect_left

PARAMETERS = {80: 0x160, 90: 0x210, 100: 0x380}  # where kernel parameters begin in constant bank 0
WINDOW, CONTEXT, RESULT, SQ = "window", "context", "result", "sq"

REGISTER = re.compile(r"\b(UR|R)(\d+)(\.64)?\b")
PREDICATE = re.compile(r"^!?(U?P\d)$")
ANY_PREDICATE = re.compile(r"^!?(U?P(\d|T))$")
TARGET = re.compile(r"^0x[0-9a-f]+$")
NO_RESULT = {
    "BAR", "BMOV", "BRA", "BREAK", "BRX", "BSSY", "BSYNC", "CALL", "CCTL", "CGAERRBAR", "DEPBAR", "ERRBAR", "EXIT", "FENCE",
    "JMP", "KILL", "MEMBAR", "NANOSLEEP", "PREEXIT", "RED", "REDG", "RET", "ST", "STG", "STL", "STS", "WARPSYNC", "YIELD",
}
MOVES = {"MOV", "UMOV", "LDC", "ULDC", "LDCU", "R2UR", "S2UR"}
LOADS = {"LD", "LDG", "LDL", "LDS", "ATOM", "ATOMG", "ATOMS"}


def width(instruction):
    """How many 32-bit registers a result of this instruction fills."""
    parts = instruction.modifiers
    if "128" in parts:
        return 4
    if "64" in parts or "WIDE" in parts or (instruction.base == "CS2R" and "32" not in parts):
        return 2
    return 1


def names(prefix, number, count):
    return [f"{prefix}{number + i}" for i in range(count)]


def results(instruction):
    """(registers, predicates) that the instruction writes, and how many operands they are."""
    registers, predicates, at = [], [], 0
    operands = instruction.operands
    if instruction.base in NO_RESULT:
        return registers, predicates, 0
    if instruction.base == "R2P":
        return [], [f"P{i}" for i in range(7)], 1
    while at < len(operands) and ANY_PREDICATE.match(operands[at]) and not operands[at].startswith("!"):
        predicates.append(operands[at])
        at += 1
        if at == 2 and instruction.base.endswith("SETP") or at == 2 and "PLOP3" in instruction.base:
            return registers, predicates, at
    if at < len(operands):
        if match := REGISTER.match(operands[at]):
            registers = names(match[1], int(match[2]), width(instruction))
        at += 1
    carries = {"IADD3": 2, "UIADD3": 2, "LEA": 1, "ULEA": 1, "IMAD": 1, "UIMAD": 1, "VOTE": 1, "VOTEU": 1}
    for _ in range(carries.get(instruction.base, 0)):
        if at < len(operands) - 1 and re.match(r"^U?P(\d|T)$", operands[at]):
            predicates.append(operands[at])
            at += 1
    return registers, predicates, at


def sources(instruction):
    """(registers, predicates) that the instruction reads; wide operations count every register as wide."""
    registers, predicates = [], []
    wide = width(instruction)
    if match := re.match(r"^@!?(U?P\d)$", instruction.guard):
        predicates.append(match[1])
    for operand in instruction.operands[results(instruction)[2] :]:
        if match := PREDICATE.match(operand):
            predicates.append(match[1])
        for prefix, number, pair in REGISTER.findall(operand):
            count = 2 if pair or prefix == "UR" else 1
            registers += names(prefix, int(number), max(count, wide if "[" not in operand else count))
    return registers, predicates


class Graph:
    """The control flow graph of a kernel, calls and returns included."""

    def __init__(self, kernel):
        self.code = kernel.code
        self.addresses = [i.address for i in self.code]
        self.kernel = kernel
        self.converge = {}
        for i in self.code:
            if i.base == "BSSY":
                self.converge.setdefault(i.operands[0], []).append(self.target(i))
        self.return_sites = {}
        for n, i in enumerate(self.code):
            if i.base == "CALL":
                self.return_sites.setdefault(kernel.function_at(self.target(i)), []).append(n + 1)

    def target(self, instruction):
        """The address that a branch names."""
        found = [o for o in instruction.operands if TARGET.match(o)]
        return int(found[-1], 16) if found else None

    def place(self, address):
        """The instruction at `address`, or the next one: NOPs are left out."""
        return bisect_left(self.addresses, address)

    def conditional(self, instruction):
        return bool(instruction.guard) or (instruction.base == "BRA" and len(instruction.operands) > 1)

    def jump(self, n):
        """Where instruction `n` goes if its condition holds; None: to the next instruction."""
        i = self.code[n]
        if i.base in ("EXIT", "KILL", "BPT"):
            return []
        if i.base in ("BRA", "JMP", "CALL"):
            return [self.place(self.target(i))]
        if i.base == "RET":
            return self.return_sites.get(self.kernel.function_at(i.address), [])
        if i.base == "BSYNC":
            after = self.code[n + 1].address if n + 1 < len(self.code) else None
            targets = self.converge.get(i.operands[0], [])
            return None if after in targets or not targets else [self.place(t) for t in targets]
        return None

    def successors(self, n):
        jump = self.jump(n)
        if jump is None:
            return [n + 1] if n + 1 < len(self.code) else []
        past = [n + 1] if self.conditional(self.code[n]) else []
        return [s for s in jump + past if s < len(self.code)]


def origins(kernel, arch):
    """For each instruction, which registers hold addresses of what: {register: {label, ..}} before it runs.

    A call gives its registers to the function. After the call, registers that the function writes are as they were at its end. The others
    are as they were before: what another caller keeps in them is of no concern.
    """
    graph = Graph(kernel)
    before = [None] * len(graph.code)
    before[0] = {}
    ends, clobbers = {}, written_by(graph)
    work = [0]

    def flow(state, place):
        if place < len(graph.code):
            merged = state if before[place] is None else join(before[place], state)
            if merged != before[place]:
                before[place] = merged
                work.append(place)

    while work:
        n = work.pop()
        i, state = graph.code[n], before[n]
        if i.base == "CALL":
            function = kernel.function_at(graph.target(i))
            flow(state, graph.jump(n)[0])
            if function in ends:
                kept = {r: label for r, label in state.items() if r not in clobbers[function]}
                flow(kept | {r: label for r, label in ends[function].items() if r in clobbers[function]}, n + 1)
        elif i.base == "RET":
            function = kernel.function_at(i.address)
            ends[function] = join(ends.get(function, {}), state)
            work += [site - 1 for site in graph.return_sites.get(function, []) if before[site - 1] is not None]
        else:
            for successor in graph.successors(n):
                flow(transfer(i, state, PARAMETERS[arch]), successor)
    return before


def written_by(graph):
    """Function -> the registers that it, or what it calls, may write."""
    found, calls = {}, {}
    for i in graph.code:
        function = graph.kernel.function_at(i.address)
        found.setdefault(function, set()).update(results(i)[0])
        if i.base == "CALL":
            calls.setdefault(function, set()).add(graph.kernel.function_at(graph.target(i)))
    for _ in found:  # as deep as calls may nest
        for function, callees in calls.items():
            found[function].update(*(found.get(c, ()) for c in callees))
    return found


def join(a, b):
    return {register: a.get(register, frozenset()) | b.get(register, frozenset()) for register in a.keys() | b.keys()}


def transfer(instruction, state, parameters):
    written, _, _ = results(instruction)
    if not written:
        return state
    labels = [frozenset()] * len(written)
    address = address_labels(instruction, state)
    if instruction.base in LOADS:
        if CONTEXT in address and "CONSTANT" in instruction.modifiers and "+" not in instruction.operands[-1]:
            labels[: min(2, len(labels))] = [frozenset([SQ])] * min(2, len(labels))
    else:
        read = [state.get(r, frozenset()) for r in sources(instruction)[0]]
        union = frozenset().union(*read, constant_labels(instruction, parameters))
        if not is_move(instruction):
            union -= {CONTEXT}
        labels = [union] * len(written)
    after = dict(state)
    for register, label in zip(written, labels):
        if instruction.guard and instruction.base not in LOADS:  # it may not run; what is loaded if so is used if so
            label |= state.get(register, frozenset())
        after[register] = label
    return after


def is_move(instruction):
    return instruction.base in MOVES or (
        instruction.base in ("IMAD", "UIMAD") and instruction.operands[1:3] in (["RZ", "RZ"], ["URZ", "URZ"])
    )


def constant_labels(instruction, parameters):
    """Labels of parameters that the instruction reads from constant bank 0."""
    found = set()
    for offset in re.findall(r"c\[0x0\]\[0x([0-9a-f]+)\]", " ".join(instruction.operands)):
        place = int(offset, 16) - parameters
        if 0 <= place < 24:
            found.add((WINDOW, CONTEXT, RESULT)[place // 8])
    return found


def address_labels(instruction, state):
    """What the memory operand of a load, store or atomic points into."""
    for operand in instruction.operands:
        if "[" in operand and not operand.startswith("c["):
            pointers = REGISTER.findall(operand.split("][")[-1])
            return frozenset().union(*(state.get(f"{p}{n}", frozenset()) for p, n, _ in pointers))
    return frozenset()
