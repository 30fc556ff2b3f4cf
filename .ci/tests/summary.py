"""Adds up the outcomes of a run, and compares the tests that ran with those that exist."""

import glob
import os
from collections import Counter

from outcomes import FAILED, PASSED, SKIPPED, Outcome, load
from programs import CHILD, Program, Test, Tree

Key = tuple[str, str]


def labelled(label: str, program: str) -> str:
    """Programs of a build with other features are others: `simt-tests::order[tsan]`."""
    return f"{program}[{label}]" if label else program


def is_child(test: Test) -> bool:
    return test.ignored is not None and test.ignored.startswith(CHILD)


def expected(tree: Tree, selection: list[tuple[Program, list[Test]]]) -> dict[Key, Test]:
    """The tests of `selection`; what is started by another test is none."""
    return {
        (labelled(tree.label, program.id), test.name): test
        for program, tests in selection
        for test in tests
        if not is_child(test)
    }


def judge(exist: dict[Key, Test], told: list[Outcome]) -> list[Outcome]:
    """One outcome for each test that exists: what was told, or that nothing was. What ran and does not exist has failed."""
    by_name = {(outcome.program, outcome.test): outcome for outcome in told}
    outcomes = [outcome for key, outcome in by_name.items() if key not in exist]
    for outcome in outcomes:
        outcome.result, outcome.why = FAILED, "ran, and is not in the list of tests"
    for (program, name), test in exist.items():
        if test.ignored is not None:
            outcomes.append(Outcome(program, name, SKIPPED, test.ignored))
        elif (program, name) in by_name:
            outcomes.append(by_name[program, name])
        else:
            outcomes.append(Outcome(program, name, FAILED, "did not run"))
    return outcomes


def collect(logs: str) -> list[Outcome]:
    return [outcome for path in sorted(glob.glob(f"{logs}/*.outcomes.json")) for outcome in load(path)]


def not_run(logs: str, outcomes: list[Outcome]) -> list[Key]:
    """Tests of the programs that were built, and that no part of the run has named."""
    ran = {(outcome.program, outcome.test) for outcome in outcomes}
    exist: dict[Key, Test] = {}
    for path in glob.glob(f"{logs}/*.programs.json"):
        tree = Tree.load(path)
        if not tree.label:  # a build with other features runs some of its tests
            exist.update(expected(tree, [(program, program.tests) for program in tree.programs]))
    return sorted(key for key in exist if key not in ran)


def lines(outcomes: list[Outcome]) -> list[str]:
    """`program test result`, sorted."""
    return sorted(f"{outcome.program} {outcome.test} {outcome.result}" for outcome in outcomes)


def twice(outcomes: list[Outcome]) -> list[Key]:
    counts = Counter((outcome.program, outcome.test) for outcome in outcomes)
    return sorted(key for key, count in counts.items() if count > 1)


def totals(outcomes: list[Outcome]) -> str:
    counts = Counter(outcome.result for outcome in outcomes)
    return f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped"


def told(outcomes: list[Outcome]) -> str:
    """By name: what was skipped, what passed without a part of it, what failed."""
    found = []
    for title, chosen in (
        ("skipped tests, with reason:", [(o, o.why) for o in outcomes if o.result == SKIPPED]),
        ("left out of tests that passed:", [(o, "; ".join(o.left_out)) for o in outcomes if o.left_out]),
        ("failed tests:", [(o, o.why) for o in outcomes if o.result == FAILED]),
    ):
        if chosen:
            found.append(title)
            found += sorted(f"  {o.program} {o.test}: {why}" for o, why in chosen)
    return "\n".join(found)


def failures(outcomes: list[Outcome]) -> str:
    """How often each test has failed, the most often first, with the reasons."""
    failed = [outcome for outcome in outcomes if outcome.result == FAILED]
    counts = Counter((outcome.program, outcome.test) for outcome in failed)
    reasons = {key: sorted({o.why for o in failed if (o.program, o.test) == key}) for key in counts}
    return "\n".join(f"failed {n} times: {' '.join(key)}: {'; '.join(reasons[key])}" for key, n in counts.most_common())


def write_list(outcomes: list[Outcome], logs: str) -> None:
    with open(os.path.join(logs, "tests.txt"), "w") as file:
        file.writelines(line + "\n" for line in lines(outcomes))


# ---- two lists ----


def read_list(path: str) -> dict[str, str]:
    with open(path) as file:
        return dict(line.rstrip("\n").rsplit(" ", 1) for line in file)


def compare(one: str, other: str) -> tuple[str, bool]:
    """What differs between two lists, and whether they name the same tests. The result `exists` is that of a list of names, which
    knows nothing of builds with other features."""
    first, second = read_list(one), read_list(other)
    found = [f"{len(first)} tests in {one}", f"{len(second)} tests in {other}"]
    if "exists" in [*first.values(), *second.values()]:
        for tests in (first, second):
            labels = [name for name in tests if name.split(" ")[0].endswith("]")]
            found += [f"  not compared, of a build with other features: {name}" for name in labels]
            for name in labels:
                del tests[name]
    found += [f"  only in {one}: {name}" for name in sorted(first.keys() - second.keys())]
    found += [f"  only in {other}: {name}" for name in sorted(second.keys() - first.keys())]
    for name in sorted(first.keys() & second.keys()):
        if first[name] != second[name] and "exists" not in (first[name], second[name]):
            found.append(f"  {name}: {first[name]} in one, {second[name]} in the other")
    same = first.keys() == second.keys()
    found.append("the same tests in both" if same else "these are NOT the same tests")
    return "\n".join(found), same
