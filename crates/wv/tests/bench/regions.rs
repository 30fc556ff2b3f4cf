//! `wv bench regions`: what shares a registration, and what it refuses.

use std::process::{Command, Output};

use serde_json::Value;

use crate::ends::machine;

fn bench(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wv"))
        .args(["bench", "regions"])
        .args(options)
        .env_remove("WARPVERBS_SOFTHCA")
        .output()
        .unwrap()
}

#[test]
fn the_tensors_of_a_buffer_have_one_registration_and_others_one_each() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let path = json.to_str().unwrap();
    let output = bench(&["--regions", "500", "--rounds", "2", "--json", path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("one of 500 regions is found in"), "{text}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    for times in report["key_us"].as_array().unwrap() {
        let [median, least, most] = [0, 1, 2].map(|nth| times[nth].as_f64().unwrap());
        assert!(0.0 < least && least <= median && median <= most, "{report}");
    }
    let rows = report["rows"].as_array().unwrap();
    let counts = rows.iter().map(|row| {
        let of = |name: &str| row[name].as_u64().unwrap();
        (of("regions"), of("registrations"))
    });
    let expected = [(500, 500), (500, 500), (1265, 1265), (1266, 1)];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
}

#[test]
fn regions_are_registered_on_the_device_that_the_variable_names() {
    let directory = tempfile::tempdir().unwrap();
    let small = ["--regions=10", "--rounds=1", "--provider=nic"];
    let run = |device: &str| {
        let mut bench = machine(directory.path(), &["regions"], &small);
        bench.env("WARPVERBS_DEVICE", device).output().unwrap()
    };
    let output = run("mlx5_0");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.starts_with("softhca (no speed of a NIC): 1 rounds"),
        "{text}"
    );
    let output = run("mlx5_7");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("mlx5_7"),
        "{said}"
    );
}

#[test]
fn a_number_outside_its_limits_is_refused_by_name() {
    for (options, reason) in [
        (["--regions", "0"], "0 is not in 1..=1000000"),
        (["--rounds", "0"], "0 is not in 1..=100000"),
    ] {
        let output = bench(&options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}
