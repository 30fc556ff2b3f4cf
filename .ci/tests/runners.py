"""Runs tests: with cargo-nextest where it is installed, else the test programs themselves, one after the other."""

import os
import signal
import subprocess
import sys
import time

from outcomes import FAILED, PASSED, SKIPPED, Outcome, from_junit, from_libtest
from programs import Program, Test, Tree, environment, names

Selection = list[tuple[Program, list[Test]]]

# How long one program may take without nextest, which bounds each test: seconds, by nextest's profile (.config/nextest.toml).
LIMITS = {"default": 1200, "load": 7200, "sanitize": 3600, "full": 12 * 3600}


def has_nextest() -> bool:
    """Set WV_RUNNER=libtest to do as if it were not there."""
    if os.environ.get("WV_RUNNER") == "libtest":
        return False
    asked = subprocess.run(["cargo", "nextest", "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return asked.returncode == 0


def run(tree: Tree, selection: Selection, profile: str, threads: int | None, logs: str) -> list[Outcome]:
    """What became of the tests of `selection` that are not ignored, as far as the runner tells."""
    selection = [(program, [test for test in tests if test.ignored is None]) for program, tests in selection]
    selection = [(program, tests) for program, tests in selection if tests]
    if has_nextest():
        return with_nextest(tree, selection, profile, threads)
    print("x: cargo-nextest is not installed; each test program runs by itself", flush=True)
    return [outcome for program, tests in selection for outcome in by_itself(program, tests, profile, threads, logs)]


# ---- nextest ----


def with_nextest(tree: Tree, selection: Selection, profile: str, threads: int | None) -> list[Outcome]:
    report = f"target/nextest/{profile}/junit.xml"  # whatever CARGO_TARGET_DIR says
    if os.path.exists(report):
        os.remove(report)
    command = ["cargo", "nextest", "run", "--locked", *tree.arguments, "--profile", profile, "-E", filter_of(selection)]
    if threads:
        command.append(f"--test-threads={threads}")
    status = subprocess.run(command).returncode
    if not os.path.exists(report):
        print(f"x: cargo nextest ended with status {status} and wrote no {report}")
        return []
    with open(report) as file:
        outcomes = from_junit(file.read())
    if (status == 0) == any(outcome.result == FAILED for outcome in outcomes):
        print(f"x: cargo nextest ended with status {status}, and {report} does not say so: none of it counts")
        return []
    return outcomes


def filter_of(selection: Selection) -> str:
    """The tests of `selection` in nextest's language; single tests are named where a program has others as well."""
    return " or ".join(one_program(program, tests) for program, tests in selection)


def one_program(program: Program, tests: list[Test]) -> str:
    chosen = f"binary_id(={program.id})"
    every = [test.name for test in program.tests if test.ignored is None]
    if len(tests) == len(every):
        return chosen
    return f"({chosen} and ({' or '.join(f'test(={test.name})' for test in tests)}))"


# ---- without ----


def by_itself(program: Program, tests: list[Test], profile: str, threads: int | None, logs: str) -> list[Outcome]:
    every = [test.name for test in program.tests if test.ignored is None]
    command = [program.executable, "--show-output"]
    if len(tests) < len(every):
        command += ["--exact", *(test.name for test in tests)]
    if threads:
        command.append(f"--test-threads={threads}")
    log = os.path.join(logs, program.id.replace("::", "-").replace("/", "-") + ".out")
    start = time.monotonic()
    end = run_bounded(command, program, LIMITS[profile], log)
    with open(log, errors="replace") as file:
        output = file.read()
    outcomes = from_libtest(program.id, output, end)
    told = {outcome.test for outcome in outcomes}
    if end:
        lost = [test.name for test in tests if test.name not in told]
        outcomes += [Outcome(program.id, name, FAILED, f"had no result when its program {end}") for name in lost]
    bad = sum(outcome.result == FAILED for outcome in outcomes)
    seconds = time.monotonic() - start
    if bad or end:
        sys.stdout.write(output[-20000:])
    print(f"{'FAIL' if bad or end else 'ok':4} {program.id}: {len(tests) - bad} of {len(tests)} tests, {seconds:.1f} s"
          f"{' (' + end + ')' if end else ''}", flush=True)  # fmt: skip
    return outcomes


def run_bounded(command: list[str], program: Program, limit: int, log: str) -> str:
    """Runs a test program; says how it ended if it did not end by itself, with status 0 or that of failed tests."""
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command, cwd=program.directory, env=environment(program),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            return f"was ended after {limit} s"
        finally:
            if process.returncode is None:  # too slow, or this process is interrupted: what it has started ends with it
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if status < 0:
        return f"was ended by signal {-status}"
    return "" if status in (0, 101) else f"ended with status {status}"


# ---- documentation ----


DOCTESTS = ["cargo", "test", "--locked", "--workspace", "--doc", "--no-fail-fast", "--"]


def list_doctests() -> list[str]:
    asked = subprocess.run([*DOCTESTS, "--list", "--format=terse"], stdout=subprocess.PIPE, text=True, check=True)
    return names(asked.stdout)


def doctests() -> tuple[list[str], list[Outcome], int]:
    """Tests in documentation: those that exist, what became of them, and cargo's status. Only cargo runs them."""
    exist = list_doctests()
    ran = subprocess.run(DOCTESTS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    sys.stdout.write(ran.stdout)
    return exist, [outcome for name in exist for outcome in one_doctest(name, ran.stdout)], ran.returncode


def one_doctest(name: str, output: str) -> list[Outcome]:
    """None if the output has no line of it; where it has several, as examples that are compiled and run have, the worst."""
    said = [line.rpartition(" ... ")[2] for line in output.splitlines() if line.startswith(f"test {name}")]
    if not said:
        return []
    bad = [result for result in said if not result.startswith(("ok", "ignored"))]
    if bad:
        return [Outcome("doc", name, FAILED, bad[0])]
    if all(result.startswith("ignored") for result in said):
        return [Outcome("doc", name, SKIPPED, "an example that is not run")]
    return [Outcome("doc", name, PASSED)]
