//! `wv bench engine`: what it reports, and what it refuses.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(variables: &[(&str, &str)], options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wv"))
        .args(["bench", "engine"])
        .args(options)
        .env_remove("WARPVERBS_SOFTHCA")
        .env_remove("WARPVERBS_PROVIDER")
        .env_remove("WARPVERBS_DEVICE")
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

/// Runs few rounds with these variables. Returns the report and the table. None: the machine's libfabric lacks the provider.
#[track_caller]
fn small_run(variables: &[(&str, &str)]) -> Option<(Value, String)> {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let path = json.to_str().unwrap();
    let small = ["--rounds=2", "--wakes=5", "--idle-qps=512", "--idle-ms=100"];
    let output = bench(variables, &[&small[..], &["--json", path]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("WARPVERBS_LIBFABRIC names another file") || said.contains("has no provider") {
        println!("left out: {said}");
        return None;
    }
    assert!(output.status.success(), "{said}");
    let report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    Some((report, String::from_utf8(output.stdout).unwrap()))
}

/// Checks the rows, what was compared, and the idle worker. `counts` has the rows beside a bare loop, without idle QPs and of mlx5.
#[track_caller]
fn assert_whole(report: &Value, text: &str, counts: [usize; 3]) {
    let rows = report["rows"].as_array().unwrap();
    let beside = |of: &str| rows.iter().filter(|row| row["beside"] == of).count();
    assert_eq!(beside("one worker"), 6);
    let found = ["a bare loop", "the same without them", "mlx5"].map(beside);
    assert_eq!(found, counts);
    for row in rows {
        for rates in [&row["rate"], &row["yardstick"]] {
            let [median, least, most] = [0, 1, 2].map(|nth| rates[nth].as_f64().unwrap());
            assert!(0.0 < least && least <= median && median <= most, "{row}");
        }
        assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
        assert!(text.contains(row["what"].as_str().unwrap()), "{text}");
    }
    // By engine and loop.
    let moved = 16_384 * 8 + 4096 * 4096 + 512 * 65_536;
    assert_eq!(report["compared"], 2 * moved);
    let worker = &report["idle_worker"];
    assert_eq!(worker["workers"], 2, "{worker}");
    assert!(worker["percent_of_core"].as_f64().unwrap() >= 0.0);
    let sleeps_on = worker["sleeps_on"].as_str().unwrap();
    assert!(
        text.contains(&format!("it sleeps on {sleeps_on}")),
        "{text}"
    );
    for latency in report["latencies"].as_array().unwrap() {
        let [half, most, all] = [0, 1, 2].map(|nth| latency["microseconds"][nth].as_f64().unwrap());
        assert!(0.0 < half && half <= most && most <= all, "{latency}");
    }
}

#[track_caller]
fn assert_idle_peers(report: &Value) {
    let idle = &report["idle"];
    assert_eq!((&idle["peers"], &idle["engines"]), (&64.into(), &65.into()));
    assert!(idle["threads"].as_u64().unwrap() >= 65, "{idle}");
}

#[test]
fn every_rate_stands_beside_its_yardstick_and_all_bytes_are_compared() {
    let (report, text) = small_run(&[]).unwrap();
    assert!(text.contains("no speed of a NIC"), "{text}");
    assert_whole(&report, &text, [3, 6, 0]);
    assert_idle_peers(&report);
    assert!(report["device"].as_str().unwrap().ends_with(" by mlx5"));
    assert_eq!(
        report["idle_worker"]["sleeps_on"],
        "the descriptor of the NIC's events"
    );
}

#[test]
fn verbs_stands_beside_a_bare_loop_and_beside_mlx5() {
    let (report, text) = small_run(&[("WARPVERBS_PROVIDER", "verbs")]).unwrap();
    assert_whole(&report, &text, [3, 6, 3]);
    assert_idle_peers(&report);
    assert!(report["device"].as_str().unwrap().ends_with(" by verbs"));
}

#[test]
fn a_domain_of_libfabric_stands_beside_a_bare_loop_without_idle_peers() {
    let over_tcp = [
        ("WARPVERBS_PROVIDER", "ofi:tcp;ofi_rxm"),
        ("WARPVERBS_DEVICE", "lo"),
    ];
    let Some((report, text)) = small_run(&over_tcp) else {
        return;
    };
    assert_whole(&report, &text, [3, 0, 0]);
    assert!(report["idle"].is_null() && text.contains("left out: idle peers"));
    let device = report["device"].as_str().unwrap();
    assert!(device.starts_with("lo by ofi:tcp;ofi_rxm ("), "{device}");
    let sleeps_on = report["idle_worker"]["sleeps_on"].as_str().unwrap();
    assert!(sleeps_on.contains("(FI_WAIT_FD)"), "{sleeps_on}");
}

#[test]
fn a_number_outside_its_limits_is_refused_by_name() {
    for (options, reason) in [
        (
            ["--rounds", "0"],
            "it must be a whole number from 1 to 100000",
        ),
        (
            ["--wakes", "0"],
            "it must be a whole number from 1 to 1000000",
        ),
        (
            ["--idle-qps", "511"],
            "it must be a whole number from 512 to 8192",
        ),
        (
            ["--idle-ms", "0"],
            "it must be a whole number from 1 to 600000",
        ),
    ] {
        let output = bench(&[], &options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}
