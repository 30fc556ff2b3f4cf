//! The outcomes of tests, read from what a runner wrote: nextest's junit.xml, or the output of a test program.

use std::collections::HashMap;
use std::fmt;

use crate::failure::{Failure, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verdict {
    Passed,
    Failed,
    Skipped,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) program: String,
    pub(crate) test: String,
    pub(crate) verdict: Verdict,
    /// Why the test failed or was skipped.
    pub(crate) why: String,
    /// The parts that a test which passed has left out.
    pub(crate) left_out: Vec<String>,
}

impl Outcome {
    pub(crate) fn new(program: &str, test: &str, verdict: Verdict, why: &str) -> Self {
        Self {
            program: program.to_owned(),
            test: test.to_owned(),
            verdict,
            why: why.to_owned(),
            left_out: Vec::new(),
        }
    }

    pub(crate) fn failed(program: &str, test: &str, why: &str) -> Self {
        Self::new(program, test, Verdict::Failed, why)
    }

    /// Returns the outcome of a test that did not fail. A test that cannot run here prints `skipped: what: why`, and a test that runs
    /// without a part of it prints `left out: what: why`.
    pub(crate) fn not_failed(program: &str, test: &str, printed: &str) -> Self {
        let skipped = told(printed, "skipped: ", true);
        if !skipped.is_empty() {
            return Self::new(program, test, Verdict::Skipped, &skipped.join("; "));
        }
        Self {
            left_out: told(printed, "left out: ", false),
            ..Self::new(program, test, Verdict::Passed, "")
        }
    }
}

/// Returns the rests of the lines that begin with `title`, each once. A test program with one thread prints `test NAME ... ` before such a
/// text.
fn told(printed: &str, title: &str, any_case: bool) -> Vec<String> {
    let begins = |line: &str| {
        let head = line
            .get(..title.len())
            .filter(|_| line.len() > title.len())?;
        let same = head == title || any_case && head.eq_ignore_ascii_case(title);
        same.then(|| line[title.len()..].to_owned())
    };
    let mut found = Vec::new();
    for line in printed.lines() {
        let after_names = line
            .match_indices("... ")
            .map(|(at, dots)| &line[at + dots.len()..]);
        if let Some(said) = [line].into_iter().chain(after_names).find_map(begins)
            && !found.contains(&said)
        {
            found.push(said);
        }
    }
    found
}

/// Returns the outcomes in nextest's report.
pub(crate) fn from_junit(text: &str) -> Result<Vec<Outcome>> {
    let unreadable = |error| Failure::new(1, format!("nextest's report is unreadable: {error}"));
    let report = roxmltree::Document::parse(text).map_err(unreadable)?;
    let cases = report
        .descendants()
        .filter(|node| node.has_tag_name("testcase"));
    Ok(cases.map(of_case).collect())
}

fn of_case(case: roxmltree::Node<'_, '_>) -> Outcome {
    let mut suites = case
        .ancestors()
        .filter(|node| node.has_tag_name("testsuite"));
    let program = suites.next().and_then(|suite| suite.attribute("name"));
    let (program, test) = (program.unwrap_or(""), case.attribute("name").unwrap_or(""));
    let child = |name| case.children().find(|node| node.has_tag_name(name));
    if let Some(wrong) = child("failure").or_else(|| child("error")) {
        let why = wrong
            .attribute("type")
            .or_else(|| wrong.attribute("message"));
        return Outcome::failed(program, test, why.unwrap_or(""));
    }
    let printed = ["system-out", "system-err"].map(|stream| {
        let text = child(stream).and_then(|node| node.text());
        text.unwrap_or("")
    });
    Outcome::not_failed(program, test, &printed.join("\n"))
}

/// Returns the outcomes in the output of a test program with --show-output. `ended_well`: the program ended by itself, with a status that
/// tests have. Otherwise each test without a result has failed. The caller finds these tests, because it has the list.
pub(crate) fn from_libtest(program: &str, output: &str, ended_well: bool) -> Vec<Outcome> {
    let printed = sections(output);
    let lists = (
        last_list(output, "successes"),
        last_list(output, "failures"),
    );
    let (passed, failed) = match lists {
        (Some(passed), Some(failed)) if ended_well => (passed, failed),
        _ => said_in_between(output), // no lists at the end
    };
    let passed = passed.into_iter().map(|name| {
        let printed = printed.get(name).copied().unwrap_or("");
        Outcome::not_failed(program, name, printed)
    });
    let failed = failed
        .into_iter()
        .map(|name| Outcome::failed(program, name, "failed"));
    passed.chain(failed).collect()
}

/// Returns the tests of the lines `test NAME ... ok`, and of the lines with `FAILED`. These words may stand anywhere in a line, because
/// other processes may have written before them.
fn said_in_between(output: &str) -> (Vec<&str>, Vec<&str>) {
    let of_result = |result: &str| {
        let named = output.lines().filter_map(|line| {
            let said = line.strip_suffix(result)?.strip_suffix(" ... ")?;
            let said = said.strip_suffix(" - should panic").unwrap_or(said);
            let (before, name) = said.rsplit_once(' ')?;
            before.ends_with("test").then_some(name)
        });
        named.collect()
    };
    (of_result("ok"), of_result("FAILED"))
}

/// Returns what each test has printed, by its name.
fn sections(output: &str) -> HashMap<&str, &str> {
    let mut found = HashMap::new();
    let mut rest = output;
    let mut open: Option<(&str, &str)> = None;
    while let Some(line) = rest.lines().next() {
        let name = line
            .strip_prefix("---- ")
            .and_then(|l| l.strip_suffix(" stdout ----"));
        let after = rest[line.len()..]
            .strip_prefix('\r')
            .unwrap_or(&rest[line.len()..]);
        let after = after.strip_prefix('\n').unwrap_or(after);
        if let Some(name) = name {
            close(&mut found, open, rest);
            open = Some((name, after));
        }
        rest = after;
    }
    close(&mut found, open, rest);
    found
}

/// Ends the open section at the begin of `rest`.
fn close<'a>(found: &mut HashMap<&'a str, &'a str>, open: Option<(&'a str, &'a str)>, rest: &str) {
    if let Some((name, text)) = open {
        found.insert(name, &text[..text.len() - rest.len()]);
    }
}

/// Returns the names below the last line `title:`, or no names if that line is missing. Returns None if the program has not ended well.
fn last_list<'a>(output: &'a str, title: &str) -> Option<Vec<&'a str>> {
    output.contains("\ntest result: ").then_some(())?;
    let Some((_, below)) = output.rsplit_once(&format!("\n{title}:\n")) else {
        return Some(Vec::new());
    };
    let names = below.lines().map_while(|line| line.strip_prefix("    "));
    Some(names.map(str::trim).collect())
}

/// Returns the outcome of an example in documentation, or None if the output has no line of it. If it has several lines, as examples have
/// that are compiled and run, the worst counts.
pub(crate) fn of_doctest(name: &str, output: &str) -> Option<Outcome> {
    let start = format!("test {name}");
    let of_it = output.lines().filter(|line| line.starts_with(&start));
    let said: Vec<&str> = of_it
        .map(|line| line.rsplit_once(" ... ").map_or(line, |(_, result)| result))
        .collect();
    let is_bad = |result: &&&str| !result.starts_with("ok") && !result.starts_with("ignored");
    if said.is_empty() {
        return None;
    }
    if let Some(bad) = said.iter().find(is_bad) {
        return Some(Outcome::failed("doc", name, bad));
    }
    if said.iter().all(|result| result.starts_with("ignored")) {
        let why = "an example that is not run";
        return Some(Outcome::new("doc", name, Verdict::Skipped, why));
    }
    Some(Outcome::new("doc", name, Verdict::Passed, ""))
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Failed, Passed, Skipped};
    use super::*;
    use crate::test_trees::results;

    const JUNIT: &str = r#"<testsuites><testsuite name="p::a">
<testcase name="good"><system-out>running 1 test
test good ... ok</system-out></testcase>
<testcase name="away"><system-out>x
skipped: tools: tshark is not installed
</system-out></testcase>
<testcase name="part"><system-err>left out: stores: no etcd
</system-err></testcase>
<testcase name="serial"><system-out>test serial ... SKIPPED: what: why
ok</system-out></testcase>
<testcase name="bad"><failure type="test failure" message="m"/><system-out>skipped: a: b</system-out></testcase>
<testcase name="slow"><failure type="test timeout"/></testcase>
</testsuite></testsuites>"#;

    const LIBTEST: &str = "
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
";

    #[test]
    fn what_nextest_writes() {
        let found = from_junit(JUNIT).unwrap();
        let (skipped, failed) = (Skipped, Failed);
        assert_eq!(
            results(&found),
            [
                ("away", skipped),
                ("bad", failed),
                ("good", Passed),
                ("part", Passed),
                ("serial", skipped),
                ("slow", failed)
            ]
        );
        let of = |name: &str| found.iter().find(|outcome| outcome.test == name).unwrap();
        assert_eq!(of("away").why, "tools: tshark is not installed");
        assert_eq!(of("serial").why, "what: why");
        assert_eq!(of("part").left_out, ["stores: no etcd"]);
        assert_eq!(of("slow").why, "test timeout");
        assert!(found.iter().all(|outcome| outcome.program == "p::a"));
        assert!(from_junit("<testsuites>").is_err());
    }

    #[test]
    fn what_a_test_program_prints() {
        let found = from_libtest("p", LIBTEST, true);
        assert_eq!(
            results(&found),
            [("away", Skipped), ("bad", Failed), ("good", Passed)]
        );
    }

    #[test]
    fn of_a_program_that_was_ended_counts_what_it_had_said() {
        let cut = LIBTEST.split("\nsuccesses:").next().unwrap();
        let found = from_libtest("p", cut, false);
        assert_eq!(
            results(&found),
            [("away", Passed), ("bad", Failed), ("good", Passed)]
        );
    }

    #[test]
    fn a_test_that_should_panic_is_named_without_saying_so() {
        let (passed, failed) =
            said_in_between("test a::b - should panic ... ok\ntest x ... ignored\n");
        assert_eq!((passed, failed), (vec!["a::b"], vec![]));
    }

    #[test]
    fn a_reason_is_written_once_and_begins_its_line() {
        let printed = "skipped: a: b\nit was skipped: no\nskipped: a: b\nSkipped: c: d\n";
        let outcome = Outcome::not_failed("p", "t", printed);
        assert_eq!(outcome.why, "a: b; c: d");
        let outcome = Outcome::not_failed("p", "t", "Left out: no\nleft out: e: f\n");
        assert_eq!(
            (outcome.verdict, outcome.left_out),
            (Passed, vec!["e: f".to_owned()])
        );
    }

    #[test]
    fn documentation_that_fails_to_compile_has_failed() {
        let said =
            "test src/a.rs - A (line 1) ... ok\ntest src/a.rs - B (line 9) - compile ... FAILED\n";
        assert_eq!(
            of_doctest("src/a.rs - A (line 1)", said).unwrap().verdict,
            Passed
        );
        assert_eq!(
            of_doctest("src/a.rs - B (line 9)", said).unwrap().verdict,
            Failed
        );
        assert!(of_doctest("src/a.rs - C (line 9)", said).is_none());
    }
}
