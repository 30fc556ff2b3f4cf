//! Which tests of the engine run over which provider: suite.md has them all, each skip with its reason. With WV_TEST_FULL all of the table
//! runs; else the samples of `by_verbs` and `by_libfabric` do.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::Command;

use test_support::counts::full;

use crate::drivers::{Driver, VARIABLE};

const TABLE: &str = include_str!("suite.md");
/// The modules that run tests of others, and are not in the table.
const RUN_OTHERS: [&str; 3] = ["by_libfabric::", "by_verbs::", "suite::"];
const RUNS: &str = "run";

/// The cells of each line of a table after this head, by the first cell.
fn rows(head: &str) -> BTreeMap<&'static str, Vec<&'static str>> {
    let lines = TABLE.lines().skip_while(|line| *line != head).skip(2);
    let mut rows = BTreeMap::new();
    for line in lines.take_while(|line| line.starts_with('|')) {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let name = cells.next().unwrap();
        let earlier = rows.insert(name, cells.collect());
        assert!(earlier.is_none(), "{name} twice");
    }
    assert!(!rows.is_empty(), "no lines below {head}");
    rows
}

fn reasons() -> BTreeMap<&'static str, Vec<&'static str>> {
    rows("| word | why a test is skipped |")
}

/// The tests, and for each provider what becomes of them.
fn tests() -> BTreeMap<&'static str, Vec<&'static str>> {
    rows("| test | verbs | tcp | shm | softofi |")
}

/// The place of a provider in a line of the table.
fn column(driver: Driver) -> usize {
    let words = ["verbs", "tcp", "shm", "softofi"];
    let place = words.iter().position(|word| *word == driver.word());
    place.expect("the table has it")
}

/// The tests of this program: all, or those alone that other tests start.
fn listed(started_by_others: bool) -> BTreeSet<String> {
    let mut command = Command::new(env::current_exe().unwrap());
    command.arg("--list");
    if started_by_others {
        command.arg("--ignored");
    }
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    let own = names.filter(|name| !RUN_OTHERS.iter().any(|module| name.starts_with(module)));
    own.map(str::to_owned).collect()
}

#[test]
fn the_table_has_each_test_once_and_a_reason_for_each_skip() {
    let started = listed(true);
    let exist: BTreeSet<String> = listed(false).difference(&started).cloned().collect();
    let (tests, reasons) = (tests(), reasons());
    let named: BTreeSet<String> = tests.keys().map(|name| (*name).to_owned()).collect();
    let missing: Vec<_> = exist.difference(&named).collect();
    let gone: Vec<_> = named.difference(&exist).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "suite.md lacks {missing:?}, and names {gone:?}, which are no tests"
    );
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for (name, cells) in &tests {
        assert_eq!(cells.len(), 4, "{name}");
        for word in cells.iter().filter(|word| **word != RUNS) {
            assert!(reasons.contains_key(word), "{name}: {word} is no reason");
            used.insert(*word);
        }
    }
    let given: BTreeSet<&str> = reasons.keys().copied().collect();
    assert_eq!(used, given, "each reason has a test");
}

/// Runs all that the table has for this provider, in a process of its own, with the counts of every run.
fn run_all(driver: Driver) {
    let word = driver.word();
    let (tests, place) = (tests(), column(driver));
    let all = tests.iter().filter(|(_, cells)| cells[place] == RUNS);
    let all: Vec<&str> = all.map(|(name, _)| *name).collect();
    if !full() {
        let count = all.len();
        println!("skipped: {count} tests over {word}: they run with WV_TEST_FULL=1");
        return;
    }
    if let Some(why) = driver.lacks() {
        println!("left out: the suite over {word}: {why}");
        return;
    }
    let output = Command::new(env::current_exe().unwrap())
        .arg("--exact")
        .args(&all)
        .arg("--test-threads=2")
        .env(VARIABLE, word)
        .env_remove("WV_TEST_FULL")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{word}: {text}{errors}");
    let passed = format!("ok. {} passed; 0 failed", all.len());
    assert!(text.contains(&passed), "{word}, {passed}: {text}");
    println!("over {word}: {passed}");
}

#[test]
fn all_of_the_table_runs_over_verbs() {
    run_all(Driver::Verbs);
}

#[test]
fn all_of_the_table_runs_over_tcp() {
    run_all(Driver::Tcp);
}

#[test]
fn all_of_the_table_runs_over_shm() {
    run_all(Driver::Shm);
}

#[test]
fn all_of_the_table_runs_over_softofi() {
    run_all(Driver::SoftOfi);
}
