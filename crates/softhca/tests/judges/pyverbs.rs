//! An independent client: the tests that Debian ships with pyverbs, all that concern one device, with their outcomes.
//!
//! They build their own commands, WQEs and memory keys, so a misreading of the manual that our runtime and softhca share
//! would show here. Expected outcomes are in `pyverbs-44.txt`, for rdma-core 44.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::expectation::{self, Outcome, Outcomes};
use softhca_rig::tools::programs::{Ended, Running, Scratch, package_version, seed};

/// Of the tests, so many are ok at least with rdma-core 44; the list says which.
const LEAST_OK: usize = 108;

const HEAD: &str = "\
# What becomes of Debian's pyverbs tests of rdma-core 44: see expectation.rs for the rules, and rewrite with
# UPDATE=1 cargo test -p softhca --test judges. A reason says what the device lacks, in the words of the test.
";

/// Tests of each kind of QP and of address handles: what depends on a GID.
const BY_GID: [&str; 14] = [
    "test_addr",
    "test_atomic.AtomicTest.test_atomic_fetch_and_add",
    "test_atomic.AtomicTest.test_xrc_atomic_fetch_and_add",
    "test_cq_events",
    "test_cqex",
    "test_device.DeviceTest.test_query_gid",
    "test_device.DeviceTest.test_query_gid_ex",
    "test_device.DeviceTest.test_query_gid_table",
    "test_mlx5_cq.DvCqTest.test_dv_cq_traffic",
    "test_mlx5_devx",
    "test_parent_domain",
    "test_qp",
    "test_qpex",
    "test_relaxed_ordering",
];

/// As they come: each test takes the first entry of the GID table, which is `RoCE` v1.
#[test]
fn the_pyverbs_tests_of_debian_end_as_expected() {
    let Some((outcomes, list)) = judge("any", &[]) else {
        return;
    };
    if std::env::var_os("UPDATE").is_some() {
        expectation::write(&list, HEAD, &outcomes);
    }
    check("any", &expectation::read(&list), &outcomes);
    let ok = expectation::count_ok(&outcomes);
    assert!(ok >= LEAST_OK, "{ok} tests are ok, of at least {LEAST_OK}");
}

/// Those that depend on a GID by each entry of its table; with `WV_TEST_FULL=1` all.
#[test]
fn the_pyverbs_tests_end_as_expected_by_every_gid() {
    let is_full = std::env::var_os("WV_TEST_FULL").is_some();
    let names: &[&str] = if is_full { &[] } else { &BY_GID };
    for index in ["0", "1", "2", "3"] {
        let Some((outcomes, list)) = judge(index, names) else {
            return;
        };
        let mut expected = expectation::read(&list);
        let is_asked = |test: &str| {
            let belongs = |name: &&str| test == *name || test.starts_with(&format!("{name}."));
            is_full || names.iter().any(belongs)
        };
        expected.retain(|test, _| is_asked(test));
        check(index, &expected, &outcomes);
    }
}

/// Runs tests, all if none is named, with the entry `gid_index` of the GID table, or any. Their outcomes, and where the
/// expected ones stand.
fn judge(gid_index: &str, names: &[&str]) -> Option<(Outcomes, PathBuf)> {
    let packed = packed_tests()?;
    let scratch = Scratch::new();
    let tests = scratch.path().join("tests");
    unpack(&packed, &tests);
    let (outcomes, ended) = run(&scratch, &tests, gid_index, names);
    print!("{}", expectation::table(&outcomes));
    println!(
        "GID index {gid_index}: {:.1} s, seed {}",
        ended.took.as_secs_f64(),
        seed()
    );
    let version = package_version("python3-pyverbs").unwrap_or_default();
    if !version.starts_with("44.") {
        println!(
            "left out: the expected outcomes: they are of rdma-core 44, and this is {version}"
        );
        return None;
    }
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges/pyverbs-44.txt");
    Some((outcomes, list))
}

fn check(gid_index: &str, expected: &Outcomes, outcomes: &Outcomes) {
    let (worse, better) = expectation::compare(expected, outcomes);
    for line in better {
        println!("{line}: enter it with UPDATE=1");
    }
    assert!(
        worse.is_empty(),
        "{} worse than expected by GID index {gid_index} (SEED={}):\n{}",
        worse.len(),
        seed(),
        worse.join("\n")
    );
}

/// Returns the directory of the tests as Debian packs them. `./x test` puts the contents of the installed package into it. Otherwise the
/// tests are in the package's documentation, which slim images leave out.
fn packed_tests() -> Option<PathBuf> {
    const WHAT: &str = "pyverbs tests";
    const SHIPPED: &str = "usr/share/doc/rdma-core/tests";
    let Some(version) = package_version("python3-pyverbs") else {
        println!("skipped: {WHAT}: the package python3-pyverbs is not installed");
        return None;
    };
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/pyverbs");
    let package = fs::read_to_string(fetched.join("PACKAGE")).unwrap_or_default();
    let is_same = package.trim() == format!("python3-pyverbs={version}");
    let fetched = is_same.then(|| fetched.join(SHIPPED));
    let installed = Path::new("/").join(SHIPPED);
    let found = fetched
        .into_iter()
        .chain([installed])
        .find(|path| path.exists());
    if found.is_none() {
        println!(
            "skipped: {WHAT}: ./x test did not fetch python3-pyverbs={version}, and /{SHIPPED} is not there"
        );
    }
    found
}

/// Copies the tests, which the package holds compressed.
fn unpack(packed: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(packed).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
    let script = "gunzip *.gz";
    let status = Command::new("sh")
        .args(["-c", script])
        .current_dir(to)
        .status();
    assert!(status.unwrap().success());
}

/// All in one process, because a start of Python costs a second.
fn run(scratch: &Scratch, tests: &Path, gid_index: &str, names: &[&str]) -> (Outcomes, Ended) {
    let results = scratch.path().join("results");
    let mut command = scratch.preloaded(&[], "/usr/bin/python3");
    command
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judges/run_pyverbs.py"))
        .args([tests, &results])
        .arg(gid_index)
        .args(names)
        .env("SEED", seed().to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let ended = Running::start(command, scratch, "printed").end_within(Duration::from_secs(200));
    let text = fs::read_to_string(&results).unwrap_or_default();
    let mut outcomes = Outcomes::new();
    let mut has_ended = false;
    for line in text.lines() {
        let [outcome, name, text] = line.splitn(3, '\t').collect::<Vec<_>>()[..] else {
            continue; // cut off
        };
        let text = text.replace("\\n", "\n").replace("\\\\", "\\");
        let outcome = match outcome {
            // Until the next line about this test.
            "start" => Outcome::Fail(format!("it ended the process:\n{}", ended.report())),
            "ok" => Outcome::Ok,
            "skip" => Outcome::Skip(text),
            "fail" => Outcome::Fail(text),
            "end" => {
                has_ended = true;
                continue;
            }
            _ => panic!("an unknown outcome: {line}"),
        };
        outcomes.insert(name.to_owned(), outcome);
    }
    let started = outcomes
        .values()
        .any(|outcome| matches!(outcome, Outcome::Fail(why) if why.starts_with("it ended")));
    assert!(!has_ended || ended.is_success(), "{}", ended.report());
    assert!(
        has_ended || started,
        "the tests did not run:\n{}",
        ended.report()
    );
    (outcomes, ended)
}
