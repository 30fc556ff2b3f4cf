//! `wv bench fill`: what it reports, and what it refuses.

use std::process::{Command, Output};

use serde_json::Value;

use crate::ends::{Server, machine};

fn bench(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wv"))
        .args(["bench", "fill"])
        .args(options)
        .output()
        .unwrap()
}

#[test]
fn pages_are_written_compared_and_listed_as_they_go() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("fill.json");
    let small = [
        "--bytes=1048576",
        "--page=256",
        "--pages=2048",
        "--repeats=20",
        "--json",
        json.to_str().unwrap(),
    ];
    let output = bench(&[&small[..], &["--poster", "host"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // A line for each 16,384 of 40,960 pages.
    let lines: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("pages done"))
        .collect();
    assert_eq!(lines.len(), 2, "{said}");
    assert!(
        lines.iter().all(|line| line.contains("of the link")),
        "{said}"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("posted by the host") && text.contains("softhca"),
        "{text}"
    );
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["operations"], 20 * 2048);
    assert_eq!(report["compared"], 3 * 2048 * 256);
    assert_eq!(report["poster"], "host");
    assert!(
        report["percent_of_link"].as_f64().unwrap() > 0.0,
        "{report}"
    );
}

#[test]
fn every_device_of_an_engine_posts_and_its_share_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("fill.json");
    let output = bench(&[
        "--rails",
        "4",
        "--bytes=1048576",
        "--page=256",
        "--json",
        json.to_str().unwrap(),
    ]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let posted: Vec<u64> = report["posted_bytes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_u64().unwrap())
        .collect();
    // Those of the warm-up are among them.
    assert!(
        posted.iter().all(|it| *it > 0) && posted.iter().sum::<u64>() >= 20 * 250 * 256,
        "{report}"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.matches('%').count(), 5, "{text}");
}

#[test]
fn with_a_slow_rail_all_of_them_stand_beside_the_others_and_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("fill.json");
    let small = ["--bytes=1048576", "--page=1024", "--repeats=2"];
    let slow = ["--rails=3", "--fault=delay=200us..400us@100%"];
    let path = json.to_str().unwrap();
    let output = bench(&[&small[..], &slow, &["--json", path]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["posted_bytes"].as_array().unwrap().len(), 3);
    let faulty = &report["faulty"];
    assert_eq!(faulty["fault"], "delay=200us..400us@100%");
    for rates in ["all", "others", "alone"] {
        let [median, least, most] = [0, 1, 2].map(|nth| faulty[rates][nth].as_f64().unwrap());
        assert!(0.0 < least && least <= median && median <= most, "{faulty}");
    }
    assert!(faulty["percent"].as_f64().unwrap() > 0.0, "{faulty}");
    for (options, reason) in [
        (["--rails=1", slow[1]], "with at least two --rails"),
        (["--rails=2", "--fault=delay=soon"], "one fault of packets"),
        (["--to=127.0.0.1:1", slow[1]], "cannot be used with"),
    ] {
        let output = bench(&options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}

#[test]
fn a_process_fills_another_which_compares_behind_the_last_notice() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("fill.json");
    let most = ["--bytes=1048576", "--runs=3"];
    let server = Server::start(directory.path(), &["fill"], &most);
    let place = server.place.clone();
    let small = ["--page=1024", "--pages=500", "--repeats=20", "--to", &place];
    let fill = |more: &[&str]| {
        let options = [&small[..], more].concat();
        machine(directory.path(), &["fill"], &options)
            .output()
            .unwrap()
    };
    let path = json.to_str().unwrap();
    let output = fill(&["--bytes=1048576", "--json", path]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["operations"], 20 * 500);
    assert_eq!(report["compared"], 3 * 500 * 1024);
    // More than the other end lets a run have.
    let output = fill(&["--bytes=2097152"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let reason = "--bytes is 2097152; it must be at most 1048576";
    assert!(!output.status.success() && said.contains(reason), "{said}");
    // Another run, after one that has failed.
    let output = fill(&["--bytes=1048576", "--seed=9"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let ended = server.ended();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains(reason), "{said}");
    // It has ended, so it is not there.
    let output = fill(&["--bytes=1048576"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(&place), "{said}");
}

#[test]
fn pages_go_from_memory_of_a_gpu_to_that_of_another_process() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("fill.json");
    let path = json.to_str().unwrap();
    let small = [
        "--bytes=1048576",
        "--page=777",
        "--pages=500",
        "--repeats=5",
        "--json",
        path,
    ];
    let one_process = bench(&[&small[..], &["--gpu=simt", "--peer-gpu=simt-dmabuf"]].concat());
    let server = Server::start(
        directory.path(),
        &["fill"],
        &["--gpu=simt-dmabuf", "--runs=1"],
    );
    let options = [&small[..], &["--gpu=simt", "--to", &server.place]].concat();
    let mut two_processes = machine(directory.path(), &["fill"], &options);
    for output in [one_process, two_processes.output().unwrap()] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
        assert_eq!(report["ran_on"], "softhca+simt (no speed of a NIC)");
        assert_eq!(report["compared"], 3 * 500 * 777);
        let memory = &report["memory"];
        assert_eq!(memory["here"]["registered"], Value::from(vec!["address"]));
        let there = &memory["peers"][0]["registered"];
        assert_eq!(there, &Value::from(vec!["dmabuf (PCIe)"]));
    }
    let ended = server.ended();
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn ends_of_two_processes_take_no_software_hcas_of_their_own() {
    for (options, reason) in [
        (
            &["--to", "127.0.0.1:1", "--device", "softhca"][..],
            "--device is softhca; it must be configured",
        ),
        (
            &["--serve", "127.0.0.1:0", "--to", "127.0.0.1:1"],
            "cannot be used with",
        ),
        (&["--serve", "nowhere"], "invalid"),
        (&["--insecure"], "--serve"),
        (&["--runs", "2"], "--serve"),
    ] {
        let output = bench(options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}

#[test]
fn an_option_out_of_its_range_is_refused_before_anything_is_made() {
    for (options, reason) in [
        (["--pages", "0"], "--pages is 0; it must be 1 to 1024"),
        (["--pages", "1025"], "--pages is 1025; it must be 1 to 1024"),
        (["--page", "0"], "--page is 0; it must be 1 to 67108864"),
        (
            ["--in-flight", "0"],
            "--in-flight is 0; it must be 1 to 65536",
        ),
        (["--rails", "0"], "it must be a whole number from 1 to 8"),
        (["--rails", "9"], "it must be a whole number from 1 to 8"),
        (["--poster", "gpu"], "invalid value 'gpu'"),
    ] {
        let output = bench(&options);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(reason), "{said}");
    }
}
