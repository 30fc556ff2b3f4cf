"""The executed fast path: the shortest walk from a kernel's entry to its end that does what the call must do.

Static counts hold every branch; what one call executes is less. A walk is asked for by counts: 3 WQE stores and 1 MMIO store is a put
whose thread rings. Among all walks with exactly these counts the one with the fewest instructions is taken, and everything else on it is
reported. Values are followed where branches depend on them: constants, copies, comparisons with constants, the outcome of a branch. So no
shortcut is taken that cannot run. Which lane of a warp runs is such a value too: the walk of a leader stays a leader's.
"""

import heapq
from itertools import count
from operator import add, gt

from count import COUNTED
from flow import PREDICATE, Graph, is_move, results, sources

COMPARE = {
    "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b, "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b, "GE": lambda a, b: a >= b,
}
OPPOSITE = {"EQ": "NE", "NE": "EQ", "LT": "GE", "GE": "LT", "GT": "LE", "LE": "GT"}
BRANCHES = {"BRA", "EXIT", "RET", "CALL", "BSYNC", "JMP", "KILL", "BPT"}
END = -1
MAX_STATES = 200_000


class NoWalk(Exception):
    """No walk does what was asked."""


class Values:
    """What is known at one point of a walk: registers hold constants or names, facts compare names with constants."""

    def __init__(self, registers=None, facts=None):
        self.registers = registers or {}  # register or predicate -> int, bool, name or comparison
        self.facts = facts or {}  # name -> ("EQ" or "NE", constant)

    def key(self, live):
        """What tells this from other knowledge, as far as it can still matter. A value may come back; a lane stays one."""
        held = frozenset((r, v) for r, v in self.registers.items() if r in live)
        names = {name for _, v in held for name in (v, v[1] if isinstance(v, tuple) and v[0] == "compare" else None)}
        return held, frozenset((n, f) for n, f in self.facts.items() if n in names or n[0] != "value")

    def read(self, operand):
        """The value of a source operand: an int, a name, or None."""
        text = operand.replace(".reuse", "")
        if text in ("RZ", "URZ", "SRZ"):
            return 0
        if text.startswith(("0x", "-0x")):
            return int(text, 16) & 0xFFFFFFFF
        value = self.registers.get(text)
        if isinstance(value, tuple) and self.facts.get(value, ("",))[0] == "EQ":
            return self.facts[value][1]
        return value

    def truth(self, predicate):
        """True, False or None for `P0`, `!P0`, `PT`."""
        name = predicate.lstrip("!")
        if name in ("PT", "UPT"):
            value = True
        else:
            value = self.decide(self.registers.get(name))
        return value if value is None or not predicate.startswith("!") else not value

    def decide(self, value):
        """A predicate's value, if it is known: held as such, or a comparison of what is known."""
        if not isinstance(value, tuple) or value[0] != "compare":
            return value if isinstance(value, bool) else None
        _, name, operator, constant = value
        fact = self.facts.get(name)
        if fact and fact[0] == "EQ":
            return COMPARE[operator](fact[1], constant)
        if fact and fact == ("NE", constant) and operator in ("EQ", "NE"):
            return operator == "NE"
        return None

    def assume(self, predicate, truth):
        """A copy in which `predicate` has this truth, with what follows from it."""
        name = predicate.lstrip("!")
        truth = truth != predicate.startswith("!")
        after = Values(dict(self.registers), dict(self.facts))
        value = after.registers.get(name)
        if isinstance(value, tuple) and value[0] == "compare":
            operator = value[2] if truth else OPPOSITE[value[2]]
            if operator in ("EQ", "NE"):
                after.facts[value[1]] = (operator, value[3])
        else:
            after.registers[name] = truth
        return after

    def run(self, n, i, relevant):
        """A copy after instruction `i` at place `n`. Only registers in `relevant` are followed."""
        written, predicates, at = results(i)
        if not relevant.intersection(written) and not predicates:
            return self
        value = self.evaluate(i, at)
        if i.guard and self.truth(i.guard[1:]) is not True:
            value = None
        truth = self.compare(i) if predicates and not i.guard else None
        after = Values(
            {r: v for r, v in self.registers.items() if r not in written and r not in predicates and not mentions(v, n)},
            {f: c for f, c in self.facts.items() if not mentions(f, n)},
        )
        for k, register in enumerate(written):
            if register in relevant:
                known = 0 if i.operands[-1] == "SRZ" else value if k == 0 else None
                after.registers[register] = ("value", n, k) if known is None or mentions(known, n) else known
        if truth is not None and not mentions(truth, n):
            after.registers[predicates[0]] = truth
        return after

    def evaluate(self, i, at):
        """The first result register of `i`, if this knows how to compute it."""
        operands = i.operands[at:]
        if i.base in ("S2R", "S2UR"):
            return ("S2R", operands[0])
        if i.base in ("SEL", "USEL"):
            truth = self.truth(operands[2])
            return self.read(operands[0 if truth else 1]) if truth is not None else None
        if is_move(i) and "[" not in operands[-1] and "64" not in i.modifiers:
            return self.read(operands[-1])
        if i.base in ("LOP3", "ULOP3"):
            return self.conjunction(operands)
        return None

    def conjunction(self, operands):
        """`a & b` of a LOP3 with two operands."""
        if len(operands) < 4 or operands[3] != "0xc0":
            return None
        a, b = self.read(operands[0]), self.read(operands[1])
        if isinstance(a, int) and isinstance(b, int):
            return a & b
        return ("and", a, b) if isinstance(a, tuple) and isinstance(b, int) else None

    def compare(self, i):
        """The first predicate that a comparison writes: bool, ("compare", name, operator, constant) or None."""
        if i.base in ("LOP3", "ULOP3"):
            return comparison(self.conjunction(i.operands[results(i)[2] :]), "NE", 0)
        if i.base not in ("ISETP", "UISETP") or "EX" in i.modifiers or i.modifiers[0] not in COMPARE:
            return None
        a, b, other = (*map(self.read, i.operands[2:4]), self.truth(i.operands[4]))
        joined = "OR" if "OR" in i.modifiers else "AND"
        if other is (joined == "OR"):
            return other
        if other is None:
            return None
        if isinstance(a, int) and isinstance(b, int) and not isinstance(a, bool):
            return comparison(a, i.modifiers[0], b)
        return comparison(a, i.modifiers[0], b) if isinstance(a, tuple) and isinstance(b, int) else None


NOTHING = Values()


def mentions(value, n):
    """Whether a value is made of what the instruction at place `n` wrote before."""
    return isinstance(value, tuple) and (value[:2] == ("value", n) or any(mentions(part, n) for part in value))


def comparison(a, operator, b):
    if isinstance(a, int):
        return COMPARE[operator](a, b)
    return ("compare", a, operator, b) if a is not None else None


def liveness(graph):
    """For each instruction, the registers and predicates that it or a later one may still read."""
    live = [frozenset()] * len(graph.code)
    uses = [(frozenset(r) | frozenset(p)) for r, p in map(sources, graph.code)]
    kills = [frozenset() if i.guard else frozenset(results(i)[0] + results(i)[1]) for i in graph.code]
    before = [[] for _ in graph.code]
    for n in range(len(graph.code)):
        for successor in graph.successors(n):
            before[successor].append(n)
    work = list(range(len(graph.code)))
    while work:
        n = work.pop()
        out = frozenset().union(*(live[s] for s in graph.successors(n)))
        new = uses[n] | (out - kills[n])
        if new != live[n]:
            live[n] = new
            work += before[n]
    return live


def followed(code):
    """The registers from which comparisons and conditions are computed, through copies and selections."""
    found, size = set(), -1
    while size != len(found):
        size = len(found)
        for i in code:
            written, predicates, _ = results(i)
            copies = is_move(i) or i.base in ("SEL", "USEL", "LOP3", "ULOP3")
            if predicates or (copies and found.intersection(written)):
                found.update(sources(i)[0])
    return found


def shortest(counts, wanted):
    """The cheapest walk on which each kind in `wanted` occurs exactly so often: its counts, and its instructions."""
    graph, limits, goal = Graph(counts.kernel), tuple(wanted), tuple(wanted.values())
    steps = [tuple(int(k in kinds) for k in limits) for kinds in counts.kinds]
    rest = distances(graph, steps, goal)
    live, relevant = liveness(graph), followed(graph.code)
    order, seen, start = count(), set(), (0,) * len(goal)
    heap = [(rest[0, start], next(order), 0, 0, start, (), Values(), None)] if (0, start) in rest else []
    while heap:
        _, _, cost, n, so_far, stack, values, trail = heapq.heappop(heap)
        if n == END:
            return tally(counts, trail)
        key = (n, so_far, stack, values.key(live[n]))
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > MAX_STATES:
            raise NoWalk(f"gave up after {MAX_STATES} states")
        i, adds = graph.code[n], steps[n]
        for runs, known in outcomes(i, values, any(adds)):
            done = tuple(map(add, so_far, adds)) if runs else so_far
            place, calls = follow(graph, n, runs, stack)
            for target in place:
                if (target, done) in rest:
                    after = known.run(n, i, relevant) if runs else known
                    entry = (target, done, calls, after, (n, runs, trail))
                    heapq.heappush(heap, (cost + 1 + rest[target, done], next(order), cost + 1, *entry))
    raise NoWalk("no walk with " + ", ".join(f"{wanted[k]} {k}" for k in limits))


def distances(graph, steps, goal):
    """(instruction, counts so far) -> the fewest instructions to the end with `goal`, if values were of no concern."""
    before, work = {}, [(0, (0,) * len(goal))]
    reached = set(work)
    while work:
        n, so_far = node = work.pop()
        if n in (END, len(graph.code)):
            continue
        i, adds = graph.code[n], steps[n]
        for runs, _ in outcomes(i, NOTHING, any(adds)):
            done = tuple(map(add, so_far, adds)) if runs else so_far
            if any(map(gt, done, goal)):
                continue
            jump = graph.jump(n) if runs else None
            for target in [n + 1] if jump is None else [END] if i.base == "EXIT" else jump:
                before.setdefault((target, done), []).append(node)
                if (target, done) not in reached:
                    reached.add((target, done))
                    work.append((target, done))
    found, layer, far = {(END, goal): 0}, [(END, goal)], 0
    while layer:
        far += 1
        layer = [p for node in layer for p in before.get(node, ()) if found.setdefault(p, far) == far]
        layer = list(dict.fromkeys(layer))
    return found


def follow(graph, n, runs, stack):
    """Where a walk goes from instruction `n`, and its call stack then."""
    i, jump = graph.code[n], graph.jump(n) if runs else None
    if jump is None:
        return [n + 1], stack
    if i.base == "CALL":
        return jump, stack + (n + 1,)
    if i.base == "RET":
        return ([stack[-1]], stack[:-1]) if stack else ([], stack)
    return (jump, stack) if i.base != "EXIT" else ([END], stack)


def outcomes(i, values, counted):
    """Whether `i` takes effect: (True or False, what is known then), one or both."""
    condition = i.guard[1:]
    if i.base == "BRA" and len(i.operands) > 1:
        if "DIV" in i.modifiers:  # taken only by a warp whose lanes have parted
            return [(False, values)]
        condition = i.operands[0]
    if not condition or not (counted or i.base in BRANCHES):
        return [(True, values)]
    if not PREDICATE.match(condition):
        return [(True, values), (False, values)]
    truth = values.truth(condition)
    if truth is not None:
        return [(truth, values)]
    return [(truth, values.assume(condition, truth)) for truth in (False, True)]


def tally(counts, trail):
    """Counts along a walk, and its instructions, from a trail of (place, whether it took effect, trail before)."""
    found, places = dict.fromkeys(("instructions", *COUNTED), 0), []
    while trail:
        n, runs, trail = trail
        places.append(n)
        found["instructions"] += 1
        for kind in counts.kinds[n] if runs else ():
            found[kind] += 1
    return found, [counts.kernel.code[n] for n in reversed(places)]
