"""The test programs that exist, and their tests: what cargo builds, asked for its own list.

A program has the name that cargo-nextest gives it: `softhca` (unit tests of a library), `warpverbs::bin/wv` (of a program),
`softhca::judges` (tests/judges).
"""

import fnmatch
import glob
import json
import os
import subprocess
from dataclasses import asdict, dataclass, field

# How the reason of an ignored test begins that is no test: another test starts it, as a second process.
CHILD = "is started by"


@dataclass
class Test:
    name: str
    ignored: str | None = None  # the reason, where it does not run by itself


@dataclass
class Program:
    id: str
    executable: str
    directory: str  # of its package: where it runs
    source: str
    tests: list[Test] = field(default_factory=list)


@dataclass
class Tree:
    """What one call of cargo has built."""

    arguments: list[str]
    label: str  # of a build with other features, such as `tsan`
    programs: list[Program]

    def save(self, path: str) -> None:
        with open(path, "w") as file:
            json.dump(asdict(self), file, indent=1)

    @staticmethod
    def load(path: str) -> "Tree":
        with open(path) as file:
            tree = json.load(file)
        for program in tree["programs"]:
            program["tests"] = [Test(**test) for test in program["tests"]]
        return Tree(tree["arguments"], tree["label"], [Program(**program) for program in tree["programs"]])


def program_of(message: dict) -> Program | None:
    """The test program of a message of cargo; None for libraries, for `wv` itself, and for other messages."""
    is_test = message.get("reason") == "compiler-artifact" and message["profile"]["test"]
    if not is_test or not message.get("executable"):
        return None
    place, _, version = message["package_id"].rpartition("#")
    package = version.split("@")[0] if "@" in version else place.rstrip("/").rsplit("/", 1)[-1]
    target = message["target"]
    kind = target["kind"][0]
    name = {"test": f"{package}::{target['name']}", "bin": f"{package}::bin/{target['name']}"}.get(kind)
    if kind in ("example", "bench"):
        name = f"{package}::{kind}/{target['name']}"
    directory = os.path.dirname(message["manifest_path"])
    return Program(name or package, message["executable"], directory, target["src_path"])


def build(arguments: list[str], label: str) -> Tree | None:
    """Builds and lists the programs; None if the build failed, of which cargo has told."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        return None
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    programs = sorted(filter(None, map(program_of, messages)), key=lambda program: program.id)
    for program in programs:
        program.tests = list_tests(program)
    return Tree(arguments, label, programs)


def list_tests(program: Program) -> list[Test]:
    every = names(ask(program, ["--list", "--format=terse"]))
    ignored = names(ask(program, ["--list", "--format=terse", "--ignored"]))
    # Asked to run an ignored test without `--ignored`, a program says why it does not.
    told = ask(program, ["--exact", *ignored]) if ignored else ""
    reasons = reasons_of(told, ignored)
    return [Test(name, reasons[name] if name in reasons else None) for name in every]


def names(listed: str) -> list[str]:
    return [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]


def reasons_of(told: str, ignored: list[str]) -> dict[str, str]:
    reasons = {name: "no reason is given" for name in ignored}
    for line in told.splitlines():
        test, is_ignored, reason = line.partition(" ... ignored, ")
        if is_ignored and test.startswith("test "):
            reasons[test.removeprefix("test ")] = reason.strip()
    return reasons


def ask(program: Program, arguments: list[str]) -> str:
    asked = subprocess.run(
        [program.executable, *arguments],
        cwd=program.directory, env=environment(program), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, text=True, timeout=120, check=True,
    )  # fmt: skip
    return asked.stdout


def environment(program: Program) -> dict[str, str]:
    """As cargo sets it for a test program."""
    deps = os.path.dirname(program.executable)
    libraries = [deps, os.path.dirname(deps), os.environ.get("LD_LIBRARY_PATH", "")]
    return {
        **os.environ,
        "CARGO_MANIFEST_DIR": program.directory,
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
    }


def unlisted_sources(programs: list[Program], root: str) -> list[str]:
    """Files that cargo takes for a test program by their place, and of which no program was built."""
    patterns = [f"{package}tests/{file}" for package in ("", "crates/*/") for file in ("*.rs", "*/main.rs")]
    found = [path for pattern in patterns for path in glob.glob(os.path.join(root, pattern))]
    built = {os.path.realpath(program.source) for program in programs}
    return sorted(os.path.relpath(path, root) for path in found if os.path.realpath(path) not in built)


class Parts:
    """Which part of a run has which tests. A line of the table: a part, then programs, `program.module::` for some tests of one.
    `*` stands for anything. What no line names is in part `tests`."""

    REST = "tests"

    def __init__(self, table: str):
        lines = [line.split() for line in table.splitlines() if line.strip()]
        self.rows = [(line[0], *pattern.partition(".")[::2]) for line in lines for pattern in line[1:]]

    def names(self) -> list[str]:
        return list(dict.fromkeys([self.REST, *(part for part, _, _ in self.rows)]))

    def matching(self, program: str, test: str) -> list[str]:
        return [
            part
            for part, pattern, tests in self.rows
            if fnmatch.fnmatchcase(program, pattern) and test.startswith(tests)
        ]

    def part_of(self, program: str, test: str) -> str:
        return (self.matching(program, test) or [self.REST])[0]

    def select(self, tree: Tree, part: str) -> list[tuple[Program, list[Test]]]:
        """Programs with the tests of `part`; those without one are left out. Part `all` is everything."""
        if part == "all":
            return [(program, program.tests) for program in tree.programs if program.tests]
        chosen = [
            (program, [test for test in program.tests if self.part_of(program.id, test.name) == part])
            for program in tree.programs
        ]
        return [(program, tests) for program, tests in chosen if tests]

    def faults(self, tree: Tree) -> list[str]:
        """Tests in two parts, and names in the table that nothing has."""
        found = []
        for program in tree.programs:
            for test in program.tests:
                parts = self.matching(program.id, test.name)
                if len(parts) > 1:
                    found.append(f"{program.id} {test.name} is in the parts {' and '.join(parts)}")
        for part, pattern, tests in self.rows:
            programs = [program for program in tree.programs if fnmatch.fnmatchcase(program.id, pattern)]
            if not programs:
                found.append(f"part {part} names {pattern}, which is no test program")
            elif not any(test.name.startswith(tests) for program in programs for test in program.tests) and tests:
                found.append(f"part {part} names {pattern}.{tests}, of which there is no test")
        return found
