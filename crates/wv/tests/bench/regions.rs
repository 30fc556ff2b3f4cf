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
    for (gpu, ran_on, way) in [
        ("none", "softhca (no speed of a NIC)", None),
        ("simt", "softhca+simt (no speed of a NIC)", Some("address")),
        (
            "simt-dmabuf",
            "softhca+simt (no speed of a NIC)",
            Some("dmabuf (PCIe)"),
        ),
    ] {
        let few = ["--regions=500", "--rounds=2", "--buffer=1000001"];
        let output = bench(&[&few[..], &["--json", path, "--gpu", gpu]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("one of 500 regions is found in"), "{text}");
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report["ran_on"], ran_on);
        let registered = way.map(|way| Value::from(vec![way]));
        assert_eq!(report["memory"].get("registered"), registered.as_ref());
        for times in report["key_us"].as_array().unwrap() {
            let [median, least, most] = [0, 1, 2].map(|nth| times[nth].as_f64().unwrap());
            assert!(0.0 < least && least <= median && median <= most, "{report}");
        }
        let rows = report["rows"].as_array().unwrap();
        let counts = rows.iter().map(|row| {
            let of = |name: &str| row[name].as_u64().unwrap();
            (of("regions"), of("registrations"), of("bytes"))
        });
        let expected = [
            (1, 1, 1_000_001),
            (500, 500, 500 << 12),
            (500, 500, 500 << 12),
            (1265, 1265, 1265 << 12),
            (1266, 1, 1265 << 12),
        ];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn regions_are_registered_on_the_device_that_the_variable_names() {
    let directory = tempfile::tempdir().unwrap();
    let small = ["--regions=10", "--rounds=1", "--device=configured"];
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
        (
            ["--regions", "0"],
            "it must be a whole number from 1 to 1000000",
        ),
        (
            ["--rounds", "0"],
            "it must be a whole number from 1 to 100000",
        ),
        (
            ["--buffer", "0"],
            "it must be a whole number from 1 to 1099511627776",
        ),
        (["--gpu", "gpu0"], "it must be none, auto, simt"),
    ] {
        let output = bench(&options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}
