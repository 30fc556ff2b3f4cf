//! `wv demo` on other ports than RoCEv2 over IPv4.

use crate::{Demo, arrays};

use std::collections::BTreeMap;
use std::process::{Command, Output};

use test_basics::ipv6;

/// Two ranks and two steps.
const STEPS: [&str; 6] = ["--ranks", "2", "--steps", "2", "--device", "sim"];

/// Two ranks and two steps with these variables, by a path that each rank reports as `words`.
fn steps(variables: &[(&str, &str)], words: &str) {
    let mut demo = Demo::new(&STEPS);
    for (name, value) in variables {
        demo = demo.set(name, value);
    }
    check(&demo.run(), variables, words);
}

fn check(output: &Output, variables: &[(&str, &str)], words: &str) {
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variables:?}: {told}{errors}");
    assert!(told.contains("every step on every rank equals"), "{told}");
    let paths = errors
        .lines()
        .filter(|line| line.starts_with("rank ") && line.contains(words));
    assert_eq!(paths.count(), 2, "{words}: {errors}");
}

#[test]
fn the_demo_runs_on_infiniband_with_and_without_a_grh() {
    steps(&[("SOFTHCA_LINK", "ib")], "InfiniBand LID 0x");
    steps(
        &[("SOFTHCA_LINK", "ib"), ("WARPVERBS_GRH", "always")],
        "InfiniBand LID 0x",
    );
}

#[test]
fn the_demo_runs_in_a_partition_of_an_infiniband_port() {
    let port = [("SOFTHCA_LINK", "ib"), ("SOFTHCA_PKEYS", "0xffff,0x8001")];
    let within = |pkey| [port[0], port[1], ("WARPVERBS_PKEY", pkey)];
    steps(&within("0x8001"), "InfiniBand LID 0x");
    let demo = Demo::new(&STEPS);
    let mut refused = demo.set("WARPVERBS_PKEY", "0x8002");
    for (name, value) in port {
        refused = refused.set(name, value);
    }
    let (status, text) = refused.refused();
    assert_eq!(status, 1, "{text}");
    assert!(
        text.contains("partition key is 0x8002; it must be one of the port's 2: 0xffff, 0x8001"),
        "{text}"
    );
}

/// Returns what two ranks have written of two steps with these variables.
fn written(variables: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = Demo::new(&STEPS);
    demo.command.arg("--dump").arg(directory.path());
    for (name, value) in variables {
        demo = demo.set(name, value);
    }
    let output = demo.run();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{variables:?}: {errors}");
    arrays(directory.path())
}

#[test]
fn every_kind_of_port_brings_the_same_bits() {
    let on_ethernet = written(&[]);
    // Inputs, what arrived and what came back, of two ranks and two steps.
    assert!(on_ethernet.len() >= 2 * 2 * 3, "{:?}", on_ethernet.keys());
    for variables in [
        &[("SOFTHCA_LINK", "ib")][..],
        &[("SOFTHCA_LINK", "ib"), ("WARPVERBS_GRH", "always")],
        &[("WARPVERBS_GID", "1")],
        &[("SOFTHCA_PROFILE", "cx7-lag")],
    ] {
        assert!(written(variables) == on_ethernet, "{variables:?}");
    }
}

/// Returns a demo of two ranks on this device, below `wv sim` with HCAs of two ports and these options.
fn on_two_ports(options: &[&str], arguments: &[&str]) -> Demo {
    let mut sim = Command::new(env!("CARGO_BIN_EXE_wv"));
    sim.args(["sim", "--ports", "2"]).args(options).arg("--");
    let demo = Demo::new(&[&["--ranks", "2", "--steps", "1"], arguments].concat());
    demo.within(&sim)
}

#[test]
fn the_demo_sends_by_the_port_that_it_names_or_by_one_that_is_up() {
    for (device, options, port) in [
        ("mlx5_0:2", &[][..], 2),
        ("mlx5_0:1", &["--fault", "port-down=2"], 1),
        ("mlx5_0:2", &["--link", "ib", "--fault", "port-down"], 2),
        ("auto", &["--fault", "port-down"], 2),
    ] {
        let value = on_two_ports(options, &["--device", device, "--json"]).verified();
        for rank in value["per_rank"].as_array().unwrap() {
            let count = |name: &str| rank["counters"][name].as_u64().unwrap();
            assert!(count("tx_wqes") > 0, "{rank}");
            assert_eq!(count("port_wqes"), count("tx_wqes"), "{device}: {rank}");
        }
        let output = on_two_ports(options, &["--device", device]).run();
        let errors = String::from_utf8_lossy(&output.stderr);
        let told = format!(" -> mlx5_0 port {port}");
        assert_eq!(errors.matches(&told).count(), 2, "{device}: {errors}");
    }
}

#[test]
fn auto_says_that_simulated_ports_are_down() {
    let both_down = ["--fault", "port-down,port-down=2"];
    // Whatever it does then: no port is left.
    let output = on_two_ports(&both_down, &["--device", "auto"]).run();
    let errors = String::from_utf8_lossy(&output.stderr);
    for port in [1, 2] {
        let told = format!(
            "wv demo: passes over mlx5_0 port {port}: the port is down, not active: is the cable of port {port} in, and on Ethernet its \
             interface up (ip link)?\n"
        );
        assert_eq!(errors.matches(&told).count(), 1, "{errors}");
    }
}

#[test]
fn a_third_port_of_two_is_refused_with_both_limits() {
    let (status, text) = on_two_ports(&[], &["--device", "mlx5_0:3"]).refused();
    assert_eq!(status, 1, "{text}");
    let told = "port is mlx5_0:3; it must be mlx5_0:1 to mlx5_0:2";
    assert!(text.contains(told), "{text}");
}

#[test]
fn the_demo_sends_from_the_lid_that_path_bits_name() {
    let port = [("SOFTHCA_LINK", "ib"), ("SOFTHCA_LMC", "3")];
    let demo = |bits: u16| {
        let demo = Demo::new(&STEPS).set("WARPVERBS_PATH_BITS", &bits.to_string());
        port.iter()
            .fold(demo, |demo, (name, value)| demo.set(name, value))
    };
    for bits in [0, 7] {
        let output = demo(bits).run();
        check(&output, &port, "InfiniBand LID 0x");
        let errors = String::from_utf8_lossy(&output.stderr);
        let lids = errors.split("InfiniBand LID 0x").skip(1).map(|rest| {
            let digits = rest.split(|it: char| !it.is_ascii_hexdigit()).next();
            u16::from_str_radix(digits.unwrap(), 16).unwrap()
        });
        for lid in lids {
            assert_eq!(lid & 7, bits, "{errors}");
        }
    }
    let (status, text) = demo(8).refused();
    assert_eq!(status, 1, "{text}");
    let told = "path bits is 8; it must be 0 to 7, as the port's LMC is 3";
    assert!(text.contains(told), "{text}");
}

/// Returns what four ranks have written of a step below `wv sim` with these options.
fn written_in_sim(options: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let mut demo = Demo::new(&["--ranks", "4", "--steps", "1", "--tokens", "32"]);
    demo.command.arg("--dump").arg(directory.path());
    let mut sim = Command::new(env!("CARGO_BIN_EXE_wv"));
    sim.arg("sim").args(options).arg("--");
    let output = demo.within(&sim).run();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{options:?}: {told}{errors}");
    let by_ib = errors.matches("InfiniBand LID 0x").count();
    assert_eq!(by_ib == 0, options.is_empty(), "{options:?}: {errors}");
    arrays(directory.path())
}

#[test]
fn wv_sim_with_a_link_gives_four_ranks_the_same_bits_as_without() {
    let on_ethernet = written_in_sim(&[]);
    assert!(on_ethernet.len() >= 4 * 3, "{:?}", on_ethernet.keys());
    for options in [
        &["--link", "ib"][..],
        &["--link", "ib", "--pkeys", "0x8001,0xffff"],
        &["--link", "ib", "--lmc", "3"],
    ] {
        assert!(written_in_sim(options) == on_ethernet, "{options:?}");
    }
}

/// WQEs of each rank: all of them, and those that have left by either port of a bond.
fn wqes_by_port(arguments: &[&str], profile: &str) -> Vec<[u64; 3]> {
    let mut arguments = arguments.to_vec();
    arguments.push("--json");
    let demo = Demo::new(&arguments).set("SOFTHCA_PROFILE", profile);
    let value = demo.verified();
    let ranks = value["per_rank"].as_array().unwrap().iter();
    let count = |rank: &serde_json::Value, name: &str| rank["counters"][name].as_u64().unwrap();
    let counts = ranks
        .map(|rank| ["tx_wqes", "lag_port1_wqes", "lag_port2_wqes"].map(|name| count(rank, name)));
    counts.collect()
}

#[test]
fn on_a_bond_both_ports_carry_traffic_of_every_rank() {
    let steps = |profile| wqes_by_port(&STEPS, profile);
    for [all, first, second] in steps("cx7-lag") {
        assert_eq!(first + second, all, "each QP names a port");
        assert!(
            first > 0 && second > 0,
            "{first} by port 1, {second} by port 2"
        );
    }
    for [all, first, second] in steps("cx7").into_iter().chain(steps("cx7-lag-hash")) {
        assert!(all > 0);
        assert_eq!([first, second], [0, 0], "no QP names a port");
    }
    // The table of a person has the rows where they say something.
    let rows = |profile| {
        let output = Demo::new(&STEPS).set("SOFTHCA_PROFILE", profile).run();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{told}");
        told.matches("WQEs by port").count()
    };
    assert_eq!([rows("cx7-lag"), rows("cx7")], [2, 0]);
}

#[test]
fn the_demo_runs_over_ipv6() {
    steps(&[("WARPVERBS_GID", "1")], "RoCEv2 fe80::");
}

#[test]
fn the_demo_runs_over_sockets_of_ipv6() {
    let Some(network) = ipv6::network("the demo over sockets of IPv6") else {
        return;
    };
    for gid in ["4", ipv6::SUBNET] {
        let demo = Demo::new(&STEPS)
            .set("SOFTHCA_IPV6", ipv6::SUBNET)
            .set("WARPVERBS_GID", gid)
            .within(&network);
        check(&demo.run(), &[("WARPVERBS_GID", gid)], "RoCEv2 fd00:5::");
    }
}
