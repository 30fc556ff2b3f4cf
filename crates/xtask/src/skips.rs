//! The tests that may be skipped, by name. Each distribution has a list (`crates/xtask/skips`). Without it, tests would silently not run
//! when a mirror lacks a package.
//!
//! A line of a list is `skipped PROGRAM TEST`, or `part PROGRAM TEST` for a test that may run without a part of it. Examples of one item in
//! documentation have the same name, so a line for them stands once for each example that is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{At, Failure, Result};
use crate::outcomes::{Outcome, Verdict};

const LISTS: &str = "crates/xtask/skips";
const OS_RELEASE: &str = "/etc/os-release";

/// How many of the tests a run has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The run has all tests, so every test of the list has an outcome.
    All,
    Some,
}

/// Compares outcomes with the list of this machine's distribution, and prints what differs. Fails if a test was skipped, or a part left
/// out, that the list does not name. After a run of all tests it also fails if the list names a test that does not exist. If the machine's
/// distribution has no list, it prints that.
pub(crate) fn compare(outcomes: &[Outcome], extent: Extent) -> Result {
    let system = fs::read_to_string(OS_RELEASE).unwrap_or_default();
    let path = list_of(&system);
    let Some(path) = path.filter(|path| path.is_file()) else {
        println!("not compared: {LISTS} has no list for the system that {OS_RELEASE} names");
        return Ok(());
    };
    let text = fs::read_to_string(&path).at(&path)?;
    let expected = Expected::read(&text)
        .map_err(|line| Failure::new(1, format!("{}: no test: {line}", path.display())))?;
    let found = expected.beside(outcomes, extent);
    for test in &found.ran {
        println!("expected to be skipped, and ran: {test}");
    }
    let faults = [
        ("skipped, and not expected to be", &found.more),
        ("expected to be skipped, and no test", &found.gone),
    ];
    let faults = faults.into_iter().flat_map(|(what, tests)| {
        let line = move |test: &String| format!("{what}: {test}");
        tests.iter().map(line)
    });
    let faults: Vec<_> = faults.collect();
    if faults.is_empty() {
        println!("as {} has them", path.display());
        return Ok(());
    }
    let last = format!(
        "{} has the expected ones: mend what is missing here, or change that list",
        path.display()
    );
    Err(Failure::new(1, format!("{}\n{last}", faults.join("\n"))))
}

/// Returns the path of the list for a system, by the system's name and version.
fn list_of(os_release: &str) -> Option<PathBuf> {
    let value = |name: &str| {
        let mut values = os_release
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let value = values.next()?.trim_matches('"');
        // The value becomes part of a path.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._".contains(&byte);
        value.bytes().all(is_plain).then_some(value)
    };
    let (name, version) = (value("ID")?, value("VERSION_ID")?);
    Some(Path::new(LISTS).join(format!("{name}-{version}.txt")))
}

/// How often each name occurs.
type Counts = BTreeMap<String, usize>;

#[derive(Debug, Default, PartialEq, Eq)]
struct Expected {
    skipped: Counts,
    parts: Counts,
}

/// Differences between outcomes and a list. Tests are `PROGRAM TEST`, and a part that was left out begins with `part of `.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Tests that were skipped and are not in the list.
    more: Vec<String>,
    /// Tests that are in the list and ran. Other machines lack what this one has.
    ran: Vec<String>,
    /// Names in the list that no test has.
    gone: Vec<String>,
}

impl Expected {
    /// Reads a list. The error is a line that has no valid form.
    fn read(text: &str) -> std::result::Result<Self, String> {
        let mut expected = Self::default();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (kind, test) = line.split_once(' ').ok_or(line)?;
            let list = match kind {
                "skipped" if test.contains(' ') => &mut expected.skipped,
                "part" if test.contains(' ') => &mut expected.parts,
                _ => return Err(line.to_owned()),
            };
            *list.entry(test.to_owned()).or_default() += 1;
        }
        Ok(expected)
    }

    fn beside(&self, outcomes: &[Outcome], extent: Extent) -> Found {
        let mut found = Found::default();
        let mut exist = BTreeSet::new();
        let mut left = self.skipped.clone();
        let mut passed = Vec::new();
        for outcome in outcomes {
            let test = name_of(outcome);
            exist.insert(test.clone());
            let of_skips = left.get_mut(&test);
            match (outcome.verdict, outcome.left_out.is_empty()) {
                (Verdict::Failed, _) => {}
                (Verdict::Skipped, _) => match of_skips.filter(|left| **left > 0) {
                    Some(left) => *left -= 1,
                    None => found.more.push(format!("{test}: {}", outcome.why)),
                },
                (Verdict::Passed, true) => passed.push(test),
                // A test that may be skipped may also run in part.
                (Verdict::Passed, false) if of_skips.is_some() => {}
                (Verdict::Passed, false) => {
                    if !self.parts.contains_key(&test) {
                        let why = outcome.left_out.join("; ");
                        found.more.push(format!("part of {test}: {why}"));
                    }
                }
            }
        }
        passed.retain(|test| self.skipped.get(test).is_some_and(|all| left[test] == *all));
        found.ran = passed;
        if extent == Extent::All {
            let named = self.skipped.keys().chain(self.parts.keys());
            let gone = named.filter(|&test| !exist.contains(test));
            found.gone = gone.cloned().collect();
        }
        found
    }
}

/// Returns the name of a test in a list. It has no label of a build with other features or for a release, and no line number of an example
/// in documentation, which any change of the file moves.
fn name_of(outcome: &Outcome) -> String {
    let program = outcome.program.split('[').next().unwrap_or_default();
    let name = format!("{program} {}", outcome.test);
    match name.rsplit_once(" (line ") {
        Some((name, _)) if outcome.program == "doc" => name.to_owned(),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# A reason.\nskipped p away\nskipped doc src/a.rs - A\n\npart p stores\n";

    fn skipped(program: &str, test: &str) -> Outcome {
        Outcome::new(program, test, Verdict::Skipped, "why")
    }

    fn passed(test: &str, printed: &str) -> Outcome {
        Outcome::not_failed("p", test, printed)
    }

    fn beside(outcomes: &[Outcome]) -> Found {
        Expected::read(LIST).unwrap().beside(outcomes, Extent::All)
    }

    #[test]
    fn what_the_list_names_may_be_skipped() {
        let outcomes = [
            skipped("p[release]", "away"),
            skipped("doc", "src/a.rs - A (line 83)"),
            passed("stores", "left out: stores: no etcd"),
            passed("good", ""),
            Outcome::failed("p", "bad", "why"),
        ];
        assert_eq!(beside(&outcomes), Found::default());
    }

    #[test]
    fn one_more_skip_and_one_more_part_are_found_with_the_reason() {
        let outcomes = [
            skipped("p", "away"),
            skipped("q", "away"),
            skipped("p", "stores"),
            passed("good", "left out: x: y"),
            skipped("doc", "src/a.rs - A (line 1)"),
            skipped("doc", "src/a.rs - A (line 9)"),
        ];
        let found = beside(&outcomes);
        assert_eq!(
            found.more,
            [
                "q away: why",
                "p stores: why",
                "part of p good: x: y",
                "doc src/a.rs - A: why"
            ]
        );
        assert_eq!((found.ran, found.gone), (vec![], vec![]));
    }

    #[test]
    fn an_expected_skip_that_ran_is_said_and_one_of_no_test_found() {
        let found = beside(&[passed("away", ""), passed("stores", "")]);
        assert_eq!(found.ran, ["p away"]);
        assert_eq!(found.gone, ["doc src/a.rs - A"]);
        let expected = Expected::read(LIST).unwrap();
        assert_eq!(expected.beside(&[], Extent::Some), Found::default());
    }

    #[test]
    fn a_line_that_is_none_of_a_list_is_refused() {
        for wrong in ["away", "skipped", "skipped p", "skip p away"] {
            assert!(Expected::read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_distribution_has_the_list_of_its_name_and_version() {
        let list = |text: &str| list_of(text).map(|path| path.display().to_string());
        let debian = "NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(
            list(debian).as_deref(),
            Some("crates/xtask/skips/debian-12.txt")
        );
        let ubuntu = "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n";
        assert_eq!(
            list(ubuntu).as_deref(),
            Some("crates/xtask/skips/ubuntu-24.04.txt")
        );
        assert_eq!(list("ID=arch\n"), None);
        assert_eq!(list("ID=../x\nVERSION_ID=1\n"), None);
    }

    #[test]
    fn the_lists_of_the_tree_can_be_read_and_name_tests() {
        let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("skips");
        for name in ["debian-12.txt", "ubuntu-24.04.txt"] {
            let text = fs::read_to_string(lists.join(name)).unwrap();
            let expected = Expected::read(&text).unwrap();
            assert!(!expected.skipped.is_empty(), "{name}");
        }
    }
}
