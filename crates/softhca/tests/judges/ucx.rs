//! UCX as it comes, between two processes: no variable of its own is set, so it chooses device, transport and queues by itself.
//! Each of its kinds of transfer, where it polls and where it sleeps for completions.

use std::fs;

use super::ipc::apart;
use softhca_rig::tools::pair::{self, Place, Places};
use softhca_rig::tools::programs::{LIMIT, Scratch, is_installed};

const COMPLAINTS: &[&str] = &["ERROR", "WARN", "softhca:", "Assertion"];

/// The least that a run with the HCA writes into a capture: far more than the head of the file.
const TRAFFIC_BYTES: u64 = 10_000;

fn check(kind: &str, options: &str) {
    let what = format!("ucx_perftest -t {kind} {options}");
    if !is_installed("ucx_perftest", "ucx-utils", &what) {
        return;
    }
    let scratch = Scratch::new();
    let prefix = apart(&what);
    let place = |name: &str| Place {
        prefix: prefix.clone(),
        environment: vec![("SOFTHCA_PCAP", capture(&scratch, name))],
        ..Place::default()
    };
    let places = Places {
        server: place("server"),
        client: place("client"),
        ..Places::here()
    };
    let of_client = ["-t", kind, "-n", "500", "-w", "50"];
    let of_client = of_client
        .into_iter()
        .chain(options.split_whitespace())
        .collect();
    let options = [Vec::new(), of_client];
    let ended = pair::run_with(&scratch, &places, "ucx_perftest", &options, LIMIT);
    ended
        .check(COMPLAINTS)
        .unwrap_or_else(|report| panic!("{report}"));
    let results = &ended.client.printed;
    assert!(results.contains("Final:"), "{results}");
    if !prefix.is_empty() {
        for name in ["server", "client"] {
            let bytes = fs::metadata(capture(&scratch, name)).map_or(0, |file| file.len());
            assert!(
                bytes > TRAFFIC_BYTES,
                "{what}: the {name} sent and received {bytes} bytes through its HCA:\n{}",
                ended.client.report()
            );
        }
    }
}

fn capture(scratch: &Scratch, name: &str) -> String {
    let path = scratch.path().join(format!("{name}.pcap"));
    path.display().to_string()
}

/// By messages that go at once, and by some that are agreed on first.
fn check_sizes(kind: &str) {
    for size in ["-s 8", "-s 4096", "-s 300000"] {
        check(kind, size);
    }
}

#[test]
fn ucx_sends_by_tags() {
    check_sizes("tag_lat");
    check("tag_bw", "-s 4096");
}

#[test]
fn ucx_sends_streams() {
    check_sizes("stream_lat");
    check("stream_bw", "-s 4096");
}

#[test]
fn ucx_sends_active_messages() {
    check_sizes("ucp_am_lat");
    check("ucp_am_bw", "-s 4096");
}

#[test]
fn ucx_puts() {
    check_sizes("ucp_put_lat");
    check("ucp_put_bw", "-s 4096");
}

#[test]
fn ucx_gets() {
    check_sizes("ucp_get");
}

#[test]
fn ucx_does_atomics() {
    for kind in ["ucp_add", "ucp_fadd", "ucp_swap", "ucp_cswap"] {
        check(kind, "-s 8");
        check(kind, "-s 4");
    }
}

/// A thread that sleeps arms both of its completion queues, which share a UAR page, one right after the other.
#[test]
fn ucx_wakes_up_for_completions() {
    for kind in ["tag_lat", "stream_lat", "stream_bw"] {
        check(kind, "-s 8 -E sleep");
        check(kind, "-s 4096 -E sleep");
    }
}
