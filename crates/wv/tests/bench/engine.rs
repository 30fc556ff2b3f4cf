//! `wv bench engine`: what it reports, and what it refuses.

use std::process::{Command, Output};

use serde_json::Value;

fn bench(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wv"))
        .args(["bench", "engine"])
        .args(options)
        .env_remove("WARPVERBS_SOFTHCA")
        .output()
        .unwrap()
}

#[test]
fn every_rate_stands_beside_its_yardstick_and_all_bytes_are_compared() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let path = json.to_str().unwrap();
    let small = ["--rounds=2", "--wakes=5", "--idle-qps=512", "--idle-ms=100"];
    let output = bench(&[&small[..], &["--json", path]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("no speed of a NIC"), "{text}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let beside = |of: &str| rows.iter().filter(|row| row["beside"] == of).count();
    let counts = ["one worker", "a bare loop", "the same without them"].map(beside);
    assert_eq!(counts, [6, 2, 4]);
    for row in rows {
        for rates in [&row["rate"], &row["yardstick"]] {
            let [median, least, most] = [0, 1, 2].map(|nth| rates[nth].as_f64().unwrap());
            assert!(0.0 < least && least <= median && median <= most, "{row}");
        }
        assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
    }
    // By engine and loop.
    assert_eq!(report["compared"], 2 * (16_384 * 8 + 512 * 65_536));
    let idle = &report["idle"];
    assert_eq!((&idle["peers"], &idle["engines"]), (&64.into(), &65.into()));
    assert!(idle["threads"].as_u64().unwrap() >= 65, "{idle}");
    for latency in report["latencies"].as_array().unwrap() {
        let [half, most, all] = [0, 1, 2].map(|nth| latency["microseconds"][nth].as_f64().unwrap());
        assert!(0.0 < half && half <= most && most <= all, "{latency}");
    }
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
        let output = bench(&options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}
