//! `wv demo` on other ports than RoCEv2 over IPv4.

use crate::Demo;

use std::process::Output;

use test_basics::ipv6;

/// Two ranks and two steps.
const STEPS: [&str; 6] = ["--ranks", "2", "--steps", "2", "--device", "sim"];

/// Two ranks and two steps with these variables, by a path of which each rank tells `words`.
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
        text.contains("partition key is 0x8002: expected one of the port's 2: 0xffff, 0x8001"),
        "{text}"
    );
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
