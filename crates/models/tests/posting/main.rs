//! The posting protocol, checked: every interleaving of small configurations of `models::posting`.
//!
//! A mutant does one thing wrong and must break the property named with it; every property has one. An earlier, independent model
//! checked the same protocol. `posts` and `limits` hold all its configurations and mutants, with its numbers of states. The test
//! `nothing_of_the_reference_is_missing` compares with the sums that it published.
//!
//! `cargo test -p models --test posting -- --nocapture` prints the table. What this proves and what not: docs/models.md.
//! Where the kernels themselves are tested for each invariant: kernels/README.md, "Invariants and their tests".

mod completions_checked;
mod limits;
mod modes_checked;
mod posts;

use models::explore::search;
use models::posting::{Configuration, Cq, Expect, Nic, Op, Property, op, puts};
use std::path::Path;
use std::time::Instant;

/// The groups of the default run.
fn groups() -> [(&'static str, Vec<Configuration>); 15] {
    [
        ("serve", posts::service()),
        ("serve", posts::faults_of_service()),
        ("hold", posts::hold_back()),
        ("signal", posts::selective_signalling()),
        ("full", limits::nearly_full()),
        ("error", limits::errors()),
        ("batch", modes_checked::batches()),
        ("lanes", modes_checked::lanes_alone()),
        ("block", modes_checked::block_owned()),
        ("host", modes_checked::host_queues()),
        ("mailbox", modes_checked::mailboxes()),
        ("exclusive", modes_checked::exclusive()),
        ("completion", completions_checked::completions()),
        ("guard", completions_checked::guards()),
        ("faults", completions_checked::faults()),
    ]
}

/// Searches every configuration of a group; reports all that are not as expected. Ends with its line of the table: group,
/// configurations and mutants, states, those of the largest configuration, time.
fn check(group: &str, configurations: Vec<Configuration>) {
    let begin = Instant::now();
    let mut wrong = Vec::new();
    let (mut states, mut largest) = (0, 0);
    let (mut correct, mut mutants) = (0, 0);
    for configuration in configurations {
        let start = Instant::now();
        let found = search(&configuration);
        states += found.states;
        let name = &configuration.name;
        let broken = found.violation.as_ref().map(|(bad, _)| bad.property);
        let text = found
            .violation
            .as_ref()
            .map_or("holds".to_owned(), |(bad, _)| {
                format!("breaks {}: {}", bad.property.name(), bad.text)
            });
        println!(
            "{group}/{name}: {} states, {:.1?}, {text}",
            found.states,
            start.elapsed()
        );
        let as_expected = match configuration.expect {
            Expect::Holds => {
                correct += 1;
                largest = largest.max(found.states);
                broken.is_none()
            }
            Expect::Breaks(property) => {
                mutants += 1;
                broken == Some(property)
            }
        };
        if !as_expected {
            let expected = configuration.expect;
            let way = found.violation.map_or(Vec::new(), |(_, way)| way);
            let way = way.join("\n  ");
            wrong.push(format!("{name}: {text}, expected {expected:?}\n  {way}"));
        }
        if let Some(expected) = configuration.states
            && expected != found.states
        {
            let got = found.states;
            wrong.push(format!("{name}: {got} states, expected {expected}"));
        }
    }
    println!(
        "| {group} | {correct} + {mutants} mutants | {states} states | largest {largest} | {:.1?} |",
        begin.elapsed()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_invariant_is_broken_by_a_mutant() {
    let groups = groups();
    let all = || {
        groups
            .iter()
            .flat_map(|(group, list)| list.iter().map(move |c| (*group, c)))
    };
    for property in Property::ALL {
        let mutants: Vec<String> = all()
            .filter(|(_, c)| c.expect == Expect::Breaks(property))
            .map(|(group, c)| format!("{group}/{}", c.name.trim_start_matches("mutant: ")))
            .collect();
        println!(
            "{}: {} mutants: {}",
            property.name(),
            mutants.len(),
            mutants.join("; ")
        );
        assert!(!mutants.is_empty(), "no mutant breaks {}", property.name());
    }
    let correct = all().filter(|(_, c)| c.expect == Expect::Holds).count();
    let mutants = all().count() - correct;
    println!(
        "{correct} configurations, {mutants} mutants; I11 is the allocator's: tests of src/memheap"
    );
    // What has been added to the reference stays.
    assert!(correct >= FEWEST_CONFIGURATIONS && mutants >= FEWEST_MUTANTS);
}

/// Of the default run.
const FEWEST_CONFIGURATIONS: usize = 100;
const FEWEST_MUTANTS: usize = 73;

/// What the reference says of its groups: configurations, the states of all of them, mutants.
#[test]
fn nothing_of_the_reference_is_missing() {
    let mut service = posts::service();
    service.extend(posts::faults_of_service());
    for (group, list, expected) in [
        ("serve", service, (17, 3_381_448, 7)),
        ("hold", posts::hold_back(), (8, 1_825_597, 6)),
        ("signal", posts::selective_signalling(), (7, 1_107_912, 3)),
        ("full", limits::nearly_full(), (9, 1_515_100, 4)),
        ("error", limits::errors(), (10, 468_158, 7)),
        ("big", larger(), (5, 4_671_568, 0)),
    ] {
        let counted: Vec<usize> = list.iter().filter_map(|c| c.states).collect();
        let mutants = list.iter().filter(|c| c.expect != Expect::Holds).count();
        let found = (counted.len(), counted.iter().sum(), mutants);
        assert_eq!(found, expected, "{group}");
    }
}

/// The tests that the table of invariants in kernels/README.md names exist: `binary::module::name`.
#[test]
fn the_tests_that_the_table_of_invariants_names_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = std::fs::read_to_string(root.join("kernels/README.md")).unwrap();
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let (_, table) = readme.split_once("## Invariants and their tests").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let named = table.split('`').skip(1).step_by(2);
    let tests: Vec<Vec<&str>> = named
        .map(|name| name.split("::").collect::<Vec<_>>())
        .filter(|path| path.len() > 1)
        .collect();
    assert!(tests.len() > 20, "{tests:?}");
    for path in tests {
        let (name, module) = path.split_last().unwrap();
        let file = source_of(module, &manifest);
        let text = std::fs::read_to_string(root.join(&file));
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(
            text.contains(&format!("fn {name}(")),
            "{file}: no test {name}"
        );
    }
}

/// Returns the file of a module of a test program, whose entry in the manifest says where it is.
fn source_of(module: &[&str], manifest: &str) -> String {
    let (program, inner) = module.split_first().unwrap();
    let entry = format!("[[test]]\nname = \"{program}\"\npath = \"");
    let (_, path) = manifest
        .split_once(&entry)
        .unwrap_or_else(|| panic!("{program} is no test program"));
    let (path, _) = path.split_once('"').unwrap();
    match path.rsplit_once('/') {
        Some((folder, _)) if !inner.is_empty() => format!("{folder}/{}.rs", inner.join("/")),
        _ => path.to_owned(),
    }
}

fn new(name: &str, depth: i32, programs: Vec<Vec<Op>>) -> Configuration {
    Configuration::new(name, depth, programs)
}

/// Equal programs.
fn same(count: usize, program: Vec<Op>) -> Vec<Vec<Op>> {
    vec![program; count]
}

/// The larger configurations: with `WV_TEST_FULL=1`.
#[test]
fn larger_configurations_hold_too() {
    let larger = larger();
    if std::env::var_os("WV_TEST_FULL").is_none() {
        println!(
            "skipped: {} larger configurations of the posting model, for their time: they run with WV_TEST_FULL=1",
            larger.len()
        );
        return;
    }
    check("big", larger);
}

fn larger() -> Vec<Configuration> {
    let deadlines = vec![op(1, "d"); 2];
    let attempt = vec![op(1, "t")];
    let wait = op(1, "w");
    let follows = "serve D4 3x2, NIC follows the record";
    let held = vec![vec![op(1, "m"), op(0, "f")], vec![op(1, "mw")], puts(1, 1)];
    vec![
        new(follows, 4, same(3, puts(2, 1)))
            .nic(Nic::Follows)
            .states(1_909_214),
        new("serve D4 3x2, no record", 4, same(3, puts(2, 1)))
            .without_record()
            .states(1_315_315),
        new("serve D2 2x6", 2, same(2, puts(6, 1)))
            .live()
            .states(117_688),
        new(
            "claim D2 4 posters",
            2,
            vec![deadlines.clone(), deadlines, attempt.clone(), attempt],
        )
        .states(528_513),
        new(
            "recover D2 3 posters",
            2,
            vec![puts(2, 1), puts(2, 1), vec![wait]],
        )
        .recovering()
        .states(800_838),
        new(
            "block D4 2x3, NIC samples the record",
            4,
            same(2, puts(3, 1)),
        )
        .nic(Nic::Samples)
        .block_owned(),
        new("block D4 hold-back, flush, wait, put", 4, held)
            .quarter(2)
            .block_owned(),
        new(
            "wide D4 few signalled, error and flush",
            4,
            vec![vec![wait; 2], puts(4, 1)],
        )
        .quarter(2)
        .modulus(8)
        .cq(Cq::Wide)
        .wqe_error(),
        new(
            "guard D2 3 kernels",
            2,
            vec![puts(2, 1), puts(1, 1), vec![wait]],
        )
        .persistent(),
    ]
}
