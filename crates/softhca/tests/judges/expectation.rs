//! A checked-in list of the outcome of each test of a foreign suite, and the comparison of a run with it.
//!
//! One line per test: `ok NAME`, or `skip NAME : REASON`, the reason being what the device lacks in the words of the test. A test
//! that was ok and is not any more fails; so does one that failed, and one that did not run at all. A test that skipped and is ok
//! now is reported, and enters the list when the file is rewritten with `UPDATE=1`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    /// With the reason that it gives.
    Skip(String),
    /// With its traceback.
    Fail(String),
}

/// Test to outcome; the part of a name before the first `.` is its module.
pub(crate) type Outcomes = BTreeMap<String, Outcome>;

/// The lines of a table of counts per module, the sum last.
pub(crate) fn table(outcomes: &Outcomes) -> String {
    let mut modules: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut sum = [0; 3];
    for (name, outcome) in outcomes {
        let module = name.split('.').next().unwrap();
        let column = match outcome {
            Outcome::Ok => 0,
            Outcome::Skip(_) => 1,
            Outcome::Fail(_) => 2,
        };
        modules.entry(module).or_default()[column] += 1;
        sum[column] += 1;
    }
    let mut table = format!("{:24} {:>4} {:>4} {:>4}\n", "module", "ok", "skip", "fail");
    for (module, [ok, skip, fail]) in modules.into_iter().chain([("sum", sum)]) {
        writeln!(table, "{module:24} {ok:4} {skip:4} {fail:4}").unwrap();
    }
    table
}

pub(crate) fn count_ok(outcomes: &Outcomes) -> usize {
    let is_ok = |outcome: &&Outcome| **outcome == Outcome::Ok;
    outcomes.values().filter(is_ok).count()
}

/// Reads the list; lines with `#` are comments.
pub(crate) fn read(path: &Path) -> Outcomes {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (outcome, rest) = line
                .split_once(' ')
                .unwrap_or_else(|| panic!("{}: {line}", path.display()));
            match (outcome, rest.split_once(" : ")) {
                ("ok", None) => (rest.trim().into(), Outcome::Ok),
                ("skip", Some((name, reason))) => {
                    (name.trim().into(), Outcome::Skip(reason.into()))
                }
                _ => panic!(
                    "{}: neither `ok NAME` nor `skip NAME : REASON`: {line}",
                    path.display()
                ),
            }
        })
        .collect()
}

/// Rewrites the list, with `head` (comment lines) above it. Failures are never expected, so they cannot be written.
pub(crate) fn write(path: &Path, head: &str, outcomes: &Outcomes) {
    let mut text = head.to_owned();
    for (name, outcome) in outcomes {
        match outcome {
            Outcome::Ok => writeln!(text, "ok   {name}").unwrap(),
            Outcome::Skip(reason) => {
                let line = reason.lines().next().unwrap_or("no reason given");
                writeln!(text, "skip {name} : {line}").unwrap();
            }
            Outcome::Fail(_) => {}
        }
    }
    fs::write(path, text).unwrap();
}

/// Returns what is worse than expected, one line each (failed tests with their tracebacks), and what is better.
pub(crate) fn compare(expected: &Outcomes, seen: &Outcomes) -> (Vec<String>, Vec<String>) {
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for (name, outcome) in seen {
        match (expected.get(name), outcome) {
            (_, Outcome::Fail(why)) => worse.push(format!("{name} failed:\n{why}")),
            (Some(Outcome::Ok), Outcome::Skip(why)) => {
                worse.push(format!("{name} was ok, and is skipped now: {why}"));
            }
            (None, Outcome::Skip(why)) => worse.push(format!("{name} is new, and skipped: {why}")),
            (Some(Outcome::Skip(_)) | None, Outcome::Ok) => {
                better.push(format!("{name} is ok now"));
            }
            _ => {}
        }
    }
    for (name, outcome) in expected {
        if !seen.contains_key(name) {
            worse.push(format!("{name} did not run; it was {outcome:?}"));
        }
    }
    (worse, better)
}

#[test]
fn what_was_ok_and_is_skipped_failed_or_missing_is_worse() {
    let outcomes = |list: &[(&str, Outcome)]| -> Outcomes {
        let own = |(name, outcome): &(&str, Outcome)| ((*name).to_owned(), outcome.clone());
        list.iter().map(own).collect()
    };
    let skip = || Outcome::Skip("no caps".into());
    let expected = outcomes(&[
        ("a.same", Outcome::Ok),
        ("a.skips", Outcome::Ok),
        ("a.gone", Outcome::Ok),
        ("b.same", skip()),
        ("b.works", skip()),
        ("b.gone", skip()),
    ]);
    let seen = outcomes(&[
        ("a.same", Outcome::Ok),
        ("a.skips", skip()),
        ("b.same", skip()),
        ("b.works", Outcome::Ok),
        ("c.fails", Outcome::Fail("trace".into())),
        ("c.skips", skip()),
        ("c.works", Outcome::Ok),
    ]);
    let (worse, better) = compare(&expected, &seen);
    let names = |lines: &[String]| -> Vec<String> {
        let first = |line: &String| line.split(' ').next().unwrap().to_owned();
        lines.iter().map(first).collect()
    };
    assert_eq!(
        names(&worse),
        ["a.skips", "c.fails", "c.skips", "a.gone", "b.gone"]
    );
    assert_eq!(names(&better), ["b.works", "c.works"]);
    assert_eq!(count_ok(&seen), 3);
    assert!(
        table(&seen).ends_with("sum                         3    3    1\n"),
        "{}",
        table(&seen)
    );
}
