//! `wv demo` on other ports than RoCEv2 over IPv4.

use crate::Demo;

/// Two ranks and two steps with these variables, by a path of which each rank tells `words`.
fn steps(variables: &[(&str, &str)], words: &str) {
    let mut demo = Demo::new(&["--ranks", "2", "--steps", "2", "--device", "sim"]);
    for (name, value) in variables {
        demo = demo.set(name, value);
    }
    let output = demo.run();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{variables:?}: {told}");
    assert!(told.contains("every step on every rank equals"), "{told}");
    let errors = String::from_utf8(output.stderr).unwrap();
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
fn the_demo_runs_over_ipv6() {
    steps(&[("WARPVERBS_GID", "1")], "RoCEv2 fe80::");
}
