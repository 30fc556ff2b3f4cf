"""The tests of a run of `x`: which exist, which ran, and what became of each.

    build NAME [--label L] [--whole] CARGO-ARGS..   builds and lists the test programs; --whole: of all packages, in parts
    run PART --of NAME [--as OTHER] [--profile P] [--threads N] [--skip WORD..]   runs those of a part; `all`: every one
    doctests                                        runs the tests in documentation
    summary                                         prints and writes what became of all; fails where a test is missing
    failures                                        of several runs of a part: adds up, and says how often each test failed
    list FILE                                       writes the names of the tests that exist
    compare FILE FILE                               fails where two lists name other tests

Files lie in $WV_LOGS; $WV_PARTS is the table of the parts (.ci/parts.sh).
"""

import argparse
import os
import sys
from pathlib import Path

import outcomes
import runners
import summary
from programs import Parts, Test, Tree, build, unlisted_sources

ROOT = Path(__file__).resolve().parent.parent.parent
LOGS = os.environ.get("WV_LOGS", "target/x-logs")


def parts() -> Parts:
    return Parts(os.environ["WV_PARTS"])


def tree_path(name: str) -> str:
    return f"{LOGS}/{name}.programs.json"


def command_build(options: argparse.Namespace) -> int:
    tree = build(options.cargo, options.label)
    if tree is None:
        return 1
    tree.save(tree_path(options.name))
    count = sum(len(program.tests) for program in tree.programs)
    print(f"{len(tree.programs)} test programs, {count} tests")
    faults = []
    if options.whole:
        missing = unlisted_sources(tree.programs, str(ROOT))
        faults = [f"{path} is not among the test programs that cargo builds" for path in missing] + parts().faults(tree)
    print("".join(f"x: {fault}\n" for fault in faults), end="")
    return bool(faults)


def command_run(options: argparse.Namespace) -> int:
    tree = Tree.load(tree_path(options.of))
    table = parts()
    if options.part != "all" and options.part not in table.names():
        sys.exit(f"x: no such part: {options.part}. Parts: {' '.join(table.names())}")
    selection = [(program, skip(tests, options)) for program, tests in table.select(tree, options.part)]
    told = runners.run(tree, selection, options.profile, options.threads, LOGS)
    for outcome in told:
        outcome.program = summary.labelled(tree.label, outcome.program)
    judged = summary.judge(summary.expected(tree, selection), told)
    outcomes.save(judged, f"{LOGS}/{getattr(options, 'as') or options.part}.outcomes.json")
    failed = [outcome for outcome in judged if outcome.result == outcomes.FAILED]
    print("".join(f"x: {outcome.program} {outcome.test}: {outcome.why}\n" for outcome in failed), end="")
    print(f"x: {summary.totals(judged)}")
    return bool(failed) or not judged


def skip(tests: list[Test], options: argparse.Namespace) -> list[Test]:
    """As if those that --skip names were ignored: they are listed as skipped."""
    return [
        Test(test.name, f"is left out {options.why}")
        if test.ignored is None and any(word in test.name for word in options.skip)
        else test
        for test in tests
    ]


def command_doctests(_: argparse.Namespace) -> int:
    exist, told, status = runners.doctests()
    judged = summary.judge({("doc", name): Test(name) for name in exist}, told)
    outcomes.save(judged, f"{LOGS}/doctests.outcomes.json")
    return status or any(outcome.result == outcomes.FAILED for outcome in judged)


def command_summary(_: argparse.Namespace) -> int:
    found = summary.collect(LOGS)
    lost = [outcomes.Outcome(*key, outcomes.FAILED, "did not run") for key in summary.not_run(LOGS, found)]
    again = summary.twice(found)
    found += lost
    summary.write_list(found, LOGS)
    print(summary.told(found))
    for program, test in again:
        print(f"x: {program} {test} ran twice")
    Path(LOGS, "totals").write_text(f"x: {summary.totals(found)}\n")
    nothing = not any(outcome.result == outcomes.PASSED for outcome in found)
    if nothing:
        print("x: no test passed")
    return bool(lost or again or nothing)


def command_failures(_: argparse.Namespace) -> int:
    found = summary.collect(LOGS)
    print(summary.failures(found))
    print(f"x: {summary.totals(found)}")
    return 0


def command_list(options: argparse.Namespace) -> int:
    """Of the build `tests` and of documentation."""
    tree = Tree.load(tree_path("tests"))
    every = summary.expected(tree, [(program, program.tests) for program in tree.programs])
    names = [f"{program} {test} exists\n" for program, test in every]
    names += [f"doc {name} exists\n" for name in runners.list_doctests()]
    Path(options.file).write_text("".join(sorted(names)))
    return 0


def command_compare(options: argparse.Namespace) -> int:
    told, same = summary.compare(options.one, options.other)
    print(told)
    return not same


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci/tests", description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(required=True)

    def command(name: str, does) -> argparse.ArgumentParser:
        made = commands.add_parser(name)
        made.set_defaults(does=does)
        return made

    made = command("build", command_build)
    made.add_argument("--label", default="")
    made.add_argument("--whole", action="store_true")
    made.add_argument("name")
    made.add_argument("cargo", nargs=argparse.REMAINDER)
    made = command("run", command_run)
    made.add_argument("part")
    made.add_argument("--of", required=True)
    made.add_argument("--as")
    made.add_argument("--profile", default="default", choices=runners.LIMITS)
    made.add_argument("--threads", type=int)
    made.add_argument("--skip", nargs="*", default=[])
    made.add_argument("--why", default="by choice")
    command("doctests", command_doctests)
    command("summary", command_summary)
    command("failures", command_failures)
    command("list", command_list).add_argument("file")
    made = command("compare", command_compare)
    made.add_argument("one")
    made.add_argument("other")
    options = parser.parse_args()
    return int(options.does(options))


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
