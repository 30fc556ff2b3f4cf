//! `ibv_{rc,uc,ud,srq,xsrq}_pingpong` of Debian's ibverbs-utils, between two processes.

use super::namespace::Namespaces;
use softhca_rig::tools::pair::{self, Places};
use softhca_rig::tools::programs::{LIMIT, Running, Scratch, is_installed};

/// What these tools print when data or completions are wrong, whatever status they end with.
const COMPLAINTS: &[&str] = &["invalid data", "Failed", "Couldn't", "CQ event for unknown"];

/// The entries of the GID table: RoCE v1 and v2 by the link-local GID, v1 and v2 by that of the IP address.
const INDICES: [&str; 4] = ["0", "1", "2", "3"];

/// Runs a tool once for each set of options; `indices` are those of the server and of the client.
fn check_by(places: &Places, tool: &str, indices: [&str; 2], runs: &[&str]) {
    if !is_installed(tool, "ibverbs-utils", tool) {
        return;
    }
    let scratch = Scratch::new();
    let mut failures = String::new();
    for run in runs {
        let options = indices.map(|index| {
            let front = ["-d", "mlx5_0", "-g", index];
            front.into_iter().chain(run.split_whitespace()).collect()
        });
        let ended = pair::run_with(&scratch, places, tool, &options, LIMIT);
        println!(
            "{tool} -g {} and -g {} {run}: {:.2} s",
            indices[0],
            indices[1],
            ended.took().as_secs_f64()
        );
        if let Err(report) = ended.check(COMPLAINTS) {
            failures += &report;
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

fn check(places: &Places, tool: &str, runs: &[&str]) {
    check_by(places, tool, ["3", "3"], runs);
}

/// What each tool does by every entry, and how it looks at the data: `ibv_xsrq_pingpong` cannot.
const BRIEF: [(&str, &str); 5] = [
    ("ibv_rc_pingpong", "-c -n 100"),
    ("ibv_uc_pingpong", "-c -n 100"),
    ("ibv_ud_pingpong", "-c -n 100"),
    ("ibv_srq_pingpong", "-c -n 50"),
    ("ibv_xsrq_pingpong", "-n 50"),
];

#[test]
fn every_pingpong_ends_well_by_every_gid() {
    for (tool, run) in BRIEF {
        for index in INDICES {
            check_by(&Places::here(), tool, [index, index], &[run]);
        }
    }
}

#[test]
fn pingpongs_end_well_between_roce_v1_and_v2_of_one_gid() {
    for (tool, run) in BRIEF {
        for indices in [["0", "1"], ["3", "2"]] {
            check_by(&Places::here(), tool, indices, &[run]);
        }
    }
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

/// The link takes packets of 1500 bytes: the tools ask for more of their own accord.
#[test]
fn packets_above_the_mtu_of_the_link_arrive() {
    let Some(namespaces) = Namespaces::new("packets above the MTU of the link") else {
        return;
    };
    for (tool, options) in [
        ("ibv_rc_pingpong", "-m 4096 -s 100000 -n 50 -c"),
        ("ibv_uc_pingpong", "-m 4096 -s 4000 -n 50 -c"),
        // No more than the MTU of the port: the tool refuses it.
        ("ibv_ud_pingpong", "-s 1000 -n 50 -c"),
    ] {
        check(&namespaces.places(), tool, &[options]);
    }
}

/// Frames have no fragments: the QPs have a smaller path MTU then, and one line says so.
#[test]
fn frames_above_the_mtu_of_the_link_are_made_smaller() {
    let what = "frames above the MTU of the link";
    if !is_installed("ibv_rc_pingpong", "ibverbs-utils", what) {
        return;
    }
    let Some(namespaces) = Namespaces::new(what) else {
        return;
    };
    let mut places = namespaces.places();
    for place in [&mut places.server, &mut places.client] {
        let carrier = ("SOFTHCA_CARRIER", "packet:veth0".to_owned());
        place.environment.push(carrier);
    }
    let scratch = Scratch::new();
    let options: Vec<_> = "-d mlx5_0 -g 3 -m 4096 -s 100000 -n 50 -c"
        .split_whitespace()
        .collect();
    let ended = pair::run(&scratch, &places, "ibv_rc_pingpong", &options, LIMIT);
    ended
        .check(COMPLAINTS)
        .unwrap_or_else(|report| panic!("{report}"));
    let line = "softhca: a path MTU of 4096 bytes becomes 1024: interface veth0 takes packets of 1500 bytes\n";
    for end in [&ended.server, &ended.client] {
        assert_eq!(end.printed.matches(line).count(), 1, "{}", end.report());
    }
}

/// As Linux has it of a port over an Ethernet interface.
#[test]
fn a_port_has_the_name_and_the_mtu_of_its_interface() {
    let what = "the MTU of an interface";
    let Some(namespaces) = Namespaces::new(what) else {
        return;
    };
    if !is_installed("ibv_devinfo", "ibverbs-utils", what) {
        return;
    }
    let scratch = Scratch::new();
    let place = namespaces.places().server;
    let of = |program: &str, arguments: &[&str]| {
        let mut command = scratch.preloaded(&place.prefix, program);
        command
            .args(arguments)
            .env("SOFTHCA_IP", place.ip.unwrap().to_string());
        let ended = Running::start(command, &scratch, "printed").end_within(LIMIT);
        assert!(ended.is_success(), "{}", ended.report());
        ended.printed
    };
    let printed = of("ibv_devinfo", &[]);
    for words in ["active_mtu:", "1024 (3)", "max_mtu:", "4096 (5)"] {
        assert!(printed.contains(words), "{printed}");
    }
    let device = "/sys/class/infiniband/mlx5_0";
    let names = of("cat", &[&format!("{device}/ports/1/gid_attrs/ndevs/3")]);
    assert_eq!(names, "veth0\n");
    assert_eq!(of("ls", &[&format!("{device}/device/net")]), "veth0\n");
}
