//! `wv bench p2p`: what it reports, and what it refuses.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::ends::{Server, machine};

fn bench(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wv"))
        .args(["bench", "p2p"])
        .args(options)
        .env_remove("WARPVERBS_SOFTHCA")
        .output()
        .unwrap()
}

#[test]
fn both_providers_report_every_pattern_with_the_setting_of_the_run() {
    let directory = tempfile::tempdir().unwrap();
    for (provider, moves) in [("sink", false), ("softhca", true)] {
        let json = directory.path().join(provider);
        let path = json.to_str().unwrap();
        let output = bench(&["--device", provider, "--rounds", "2", "--json", path]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(provider) && text.contains("words"), "{text}");
        let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
        assert_eq!(report["ran_on"], provider);
        assert_eq!(report["options"]["rounds"], 2);
        let rows = report["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 3);
        for row in rows {
            let pattern = &row["pattern"];
            let bytes =
                pattern["operations"].as_u64().unwrap() * pattern["bytes"].as_u64().unwrap();
            let compared = if moves { bytes } else { 0 };
            assert_eq!(row["compared"], compared, "{row}");
            assert!(row["slices"].as_u64().unwrap() > 0, "{row}");
        }
    }
}

#[test]
fn the_local_path_stands_beside_a_memcpy_and_a_bare_loop_of_calls() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let path = json.to_str().unwrap();
    let output = bench(&["--path", "local", "--rounds", "1", "--json", path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let ways = |way: &str| rows.iter().filter(|row| row["way"] == way).count();
    assert_eq!([ways("mapped"), ways("process_vm")], [4, 4]);
    for row in rows {
        assert_eq!(row["compared"], 1 << 25, "{row}");
        assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(report["gpu"], Value::Null);
}

#[test]
fn the_local_path_of_a_gpu_stands_beside_a_copy_by_it() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let path = json.to_str().unwrap();
    let setting = [
        "--path", "local", "--gpu", "simt", "--rounds", "1", "--json", path,
    ];
    let output = bench(&setting);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let gpu = report["gpu"].as_str().unwrap();
    assert!(
        gpu.starts_with("simt (no GPU: memory of the process)"),
        "{gpu}"
    );
    let rows = report["rows"].as_array().unwrap();
    let of_gpu: Vec<&Value> = rows.iter().filter(|row| row["way"] == "gpu").collect();
    assert_eq!((rows.len(), of_gpu.len()), (12, 4));
    for row in of_gpu {
        assert_eq!(row["compared"], 1 << 25, "{row}");
        assert!(row["ratio"].as_f64().unwrap() > 0.0, "{row}");
    }
}

#[test]
fn each_pattern_is_compared_whole_at_every_peer() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    for (pattern, reads, peers) in [
        ("kv", false, 1),
        ("weights", false, 3),
        ("fill", false, 1),
        ("weights", true, 2),
    ] {
        let (path, count) = (json.to_str().unwrap(), peers.to_string());
        let setting = ["--pattern", pattern, "--peers", &count, "--rounds", "1"];
        let read: &[&str] = if reads { &["--read"] } else { &[] };
        let output = bench(&[&setting[..], &["--json", path], read].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("no speed of a NIC"), "{text}");
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report["ran_on"], "softhca (no speed of a NIC)");
        let options = &report["options"];
        assert_eq!(
            [&options["pattern"], &options["reads"]],
            [&Value::from(pattern), &Value::from(reads)]
        );
        assert_eq!(report["options"]["peers"], peers);
        assert_eq!(report["compared"], peers << 26);
        assert!(report["operations"].as_u64().unwrap() > 0, "{report}");
        assert!(report["bytes"].as_u64().unwrap() >= peers << 24, "{report}");
    }
    for (options, reason) in [
        (
            &["--pattern", "kv", "--peers", "8"][..],
            "it must be a whole number from 1 to 7",
        ),
        (
            &["--pattern", "kv", "--path", "local"],
            "cannot be used with",
        ),
        (&["--peers", "2"], "--pattern"),
        (&["--read"], "--pattern"),
        (&["--to", "127.0.0.1:1"], "--pattern"),
        (
            &["--pattern", "kv", "--to", "127.0.0.1:1", "--peers", "2"],
            "cannot be used with",
        ),
        (
            &["--pattern", "fill", "--block", "0"],
            "--block is 0; it must be 512 to 33554432",
        ),
        (
            &["--pattern", "kv", "--bytes", "1"],
            "--bytes is 1; it must be 4194304 to 8589934592",
        ),
    ] {
        let output = bench(options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}

/// Returns what memory an end has, as the report says it: that of simt, registered in this way, or of the host without one.
fn memory(way: Option<&str>) -> Value {
    match way {
        None => json!({ "kind": "host" }),
        Some(way) => {
            json!({ "kind": "gpu", "gpu": "simt", "in_process": true, "registered": [way] })
        }
    }
}

#[test]
fn each_pattern_is_compared_whole_in_memory_of_a_gpu_at_either_end() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let (by_address, by_dmabuf) = (Some("address"), Some("dmabuf (PCIe)"));
    // More than one copy has, and no number of pages.
    let bytes = (9 << 20) + 1000;
    for (options, ways, peers) in [
        ("--pattern=kv --gpu=simt", [by_address; 2], 1),
        ("--pattern=kv --gpu=simt-dmabuf --read", [by_dmabuf; 2], 1),
        (
            "--pattern=weights --gpu=none --peer-gpu=simt-dmabuf --peers=2",
            [None, by_dmabuf],
            2,
        ),
        (
            "--pattern=weights --gpu=simt --peer-gpu=none --peers=2 --read",
            [by_address, None],
            2,
        ),
        (
            "--pattern=fill --gpu=simt-dmabuf --peer-gpu=simt --block=1000001",
            [by_dmabuf, by_address],
            1,
        ),
    ] {
        let (path, bytes) = (json.to_str().unwrap(), bytes.to_string());
        let common = ["--rounds", "1", "--bytes", &bytes, "--json", path];
        let options: Vec<&str> = options.split(' ').chain(common).collect();
        let output = bench(&options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {said}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains("simt (no GPU: memory of the process)"),
            "{text}"
        );
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report["ran_on"], "softhca+simt (no speed of a NIC)");
        let [here, there] = ways.map(memory);
        assert_eq!(report["memory"]["here"], here, "{options:?}");
        assert_eq!(report["memory"]["peers"], json!(vec![there; peers]));
        assert_eq!(report["compared"], peers * ((9 << 20) + 1000));
    }
}

#[test]
fn memory_of_a_gpu_is_refused_where_nothing_moves_it() {
    for (options, reason) in [
        (
            "--gpu=simt",
            "--gpu is simt; it must be none with --device sink, which moves no bytes",
        ),
        (
            "--device=sink --gpu=0",
            "--gpu is 0; it must be none with --device sink",
        ),
        (
            "--device=softhca --gpu=simt",
            "--gpu is simt; it must be none without --pattern",
        ),
        (
            "--path=local --peer-gpu=simt",
            "--peer-gpu is simt; it must be as --gpu with --path local",
        ),
        (
            "--pattern=kv --gpu=gpu0",
            "it must be none, auto, simt, simt-dmabuf or the number of a CUDA device",
        ),
        (
            "--pattern=kv --peer-gpu=simt --to=127.0.0.1:1",
            "cannot be used with",
        ),
        // Of a machine without a driver, and of one with another GPU.
        ("--pattern=kv --gpu=4000 --peer-gpu=none", "no CUDA d"),
        ("--pattern=kv --gpu=none --peer-gpu=4000", "no CUDA d"),
    ] {
        let options: Vec<&str> = options.split(' ').collect();
        let output = bench(&options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}

#[test]
fn each_end_of_two_processes_says_what_memory_it_has() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let path = json.to_str().unwrap();
    let options = ["--gpu=simt-dmabuf", "--runs=3"];
    let gpu = Server::start(directory.path(), &["p2p"], &options);
    let host = Server::start(directory.path(), &["p2p"], &["--runs=1"]);
    let both = format!("{},{}", gpu.place, host.place);
    let (by_address, by_dmabuf) = (Some("address"), Some("dmabuf (PCIe)"));
    for (place, options, here, peers) in [
        (
            &both,
            &["--pattern=weights", "--gpu=simt"][..],
            by_address,
            &[by_dmabuf, None][..],
        ),
        (&gpu.place, &["--pattern=kv"], None, &[by_dmabuf]),
        (
            &gpu.place,
            &["--pattern=kv", "--read", "--gpu=simt-dmabuf"],
            by_dmabuf,
            &[by_dmabuf],
        ),
    ] {
        let common = [
            "--rounds=1",
            "--bytes=8388608",
            "--json",
            path,
            "--to",
            place,
        ];
        let mut bench = machine(directory.path(), &["p2p"], &[&common[..], options].concat());
        let output = bench.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report["ran_on"], "softhca+simt (no speed of a NIC)");
        assert_eq!(report["memory"]["here"], memory(here));
        let peers: Vec<Value> = peers.iter().copied().map(memory).collect();
        assert_eq!(report["compared"], peers.len() << 23);
        assert_eq!(report["memory"]["peers"], Value::from(peers));
    }
    let absent = ["--serve=127.0.0.1:0", "--gpu=4000"];
    let mut serves = machine(directory.path(), &["p2p"], &absent);
    let output = serves.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("no CUDA d"),
        "{said}"
    );
    for server in [gpu, host] {
        let ended = server.ended();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
    }
}

#[test]
fn a_setting_outside_its_limits_is_refused_by_name() {
    for (options, reason) in [
        (["--qps", "9"], "qps is 9; it must be 1 to 8"),
        (["--workers", "0"], "workers is 0; it must be 1 to 8"),
        (["--slice", "1"], "slices of 1 bytes"),
        (
            ["--rounds", "0"],
            "it must be a whole number from 1 to 100000",
        ),
    ] {
        let output = bench(&options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}

#[test]
fn variables_of_the_engine_are_followed_where_no_option_says_otherwise() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let run = |options: &[&str], (name, value): (&str, &str)| {
        Command::new(env!("CARGO_BIN_EXE_wv"))
            .args([
                "bench",
                "p2p",
                "--rounds",
                "1",
                "--json",
                json.to_str().unwrap(),
            ])
            .args(options)
            .env(name, value)
            .output()
            .unwrap()
    };
    let slice = |options: &[&str]| {
        let output = run(options, ("WARPVERBS_ENGINE_SLICE", "1048576"));
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        report["options"]["slice"].as_u64().unwrap()
    };
    assert_eq!(slice(&[]), 1 << 20);
    assert_eq!(slice(&["--slice", "131072"]), 1 << 17);
    let output = run(&[], ("WARPVERBS_ENGINE_TRANSFERS", "0"));
    let said = String::from_utf8_lossy(&output.stderr);
    let wanted = "WARPVERBS_ENGINE_TRANSFERS is '0'; it must be a number from 1 to 65536";
    assert!(!output.status.success() && said.contains(wanted), "{said}");
}

#[test]
fn patterns_go_to_other_processes_which_compare_all_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("json");
    let path = json.to_str().unwrap();
    let most = ["--bytes=8388608", "--runs=5"];
    let first = Server::start(directory.path(), &["p2p"], &most);
    let second = Server::start(directory.path(), &["p2p"], &["--runs=1"]);
    let both = format!("{},{}", first.place, second.place);
    let common = ["--rounds=1", "--json", path];
    let run = |options: &[&str]| {
        let options = [&common[..], options].concat();
        let mut bench = machine(directory.path(), &["p2p"], &options);
        bench.output().unwrap()
    };
    for (place, pattern, options) in [
        (&both, "weights", &[][..]),
        (&first.place, "kv", &[]),
        (&first.place, "fill", &["--block=65536", "--qps=2"]),
        (&first.place, "fill", &["--block=1000000", "--read"]),
    ] {
        let words = ["--bytes=8388608", "--to", place, "--pattern", pattern];
        let output = run(&[&words[..], options].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        let peers = u64::from(pattern == "weights") + 1;
        assert_eq!(report["options"]["peers"], peers);
        assert_eq!(report["compared"], peers << 23);
        assert!(report["bytes"].as_u64().unwrap() > 0, "{report}");
    }
    let output = run(&["--pattern=kv", "--to", &first.place]);
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = "--bytes is 67108864; it must be at most 8388608";
    assert!(!output.status.success() && said.contains(reason), "{said}");
    for (server, refused) in [(first, true), (second, false)] {
        let ended = server.ended();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{said}");
        assert_eq!(said.contains(reason), refused, "{said}");
    }
}
