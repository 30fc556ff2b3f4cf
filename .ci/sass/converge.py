"""Where lanes of a warp wait for each other while one of them has a claim on ring space.

The compiler nvcc lets the lanes of a warp wait for each other where the ways of a divergent branch join. BSSY notes the lanes that come,
BSYNC waits for them. A lane that waits at a BSYNC with a claim may wait for a lane that still looks for ring space. That lane waits for
the claim. So no instruction at which lanes meet may stand between a claim and the index, or between the index and the first look at its
flag word. A BSYNC whose BSSY comes after the index is exempt: all lanes that wait at it have their space. `claim` and `resv` are the two
words to which a post adds; after the second one it stores WQEs.
"""

from collections import deque

from flow import Graph

MEETS = ("BSYNC", "WARPSYNC", "BAR")


def is_addition(instruction):
    return instruction.base in ("ATOM", "ATOMG") and "ADD" in instruction.modifiers


def looks_at_flag(instruction):
    """Whether a thread that has stored its WQEs looks at a flag word by this, or rings at once."""
    strong = instruction.base in ("LD", "LDG", "ATOM", "ATOMG", "RED", "REDG") and "STRONG" in instruction.modifiers
    return strong or "MMIO" in instruction.modifiers


def ways_from(counts, graph, start, exempt):
    """What the ways from the addition at place `start` lead to: (place, stores, meeting). The place is that of the next addition, or None
    for the flag word. The second says whether the way stores WQEs. The third is the first instruction at which lanes meet, or None.
    `exempt`: lanes may meet where a BSSY on the way says so."""
    found, seen, work = set(), set(), deque((n, False, None, frozenset()) for n in graph.successors(start))
    while work:
        at = work.popleft()
        if at in seen:
            continue
        seen.add(at)
        n, stored, meeting, opened = at
        i = graph.code[n]
        if is_addition(i) or (stored and looks_at_flag(i)):
            found.add((n if is_addition(i) else None, stored, meeting))
            continue
        stored = stored or "wqe" in counts.kinds[n]
        if i.base == "BSSY" and exempt:
            opened |= {i.operands[0]}
        elif i.base in MEETS and meeting is None and not opened.intersection(i.operands[:1]):
            meeting = n
        work.extend((successor, stored, meeting, opened) for successor in graph.successors(n))
    return found


def violations(counts):
    """Sentences: each place where lanes of a warp meet between claim and publication."""
    graph = Graph(counts.kernel)
    additions = [n for n, i in enumerate(graph.code) if is_addition(i)]
    ways = {n: ways_from(counts, graph, n, exempt=False) for n in additions}
    indices = {n for n, found in ways.items() if any(end is None for end, _, _ in found)}
    met, claims = set(), set()
    for start, found in ways.items():
        for end, stored, meeting in found:
            if end in indices and end != start and not stored:
                claims.add(start)
                met.add(meeting)
    for start in indices:
        met.update(meeting for end, _, meeting in ways_from(counts, graph, start, exempt=True) if end is None)
    places = [(graph.code[n].address, graph.code[n]) for n in sorted(met - {None})]
    found = [f"lanes wait for each other with claims on ring space: {address:#x} {i}" for address, i in places]
    if not claims:
        found.append("no claim on ring space leads to an index: the check of convergence looks at nothing")
    return found
