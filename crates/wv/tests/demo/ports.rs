//! `wv demo` on other ports than RoCEv2 over IPv4.

use crate::Demo;

/// Two ranks and two steps with these variables.
fn steps(variables: &[(&str, &str)]) {
    let mut demo = Demo::new(&["--ranks", "2", "--steps", "2", "--device", "sim"]);
    for (name, value) in variables {
        demo = demo.set(name, value);
    }
    let output = demo.run();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{variables:?}: {told}");
    assert!(told.contains("every step on every rank equals"), "{told}");
}

#[test]
fn the_demo_runs_on_infiniband_with_and_without_a_grh() {
    steps(&[("SOFTHCA_LINK", "ib")]);
    steps(&[("SOFTHCA_LINK", "ib"), ("WARPVERBS_GRH", "always")]);
}

#[test]
fn the_demo_runs_over_ipv6() {
    steps(&[("WARPVERBS_GID", "1")]);
}
