//! `ibv_{rc,uc,ud,srq,xsrq}_pingpong` of Debian's ibverbs-utils, between two processes.

use super::namespace::Namespaces;
use super::pair::{self, Places};
use super::programs::{LIMIT, Scratch, is_installed};

/// What these tools print when data or completions are wrong, whatever status they end with.
const COMPLAINTS: &[&str] = &["invalid data", "Failed", "Couldn't", "CQ event for unknown"];

/// Runs a tool once for each set of options.
fn check(places: &Places, tool: &str, runs: &[&str]) {
    if !is_installed(tool, "ibverbs-utils", tool) {
        return;
    }
    let scratch = Scratch::new();
    let mut failures = String::new();
    for run in runs {
        let options: Vec<_> = ["-d", "mlx5_0", "-g", "3"]
            .into_iter()
            .chain(run.split_whitespace())
            .collect();
        let ended = pair::run(&scratch, places, tool, &options, LIMIT);
        println!("{tool} {run}: {:.2} s", ended.took().as_secs_f64());
        if let Err(report) = ended.check(COMPLAINTS) {
            failures += &report;
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

#[test]
fn ibv_rc_pingpong_ends_well() {
    let runs = [
        "-n 500",
        "-c",
        "-e -c",
        "-N -c",
        "-t -c",
        "-N -e -c",
        "-m 4096 -s 1000000 -n 50 -c",
        "-m 256 -s 5000 -n 100 -c -e",
    ];
    check(&Places::here(), "ibv_rc_pingpong", &runs);
}

#[test]
fn ibv_uc_pingpong_ends_well() {
    let runs = [
        "-n 500",
        "-c",
        "-e -c",
        "-m 4096 -s 100000 -n 100 -c",
        "-m 512 -s 5000 -n 100 -e",
    ];
    check(&Places::here(), "ibv_uc_pingpong", &runs);
}

#[test]
fn ibv_ud_pingpong_ends_well() {
    check(
        &Places::here(),
        "ibv_ud_pingpong",
        &["-n 500", "-c", "-e -c", "-s 1 -n 100", "-s 4096 -c -n 100"],
    );
}

#[test]
fn ibv_srq_pingpong_ends_well() {
    check(
        &Places::here(),
        "ibv_srq_pingpong",
        &[
            "-n 100",
            "-c -n 100",
            "-e -c -n 100",
            "-q 1 -n 200",
            "-q 40 -n 20 -c",
        ],
    );
}

#[test]
fn ibv_xsrq_pingpong_ends_well() {
    check(
        &Places::here(),
        "ibv_xsrq_pingpong",
        &["", "-n 100", "-e -n 100", "-s 100000 -n 20"],
    );
}

#[test]
fn pingpongs_end_well_between_two_network_namespaces() {
    let Some(namespaces) = Namespaces::new("pingpongs between network namespaces") else {
        return;
    };
    for tool in ["rc", "uc", "ud", "srq", "xsrq"] {
        let options = if tool == "xsrq" {
            "-e -n 50"
        } else {
            "-e -c -n 100"
        };
        check(
            &namespaces.places(),
            &format!("ibv_{tool}_pingpong"),
            &[options],
        );
    }
}
