//! `wv bench fill` over libfabric: over softofi, and over a provider of the machine's libfabric that needs no device. And what is refused.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A run whose posts are refused now and then.
const DIRECT: &str = "profile=efa-direct,again=100,seed=7";

/// `wv bench fill` on the devices of the configuration, with these variables.
fn fill(variables: &[(&str, &str)], options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wv"))
        .args(["bench", "fill", "--device", "configured"])
        .args(options)
        .env_remove("WARPVERBS_SOFTHCA")
        .env_remove("WARPVERBS_DEVICE")
        .env_remove(softofi::LIBRARY_VARIABLE)
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn soft_library() -> String {
    let path = softofi::library().unwrap();
    path.to_str().unwrap().to_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn report(output: &Output, json: &Path) -> Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

/// Fills 1,000 pages of 64 KiB 20 times, and returns the report and the table.
#[track_caller]
fn pages(variables: &[(&str, &str)]) -> (Value, String) {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("fill.json");
    let options = [
        "--bytes=67108864",
        "--pages=1000",
        "--repeats=20",
        "--json",
        json.to_str().unwrap(),
    ];
    let output = fill(variables, &options);
    let report = report(&output, &json);
    assert_eq!(report["operations"], 20 * 1000);
    assert_eq!(report["compared"], 3 * 1000 * 65_536);
    (report, String::from_utf8(output.stdout).unwrap())
}

#[test]
fn pages_are_filled_over_softofi_while_posts_are_refused() {
    let library = soft_library();
    let (report, text) = pages(&[
        ("WARPVERBS_PROVIDER", "ofi:efa"),
        (softofi::LIBRARY_VARIABLE, &*library),
        (softofi::VARIABLE, DIRECT),
    ]);
    let refusals = report["refusals"][0].as_u64().unwrap();
    assert!(refusals > 0, "{report}");
    let told = format!(", {refusals} operations tried again");
    let lines = text.lines().find(|line| line.contains(&told));
    let line = lines.unwrap_or_else(|| panic!("{text}"));
    let names = ["by ofi:efa (fabric efa-direct, libfabric ", &*library];
    assert!(names.iter().all(|it| line.contains(it)), "{text}");
}

#[test]
fn pages_are_filled_over_tcp_of_the_installed_libfabric() {
    let by_tcp = [
        ("WARPVERBS_PROVIDER", "ofi:tcp;ofi_rxm"),
        ("WARPVERBS_DEVICE", "lo"),
    ];
    let small = ["--bytes=65536", "--pages=1", "--repeats=3"];
    let said = said(&fill(&by_tcp, &small));
    if said.contains("WARPVERBS_LIBFABRIC names another file") || said.contains("has no provider") {
        println!("left out: {said}");
        return;
    }
    let (report, _) = pages(&by_tcp);
    let device = report["devices"][0].as_str().unwrap();
    assert!(
        device.starts_with("lo by ofi:tcp;ofi_rxm (fabric "),
        "{device}"
    );
}

#[test]
fn a_provider_that_is_not_named_drives_a_nic_or_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("fill.json");
    let small = ["--bytes=65536", "--pages=1", "--repeats=3", "--json"];
    let options = [&small[..], &[json.to_str().unwrap()]].concat();
    let library = soft_library();
    // softofi offers both fabrics of EFA, and the other one first.
    let over_softofi = [
        ("WARPVERBS_PROVIDER", "ofi"),
        (softofi::LIBRARY_VARIABLE, &*library),
        (softofi::VARIABLE, "profile=both,seed=7"),
    ];
    let report = report(&fill(&over_softofi, &options), &json);
    let device = report["devices"][0].as_str().unwrap();
    assert!(
        device.contains("by ofi:efa (fabric efa-direct, "),
        "{device}"
    );
    // The machines of tests have no NIC that libfabric drives.
    let output = fill(&over_softofi[..1], &options);
    let said = said(&output);
    if said.contains("WARPVERBS_LIBFABRIC names another file") {
        println!("left out: {said}");
        return;
    }
    assert!(
        !output.status.success() && said.contains("drives no NIC here"),
        "{said}"
    );
}

#[test]
fn a_provider_and_a_library_that_are_not_there_are_refused_by_name() {
    let library = soft_library();
    for (provider, library, reasons) in [
        (
            "ofi:nosuch",
            &*library,
            ["has no provider 'nosuch' here; it has ", "efa"],
        ),
        (
            "ofi:efa",
            "/nowhere",
            ["/nowhere", "WARPVERBS_LIBFABRIC names another file"],
        ),
    ] {
        let output = fill(
            &[
                ("WARPVERBS_PROVIDER", provider),
                (softofi::LIBRARY_VARIABLE, library),
                (softofi::VARIABLE, DIRECT),
            ],
            &[],
        );
        let said = said(&output);
        assert!(!output.status.success(), "{said}");
        assert!(reasons.iter().all(|it| said.contains(it)), "{said}");
    }
}
