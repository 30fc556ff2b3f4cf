//! What a group asks of its store, as `wv bench group` counts it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs `wv bench group` with these options.
fn bench(options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wv"));
    command.args(["bench", "group"]).args(options);
    command.output().unwrap()
}

/// The report of a run with `options`.
fn report(options: &[&str], directory: &Path) -> Value {
    let file = directory.join("group.json");
    let common = ["--peace=1", "--json", file.to_str().unwrap()];
    let ran = bench(&[&common, options].concat());
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    print!("{}", String::from_utf8_lossy(&ran.stdout));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn check_row(row: &Value, ranks: u32, deaths: u32) {
    assert_eq!(
        (&row["ranks"], &row["expelled"]),
        (&ranks.into(), &0.into())
    );
    for times in ["death_ms", "join_ms"] {
        assert_eq!(row[times]["count"], deaths, "{row}");
        assert!(row[times]["max"].as_f64() >= row[times]["p50"].as_f64());
    }
    assert!(
        row["change"]["calls_per_rank"].as_f64() > Some(0.0),
        "{row}"
    );
    assert!(
        row["change"]["bytes_per_rank"].as_f64() <= Some(4096.0),
        "{row}"
    );
    assert!(
        row["peace"]["renewals_per_second"].as_f64() > Some(0.0),
        "{row}"
    );
}

#[test]
fn the_report_of_ranks_in_memory_has_all_figures_and_expels_no_rank() {
    let directory = tempfile::tempdir().unwrap();
    let options = [
        "--deaths=2",
        "--ranks=3,5",
        "--lease-ms=1000",
        "--crash-loops=32",
    ];
    let report = report(&options, directory.path());
    assert_eq!(report["ran_on"], "threads+memory");
    assert_eq!(report["rows"].as_array().unwrap().len(), 2);
    for (row, ranks) in report["rows"].as_array().unwrap().iter().zip([3, 5]) {
        check_row(row, ranks, 2);
        assert!(row["peace"]["server_core_percent"].is_null(), "{row}");
    }
    let newcomer = &report["crash_loop"];
    assert_eq!(
        (&newcomer["deaths"], &newcomer["expelled"]),
        (&32.into(), &0.into())
    );
    let held = newcomer["standstills"].as_u64().unwrap();
    assert!(
        held <= newcomer["most_standstills"].as_u64().unwrap(),
        "{newcomer}"
    );
}

#[test]
fn the_report_of_ranks_in_an_etcd_says_what_its_server_takes() {
    let Some(program) = test_basics::etcd::program() else {
        println!("skipped: {}", test_basics::etcd::NO_PROGRAM);
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let program = format!("--etcd-program={}", program.display());
    let (ranks, deaths) = match std::env::var_os("WV_TEST_FULL") {
        Some(_) => (64, 50),
        None => (3, 2),
    };
    let (of, times) = (format!("--ranks={ranks}"), format!("--deaths={deaths}"));
    let options = ["--store=etcd", &of, &times, &program];
    let report = report(&options, directory.path());
    assert_eq!(report["ran_on"], "threads+etcd");
    assert!(report["crash_loop"].is_null());
    let row = &report["rows"][0];
    check_row(row, ranks, deaths);
    let calls = row["change"]["calls_per_rank"].as_f64();
    assert!(ranks < 64 || calls <= Some(20.0), "{row}");
    assert!(
        row["peace"]["server_core_percent"].as_f64() >= Some(0.0),
        "{row}"
    );
}

#[test]
fn options_out_of_range_are_refused_by_name() {
    for (options, words) in [
        (["--ranks=2"], "--ranks is [2]; it must be 3 to 4096 each"),
        (
            ["--ranks=4097"],
            "--ranks is [4097]; it must be 3 to 4096 each",
        ),
        (["--deaths=0"], "--deaths is 0; it must be at least 1"),
        (
            ["--lease-ms=499"],
            "it must be a whole number from 500 to 60000",
        ),
    ] {
        let refused = bench(&options);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(words), "{said}");
    }
    let refused = bench(&["--store=etcd", "--etcd-program=/nonexistent/etcd"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("--etcd-program is /nonexistent/etcd; it must be an etcd"),
        "{said}"
    );
}
