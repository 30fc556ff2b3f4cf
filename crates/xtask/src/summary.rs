//! Adds up the outcomes of a run, and compares the tests that ran with the tests that exist.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

use crate::failure::{At, Failure, Result};
use crate::outcomes::{Outcome, Verdict};
use crate::programs::{Chosen, Test, Tree};

/// A test, as its program and name.
pub(crate) type Key = (String, String);

/// Returns the name of a program with the label of its build. Programs of a build with other features count as different programs:
/// `simt-tests::order[tsan]`.
pub(crate) fn labelled(label: &str, program: &str) -> String {
    if label.is_empty() {
        return program.to_owned();
    }
    format!("{program}[{label}]")
}

fn key_of(outcome: &Outcome) -> Key {
    (outcome.program.clone(), outcome.test.clone())
}

/// Returns the tests of `selection`, without those that only another test starts.
pub(crate) fn expected(tree: &Tree, selection: &[Chosen<'_>]) -> Vec<(Key, Test)> {
    let of_program = |one: &Chosen<'_>| {
        let program = labelled(&tree.build.label, &one.program.id);
        let tests = one.tests.iter().filter(|test| !test.is_child());
        let keyed = tests.map(|test| ((program.clone(), test.name.clone()), test.clone()));
        keyed.collect::<Vec<_>>()
    };
    selection.iter().flat_map(of_program).collect()
}

/// Returns one outcome for each test that exists: the reported one, or the failure that none was reported. A test that ran and does not
/// exist has failed.
pub(crate) fn judge(exist: &[(Key, Test)], told: Vec<Outcome>) -> Vec<Outcome> {
    let known: HashSet<_> = exist.iter().map(|(key, _)| key).collect();
    let mut by_name: HashMap<Key, Outcome> = HashMap::new();
    let mut judged = Vec::new();
    for outcome in told {
        let key = key_of(&outcome);
        if known.contains(&key) {
            by_name.insert(key, outcome);
        } else {
            let why = "ran, and is not in the list of tests";
            judged.push(Outcome::failed(&outcome.program, &outcome.test, why));
        }
    }
    for (key, test) in exist {
        let (program, name) = key;
        judged.push(match (&test.ignored, by_name.remove(key)) {
            (Some(reason), _) => Outcome::new(program, name, Verdict::Skipped, reason),
            (None, Some(outcome)) => outcome,
            (None, None) => Outcome::failed(program, name, "did not run"),
        });
    }
    judged
}

/// Returns the tests of the built programs that no part of the run has named. Builds with other features do not count, because they run
/// only some of their tests.
pub(crate) fn not_run<'a>(
    trees: impl Iterator<Item = &'a Tree>,
    outcomes: &[Outcome],
) -> BTreeSet<Key> {
    let ran: HashSet<Key> = outcomes.iter().map(key_of).collect();
    let exist = trees
        .filter(|tree| tree.build.label.is_empty())
        .flat_map(|tree| expected(tree, &tree.all()));
    exist
        .map(|(key, _)| key)
        .filter(|key| !ran.contains(key))
        .collect()
}

/// Returns the tests with more than one outcome.
pub(crate) fn twice(outcomes: &[Outcome]) -> BTreeSet<Key> {
    let mut seen = HashSet::new();
    let again = outcomes
        .iter()
        .map(key_of)
        .filter(|key| !seen.insert(key.clone()));
    again.collect()
}

pub(crate) fn totals(outcomes: &[Outcome]) -> String {
    let count = |verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    format!(
        "{} passed, {} failed, {} skipped",
        count(Verdict::Passed),
        count(Verdict::Failed),
        count(Verdict::Skipped)
    )
}

/// Returns the names of tests that were skipped, that passed without a part, and that failed.
pub(crate) fn told(outcomes: &[Outcome]) -> String {
    let of = |verdict: Verdict| {
        let chosen = outcomes.iter().filter(move |o| o.verdict == verdict);
        chosen.map(|o| (o, o.why.clone())).collect::<Vec<_>>()
    };
    let without = outcomes.iter().filter(|o| !o.left_out.is_empty());
    let without = without.map(|o| (o, o.left_out.join("; "))).collect();
    let mut found = Vec::new();
    for (title, chosen) in [
        ("skipped tests, with reason:", of(Verdict::Skipped)),
        ("left out of tests that passed:", without),
        ("failed tests:", of(Verdict::Failed)),
    ] {
        if chosen.is_empty() {
            continue;
        }
        found.push(title.to_owned());
        let lines = chosen
            .iter()
            .map(|(o, why)| format!("  {} {}: {why}", o.program, o.test));
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        found.extend(lines);
    }
    found.join("\n")
}

/// Returns how often each test has failed, with the reasons. The test that failed most often is first.
pub(crate) fn failures(outcomes: &[Outcome]) -> String {
    let mut found: BTreeMap<Key, (usize, BTreeSet<&str>)> = BTreeMap::new();
    for outcome in outcomes.iter().filter(|o| o.verdict == Verdict::Failed) {
        let (count, reasons) = found.entry(key_of(outcome)).or_default();
        *count += 1;
        reasons.insert(&outcome.why);
    }
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    let lines = found
        .into_iter()
        .map(|((program, test), (count, reasons))| {
            let reasons = Vec::from_iter(reasons).join("; ");
            format!("failed {count} times: {program} {test}: {reasons}")
        });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the list of a run, with lines `program test passed`, sorted.
pub(crate) fn list(outcomes: &[Outcome]) -> String {
    sorted(
        outcomes
            .iter()
            .map(|o| format!("{} {} {}\n", o.program, o.test, o.verdict)),
    )
}

/// Returns the list of the tests that exist, those in documentation included, with lines `program test exists`, sorted. The list has no
/// Python tests if `in_python` is None.
pub(crate) fn list_of_names(
    tree: &Tree,
    in_documentation: &[String],
    in_python: Option<Vec<Key>>,
) -> String {
    let every = expected(tree, &tree.all()).into_iter();
    let of_programs = every.map(|((program, test), _)| format!("{program} {test} exists\n"));
    let of_documentation = in_documentation
        .iter()
        .map(|name| format!("doc {name} exists\n"));
    let of_python = in_python.into_iter().flatten();
    let of_python = of_python.map(|(program, test)| format!("{program} {test} exists\n"));
    sorted(of_programs.chain(of_documentation).chain(of_python))
}

fn sorted(lines: impl Iterator<Item = String>) -> String {
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    lines.concat()
}

// ---- two lists ----

/// Reads a list. Returns the result of each test.
fn read_list(path: &Path) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(path).at(path)?;
    let read = |line: &str| {
        let (test, result) = line.rsplit_once(' ').ok_or_else(|| {
            Failure::new(1, format!("{}: no list of tests: {line}", path.display()))
        })?;
        Ok((test.to_owned(), result.to_owned()))
    };
    text.lines().map(read).collect()
}

/// The begin of the program of a Python test, which has the name of its file.
const OF_PYTHON: &str = "python::tests/";

/// Returns what differs between two lists, and whether they name the same tests. A list with the results `exists` has only names, and knows
/// nothing of builds with other features. It knows nothing of Python tests either, if it names none.
pub(crate) fn compare(one: &Path, other: &Path) -> Result<(String, bool)> {
    let (mut first, mut second) = (read_list(one)?, read_list(other)?);
    let (one, other) = (one.display(), other.display());
    let mut found = vec![
        format!("{} tests in {one}", first.len()),
        format!("{} tests in {other}", second.len()),
    ];
    if first
        .values()
        .chain(second.values())
        .any(|result| result == "exists")
    {
        let of_python = |tests: &BTreeMap<String, String>| {
            let mut names = tests.keys();
            names.any(|name| name.starts_with(OF_PYTHON))
        };
        let without_python = !(of_python(&first) && of_python(&second));
        for tests in [&mut first, &mut second] {
            tests.retain(|name, _| {
                let why = unknown_to_names(name, without_python);
                if let Some(why) = why {
                    found.push(format!("  not compared, {why}: {name}"));
                }
                why.is_none()
            });
        }
    }
    let only = |here: &BTreeMap<String, String>, there: &BTreeMap<String, String>, path: String| {
        let missing = here.keys().filter(|name| !there.contains_key(*name));
        let lines = missing.map(|name| format!("  only in {path}: {name}"));
        lines.collect::<Vec<_>>()
    };
    found.extend(only(&first, &second, one.to_string()));
    found.extend(only(&second, &first, other.to_string()));
    for (name, result) in &first {
        if let Some(there) = second.get(name)
            && there != result
            && ![there, result].contains(&&"exists".to_owned())
        {
            found.push(format!("  {name}: {result} in one, {there} in the other"));
        }
    }
    let same = first.keys().eq(second.keys());
    found.push(if same {
        "the same tests in both".to_owned()
    } else {
        "these are NOT the same tests".to_owned()
    });
    Ok((found.join("\n"), same))
}

/// Returns why a list that has only names cannot have this one.
fn unknown_to_names(name: &str, without_python: bool) -> Option<&'static str> {
    if without_python && name.starts_with(OF_PYTHON) {
        return Some("since here ./x test python has not run");
    }
    let is_labelled = name.split(' ').next().is_some_and(|p| p.ends_with(']'));
    is_labelled.then_some("of a build with other features")
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Failed, Passed, Skipped};
    use super::*;
    use crate::test_trees::{ignored, program, results, test, tree};

    #[test]
    fn each_test_has_one_outcome_and_children_have_none() {
        let tests = vec![
            test("ran"),
            test("lost"),
            ignored("gpu", "needs a GPU"),
            ignored("child", "is started by the tests below"),
        ];
        let listed = Tree {
            programs: vec![program("p", tests)],
            ..Tree::default()
        };
        let exist = expected(&listed, &listed.all());
        let told = ["ran", "unknown"].map(|name| Outcome::new("p", name, Passed, ""));
        let judged = judge(&exist, told.into());
        assert_eq!(
            results(&judged),
            [
                ("gpu", Skipped),
                ("lost", Failed),
                ("ran", Passed),
                ("unknown", Failed)
            ]
        );
        assert_eq!(totals(&judged), "1 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn a_part_that_did_not_run_is_missed() {
        let of_tests = tree(&[("p::a", &["one"]), ("p::b", &["two"])]);
        let mut of_tsan = tree(&[("p::a", &["three"])]);
        of_tsan.build.label = "tsan".to_owned();
        let ran = Outcome::new("p::a", "one", Passed, "");
        let missed = not_run(
            [&of_tests, &of_tsan].into_iter(),
            std::slice::from_ref(&ran),
        );
        let key =
            |program: &str, test: &str| BTreeSet::from([(program.to_owned(), test.to_owned())]);
        assert_eq!(missed, key("p::b", "two"));
        assert_eq!(twice(&[ran.clone(), ran]), key("p::a", "one"));
    }

    #[test]
    fn a_build_with_other_features_has_programs_of_its_own() {
        let mut of_tsan = tree(&[("p::a", &["one"])]);
        of_tsan.build.label = "tsan".to_owned();
        let exist = expected(&of_tsan, &of_tsan.all());
        assert_eq!(exist[0].0.0, "p::a[tsan]");
    }

    #[test]
    fn skipped_tests_and_missing_parts_of_tests_are_named() {
        let mut part = Outcome::new("p", "part", Passed, "");
        part.left_out = vec!["stores: no etcd".to_owned()];
        let away = Outcome::new("p", "away", Skipped, "no tshark");
        let bad = Outcome::failed("p", "bad", "failed");
        let good = Outcome::new("p", "good", Passed, "");
        let all = [bad.clone(), good, part, away, bad];
        assert_eq!(
            told(&all),
            "skipped tests, with reason:\n  p away: no tshark\nleft out of tests that passed:\n  p part: stores: no etcd\n\
             failed tests:\n  p bad: failed\n  p bad: failed"
        );
        assert_eq!(failures(&all), "failed 2 times: p bad: failed");
    }

    #[test]
    fn lists_are_compared_by_name() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for (name, text) in [
            ("a", "p x passed\np y y passed\n"),
            ("b", "p x skipped\np z passed\n"),
            ("c", "p x exists\np y y exists\n"),
            ("d", "p x passed\np y y passed\np[tsan] w passed\n"),
            (
                "e",
                "p x passed\np y y passed\npython::tests/t.py v passed\n",
            ),
            (
                "f",
                "p x exists\np y y exists\npython::tests/t.py u exists\n",
            ),
        ] {
            fs::write(path(name), text).unwrap();
        }
        let compared = |one: &str, other: &str| compare(&path(one), &path(other)).unwrap();
        let (told, same) = compared("a", "b");
        assert!(!same);
        for text in [
            "/a: p y y",
            "/b: p z",
            "  p x: passed in one, skipped in the other",
        ] {
            assert!(told.contains(text), "{told}");
        }
        assert!(compared("a", "c").1);
        let (told, same) = compared("d", "c");
        assert!(same);
        assert!(
            told.contains("not compared, of a build with other features: p[tsan] w"),
            "{told}"
        );
        assert!(!compared("d", "b").1);
        let (told, same) = compared("e", "c");
        assert!(same);
        assert!(
            told.contains(
                "not compared, since here ./x test python has not run: python::tests/t.py v"
            ),
            "{told}"
        );
        assert!(!compared("e", "f").1);
    }
}
