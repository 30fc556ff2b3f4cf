//! Linux Soft-RoCE in a virtual machine is the peer of an HCA on the frame carrier. It is another implementation of the protocol.
//! Traffic runs in both directions, with and without lost packets.
//!
//! The guest boots once for all cases. Guest and host run the same program (`peer.c`, on libibverbs alone, checks every byte), and
//! Debian's pingpongs. Between them is a wire of this test, which loses the chosen packets. Programs of others (tshark, scapy)
//! judge what the HCA captured: Soft-RoCE sets the identification field, which the ICRC covers.

// Programs of one file share it, so it stands beside them, where the compiler does not look for modules of this one.
#[path = "../captures/mod.rs"]
mod captures;
mod guest;
mod relay;

use captures::programs::{Place, build_peer, finish, free_tcp_port, preloaded};
use guest::{Forward, GUEST_IP, GUEST_PORT, Guest, Wiring};
use relay::{Relay, free_udp_address};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Output;
use std::time::Instant;

/// A case of `peer.c`.
struct Case {
    name: &'static str,
    mtu: u32,
    rounds: u32,
    /// softhca asks and Soft-RoCE answers; otherwise the other way round.
    hca_asks: bool,
    /// Lost of a thousand packets, to the guest and from it.
    loss: [u32; 2],
}

const CASES: [Case; 6] = [
    Case {
        name: "softhca asks",
        mtu: 1024,
        rounds: 4,
        hca_asks: true,
        loss: [0, 0],
    },
    Case {
        name: "Soft-RoCE asks",
        mtu: 4096,
        rounds: 4,
        hca_asks: false,
        loss: [0, 0],
    },
    Case {
        name: "softhca asks, requests are lost",
        mtu: 1024,
        rounds: 4,
        hca_asks: true,
        loss: [60, 0],
    },
    Case {
        name: "softhca asks, answers are lost",
        mtu: 1024,
        rounds: 4,
        hca_asks: true,
        loss: [0, 60],
    },
    Case {
        name: "Soft-RoCE asks, requests are lost",
        mtu: 1024,
        rounds: 4,
        hca_asks: false,
        loss: [0, 60],
    },
    Case {
        name: "Soft-RoCE asks, answers are lost",
        mtu: 1024,
        rounds: 4,
        hca_asks: false,
        loss: [60, 0],
    },
];

#[test]
fn soft_roce_and_softhca_exchange_every_operation_in_both_directions() {
    let skipped = |why: &str| println!("skipped: Soft-RoCE in a virtual machine: {why}");
    let place = Place::new();
    let peer = match build_peer(&place.0) {
        Ok(peer) => peer,
        Err(why) => return skipped(&why),
    };
    let boot = match Guest::prepare() {
        Ok(boot) => boot,
        Err(why) => return skipped(&why),
    };
    run_cases(&place, &peer, &boot);
}

fn run_cases(place: &Place, peer: &str, boot: &Path) {
    let start = Instant::now();
    let seed = fastrand::u64(..u64::MAX / 2);
    let (at_guest, at_hca) = (free_udp_address(), free_udp_address());
    let relay = Relay::new(at_guest, at_hca, seed);
    let tcp_port = free_tcp_port();
    let wiring = Wiring {
        frames: [at_guest, relay.for_guest],
        tcp: vec![Forward {
            host: (Ipv4Addr::LOCALHOST, tcp_port).into(),
            guest: (GUEST_IP, GUEST_PORT).into(),
        }],
    };
    let mut guest = Guest::boot(boot, &wiring);
    let ready = guest.hear("ready");
    let up = start.elapsed();
    let host = Host {
        place,
        carrier: format!("frames:{at_hca},{}", relay.for_hca),
    };
    for (number, case) in CASES.iter().enumerate() {
        relay.take_counts();
        relay.lose(case.loss);
        let [ours, theirs] = if case.hca_asks {
            ["active", "passive"]
        } else {
            ["passive", "active"]
        };
        let (mtu, rounds) = (case.mtu, case.rounds);
        guest.serve(&format!(
            "{peer} rxe0 1 {mtu} {rounds} {theirs} listen {GUEST_PORT}"
        ));
        let ours = format!("{peer} mlx5_0 3 {mtu} {rounds} {ours} connect 127.0.0.1 {tcp_port}");
        let output = host.run(&ours, number);
        let counts = relay.take_counts();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && said.starts_with("@ok"),
            "{}, seed {seed}: {said}{} {counts:?} guest: {}",
            case.name,
            String::from_utf8_lossy(&output.stderr),
            guest.tail()
        );
        assert_eq!(guest.finish(), 0, "{}, seed {seed}", case.name);
        for (way, (_, lost)) in counts.into_iter().enumerate() {
            assert_eq!(
                lost > 0,
                case.loss[way] > 0,
                "{}, seed {seed}: {counts:?}",
                case.name
            );
        }
        println!("{}: {} {counts:?}", case.name, said.trim());
    }
    relay.lose([0, 0]);
    for (number, service) in ["rc", "uc", "ud"].into_iter().enumerate() {
        let tool = format!("ibv_{service}_pingpong -n 100 -c");
        guest.serve(&format!("{tool} -d rxe0 -g 1 -p {GUEST_PORT}"));
        let line = format!("{tool} -d mlx5_0 -g 3 -p {tcp_port} 127.0.0.1");
        let output = host.run(&line, CASES.len() + number);
        assert!(
            output.status.success(),
            "{tool}: {output:?} {}",
            guest.tail()
        );
        assert_eq!(guest.finish(), 0, "{tool}: {}", guest.tail());
    }
    let all = start.elapsed();
    drop(guest);
    judge_captures(place);
    println!(
        "Soft-RoCE in a virtual machine: up after {:.1} s (kernel, uptime: {ready}), {} cases and three pingpongs after {:.1} s, captures judged after {:.1} s",
        up.as_secs_f64(),
        CASES.len(),
        all.as_secs_f64(),
        start.elapsed().as_secs_f64()
    );
}

/// tshark and scapy on what the HCA saw in the cases without loss, which have every operation both ways.
fn judge_captures(place: &Place) {
    if !captures::judges_of_a_part_are_there("captures of what Soft-RoCE sends") {
        return;
    }
    // pcapng files one after the other are a pcapng file.
    let all = place.0.join("all.pcapng");
    let whole: Vec<u8> = [0, 1]
        .into_iter()
        .flat_map(|number| fs::read(place.capture(number)).unwrap())
        .collect();
    fs::write(&all, whole).unwrap();
    let count = captures::judge(&all);
    let operations = captures::operations(&all);
    assert_eq!(operations.values().sum::<usize>(), count);
    for name in [
        "RC Send First",
        "RC Send Middle",
        "RC Send Last",
        "RC Send Last Immediate",
        "RC Send Only",
        "RC Send Only Immediate",
        "RC RDMA Write First",
        "RC RDMA Write Middle",
        "RC RDMA Write Last",
        "RC RDMA Write Last Immediate",
        "RC RDMA Write Only",
        "RC RDMA Write Only Immediate",
        "RC RDMA Read Request",
        "RC RDMA Read Response First",
        "RC RDMA Read Response Middle",
        "RC RDMA Read Response Last",
        "RC RDMA Read Response Only",
        "RC Acknowledge",
        "RC Atomic Acknowledge",
        "RC Compare Swap",
        "RC Fetch Add",
    ] {
        assert!(operations.contains_key(name), "no {name} in {operations:?}");
    }
    println!("tshark and scapy agree on {count} packets: {operations:?}");
}

/// The programs of the host's side.
struct Host<'a> {
    place: &'a Place,
    carrier: String,
}

impl Host<'_> {
    /// Runs a command line on softhca, captured as number `number`, and waits for its end.
    fn run(&self, line: &str, number: usize) -> Output {
        let child = preloaded(line)
            .env("SOFTHCA_IP", "10.0.0.1")
            .env("SOFTHCA_CARRIER", &self.carrier)
            .env("SOFTHCA_PCAP", self.place.capture(number))
            .spawn()
            .unwrap();
        finish(child)
    }
}
