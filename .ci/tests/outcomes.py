"""What became of each test, read from what a runner wrote: nextest's junit.xml, or the output of a test program."""

import json
import re
from dataclasses import asdict, dataclass, field
from xml.etree import ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# What a test prints that cannot run here, and one that runs without a part of it: `skipped: what: why`, `left out: what: why`.
# With one thread a test program prints `test NAME ... ` in front of it.
SKIP_LINE = re.compile(r"(?:^|\.\.\. )skipped: (.+)$", re.MULTILINE | re.IGNORECASE)
PART_LINE = re.compile(r"(?:^|\.\.\. )left out: (.+)$", re.MULTILINE)


@dataclass
class Outcome:
    program: str
    test: str
    result: str
    why: str = ""  # it failed or was skipped
    left_out: list[str] = field(default_factory=list)  # of a test that passed


def outcome_of_passed(program: str, test: str, printed: str) -> Outcome:
    skipped = SKIP_LINE.findall(printed)
    if skipped:
        return Outcome(program, test, SKIPPED, "; ".join(dict.fromkeys(skipped)))
    return Outcome(program, test, PASSED, left_out=list(dict.fromkeys(PART_LINE.findall(printed))))


def from_junit(text: str) -> list[Outcome]:
    outcomes = []
    for suite in ElementTree.fromstring(text).iter("testsuite"):
        for case in suite.iter("testcase"):
            program, test = suite.get("name", ""), case.get("name", "")
            wrong = [case.find(kind) for kind in ("failure", "error")]
            wrong = [element for element in wrong if element is not None]
            if wrong:
                outcomes.append(Outcome(program, test, FAILED, wrong[0].get("type") or wrong[0].get("message", "")))
            else:
                printed = "\n".join(case.findtext(stream, "") for stream in ("system-out", "system-err"))
                outcomes.append(outcome_of_passed(program, test, printed))
    return outcomes


# `test NAME ... ok`, wherever in its line it stands: other processes may have written in front of it.
RESULT_LINE = re.compile(r"test (\S+)(?: - should panic)? \.\.\. (ok|FAILED)$", re.MULTILINE)
SECTION = re.compile(r"^---- (.+) stdout ----$", re.MULTILINE)


def from_libtest(program: str, output: str, end: str) -> list[Outcome]:
    """Of the output of a test program with --show-output. `end` says why it ended if it did not end by itself: what then has
    no result has failed, which is for the caller to see, who has the list."""
    printed = sections(output)
    passed, failed = last_list(output, "successes"), last_list(output, "failures")
    if end or passed is None:  # no lists at the end: what was said in between
        said = RESULT_LINE.findall(output)
        passed = [name for name, result in said if result == "ok"]
        failed = [name for name, result in said if result == "FAILED"]
    outcomes = [outcome_of_passed(program, name, printed.get(name, "")) for name in passed]
    outcomes += [Outcome(program, name, FAILED, "failed") for name in failed or []]
    return outcomes


def sections(output: str) -> dict[str, str]:
    """What each test has printed."""
    parts = SECTION.split(output)
    return {name: text for name, text in zip(parts[1::2], parts[2::2])}


def last_list(output: str, title: str) -> list[str] | None:
    """The names below the last line `title:`; no names where there is no such line, None where the program has not ended well."""
    if "\ntest result: " not in output:
        return None
    _, is_there, below = output.rpartition(f"\n{title}:\n")
    if not is_there:
        return []
    found = []
    for line in below.splitlines():
        if not line.startswith("    "):
            break
        found.append(line.strip())
    return found


def save(outcomes: list[Outcome], path: str) -> None:
    with open(path, "w") as file:
        json.dump([asdict(outcome) for outcome in outcomes], file, indent=1)


def load(path: str) -> list[Outcome]:
    with open(path) as file:
        return [Outcome(**outcome) for outcome in json.load(file)]
