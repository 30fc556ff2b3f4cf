"""Tests of the lists: each way in which a test could be lost without a word."""

import os
import stat
import tempfile
import unittest

import outcomes
import programs
import runners
import summary
from outcomes import FAILED, PASSED, SKIPPED, Outcome
from programs import Parts, Program, Test, Tree


def tree(*listed: tuple[str, list[Test]], label: str = "") -> Tree:
    return Tree([], label, [Program(name, "/bin/true", "/", f"/{name}.rs", tests) for name, tests in listed])


def results(found: list[Outcome]) -> list[tuple[str, str]]:
    return sorted((outcome.test, outcome.result) for outcome in found)


class Programs(unittest.TestCase):
    def message(self, kind: str, name: str, package: str, test: bool = True) -> dict:
        return {
            "reason": "compiler-artifact", "package_id": package, "manifest_path": "/w/crates/p/Cargo.toml",
            "target": {"kind": [kind], "name": name, "src_path": "/w/x.rs"},
            "profile": {"test": test}, "executable": "/w/target/debug/deps/x-1",
        }  # fmt: skip

    def test_programs_have_the_names_of_nextest(self):
        for kind, package, expected in [
            ("lib", "path+file:///w/crates/softhca#0.1.0", "softhca"),
            ("test", "path+file:///w/crates/softhca#0.1.0", "softhca::x"),
            ("cdylib", "path+file:///w/crates/capi#warpverbs-capi@0.1.0", "warpverbs-capi"),
            ("bin", "path+file:///w#warpverbs@0.1.0", "warpverbs::bin/x"),
        ]:
            self.assertEqual(programs.program_of(self.message(kind, "x", package)).id, expected)
        self.assertIsNone(programs.program_of(self.message("bin", "wv", "path+file:///w#warpverbs@0.1.0", test=False)))

    def test_a_source_without_a_program_is_found(self):
        with tempfile.TemporaryDirectory() as root:
            for path in ("tests/a.rs", "tests/b/main.rs", "tests/c/part.rs", "crates/p/tests/d.rs"):
                os.makedirs(os.path.dirname(f"{root}/{path}"), exist_ok=True)
                open(f"{root}/{path}", "w").close()
            built = [Program("p::a", "", "", f"{root}/tests/a.rs")]
            self.assertEqual(programs.unlisted_sources(built, root), ["crates/p/tests/d.rs", "tests/b/main.rs"])

    def test_reasons_are_read_from_what_a_program_says(self):
        told = "running 2 tests\ntest a::b ... ignored, needs a GPU\ntest c ... ignored\n\ntest result: ok."
        self.assertEqual(programs.reasons_of(told, ["a::b", "c"]), {"a::b": "needs a GPU", "c": "no reason is given"})


class Partition(unittest.TestCase):
    table = "judges p::judges\nmoe p::moe_*\nlate p::demo.members::"
    tree = tree(
        ("p::demo", [Test("members::die"), Test("direct")]), ("p::judges", [Test("a")]), ("p::moe_data", [Test("b")]),
        ("p::new", [Test("c")]),
    )  # fmt: skip

    def test_every_test_is_in_one_part_and_what_is_new_in_the_rest(self):
        parts = Parts(self.table)
        chosen = {part: [(p.id, [t.name for t in tests]) for p, tests in parts.select(self.tree, part)] for part in parts.names()}
        self.assertEqual(chosen, {
            "tests": [("p::demo", ["direct"]), ("p::new", ["c"])], "judges": [("p::judges", ["a"])],
            "moe": [("p::moe_data", ["b"])], "late": [("p::demo", ["members::die"])],
        })  # fmt: skip
        self.assertEqual(parts.faults(self.tree), [])

    def test_a_test_in_two_parts_and_names_of_nothing_are_faults(self):
        faults = Parts(self.table + "\nother p::moe_data p::gone p::demo.gone::").faults(self.tree)
        self.assertEqual(len(faults), 3, faults)
        for fault, text in zip(faults, ("moe and other", "p::gone", "p::demo.gone::")):
            self.assertIn(text, fault)

    def test_nextest_is_given_single_tests_where_a_program_has_others(self):
        selection = Parts(self.table).select(self.tree, "tests")
        self.assertEqual(
            runners.filter_of(selection), "(binary_id(=p::demo) and (test(=direct))) or binary_id(=p::new)"
        )


JUNIT = """<testsuites><testsuite name="p::a">
<testcase name="good"><system-out>running 1 test\ntest good ... ok</system-out></testcase>
<testcase name="away"><system-out>x\nskipped: tools: tshark is not installed\n</system-out></testcase>
<testcase name="part"><system-err>left out: stores: no etcd\n</system-err></testcase>
<testcase name="serial"><system-out>test serial ... SKIPPED: what: why\nok</system-out></testcase>
<testcase name="bad"><failure type="test failure" message="m"/><system-out>skipped: a: b</system-out></testcase>
<testcase name="slow"><failure type="test timeout"/></testcase>
</testsuite></testsuites>"""

LIBTEST = """
running 4 tests
test g::child ... ignored, is started by the tests below
said by a child: test bad ... FAILED
test good ... ok
test away ... ok

successes:

---- away stdout ----
skipped: tools: tshark is not installed


successes:
    away
    good

failures:

---- bad stdout ----
thread 'bad' panicked
skipped: no
failures:
    not a name

failures:
    bad

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s
"""


class Reading(unittest.TestCase):
    def test_what_nextest_writes(self):
        found = {outcome.test: outcome for outcome in outcomes.from_junit(JUNIT)}
        self.assertEqual(
            {name: outcome.result for name, outcome in found.items()},
            {"good": PASSED, "away": SKIPPED, "part": PASSED, "serial": SKIPPED, "bad": FAILED, "slow": FAILED},
        )
        self.assertEqual(found["away"].why, "tools: tshark is not installed")
        self.assertEqual(found["part"].left_out, ["stores: no etcd"])
        self.assertEqual(found["slow"].why, "test timeout")

    def test_what_a_test_program_prints(self):
        found = outcomes.from_libtest("p", LIBTEST, "")
        self.assertEqual(results(found), [("away", SKIPPED), ("bad", FAILED), ("good", PASSED)])

    def test_of_a_program_that_was_ended_counts_what_it_had_said(self):
        cut = LIBTEST.split("\nsuccesses:")[0]
        found = outcomes.from_libtest("p", cut, "was ended by signal 6")
        self.assertEqual(results(found), [("away", PASSED), ("bad", FAILED), ("good", PASSED)])

    def test_documentation_that_fails_to_compile_has_failed(self):
        said = "test src/a.rs - A (line 1) ... ok\ntest src/a.rs - B (line 9) - compile ... FAILED\n"
        self.assertEqual(results(runners.one_doctest("src/a.rs - A (line 1)", said))[0][1], PASSED)
        self.assertEqual(results(runners.one_doctest("src/a.rs - B (line 9)", said))[0][1], FAILED)
        self.assertEqual(runners.one_doctest("src/a.rs - C (line 9)", said), [])


class Bounded(unittest.TestCase):
    """Programs that play a test program."""

    def run_script(self, script: str, limit: int) -> list[Outcome]:
        with tempfile.TemporaryDirectory() as place:
            path = f"{place}/program"
            with open(path, "w") as file:
                file.write("#!/bin/sh\n" + script)
            os.chmod(path, stat.S_IRWXU)
            tests = [Test("a"), Test("b")]
            runners.LIMITS["a test's"] = limit
            program = Program("p", path, place, "", tests)
            return runners.by_itself(program, tests, "a test's", None, place)

    def test_a_program_that_hangs_is_ended_and_its_tests_are_named(self):
        found = self.run_script("sleep 1000 & sleep 1000", 1)
        self.assertEqual(results(found), [("a", FAILED), ("b", FAILED)])
        self.assertIn("ended after 1 s", found[1].why)

    def test_a_program_that_dies_fails_the_tests_without_a_result(self):
        found = self.run_script("echo 'test a ... ok'; kill -ABRT $$", 60)
        self.assertEqual(results(found), [("a", PASSED), ("b", FAILED)])
        found = self.run_script("echo 'test a ... ok'; exit 3", 60)
        self.assertEqual(results(found), [("a", PASSED), ("b", FAILED)])


class Judging(unittest.TestCase):
    def test_each_test_has_one_outcome_and_children_have_none(self):
        listed = tree(("p", [Test("ran"), Test("lost"), Test("gpu", "needs a GPU"), Test("child", "is started by the tests below")]))
        exist = summary.expected(listed, [(listed.programs[0], listed.programs[0].tests)])
        judged = summary.judge(exist, [Outcome("p", "ran", PASSED), Outcome("p", "unknown", PASSED)])
        self.assertEqual(results(judged), [("gpu", SKIPPED), ("lost", FAILED), ("ran", PASSED), ("unknown", FAILED)])
        self.assertEqual(summary.totals(judged), "1 passed, 2 failed, 1 skipped")

    def test_a_part_that_did_not_run_is_missed(self):
        with tempfile.TemporaryDirectory() as logs:
            tree(("p::a", [Test("one")]), ("p::b", [Test("two")])).save(f"{logs}/tests.programs.json")
            tree(("p::a", [Test("three")]), label="tsan").save(f"{logs}/tsan.programs.json")
            outcomes.save([Outcome("p::a", "one", PASSED)], f"{logs}/a.outcomes.json")
            found = summary.collect(logs)
            self.assertEqual(summary.not_run(logs, found), [("p::b", "two")])
            self.assertEqual(summary.twice(found + found), [("p::a", "one")])

    def test_lists_are_compared_by_name(self):
        with tempfile.TemporaryDirectory() as place:
            for name, text in (("a", "p x passed\np y y passed\n"), ("b", "p x skipped\np z passed\n"), ("c", "p x exists\np y y exists\n")):
                with open(f"{place}/{name}", "w") as file:
                    file.write(text)
            told, same = summary.compare(f"{place}/a", f"{place}/b")
            self.assertFalse(same)
            for text in (f"only in {place}/a: p y y", f"only in {place}/b: p z", "p x: passed in one, skipped in the other"):
                self.assertIn(text, told)
            self.assertTrue(summary.compare(f"{place}/a", f"{place}/c")[1])
            with open(f"{place}/a", "a") as file:
                file.write("p[tsan] w passed\n")
            told, same = summary.compare(f"{place}/a", f"{place}/c")
            self.assertTrue(same)
            self.assertIn("not compared, of a build with other features: p[tsan] w", told)
            self.assertFalse(summary.compare(f"{place}/a", f"{place}/b")[1])


if __name__ == "__main__":
    unittest.main()
