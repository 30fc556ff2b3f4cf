use super::*;
use crate::envelope::{Destination, Envelope, Source};
use crate::wire::carrier::PacketSink;
use crate::wire::icrc::Flow;
use crate::wire::packet::{icrc_matches, seal};
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

const MS: u64 = 1_000_000;
const PEER: Source = source(2);
const OTHER: Source = source(3);

const fn source(last: u8) -> Source {
    Source {
        address: SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, last), 4791),
        envelope: Envelope::V2_IPV4,
        fragment_fields: Flow::UNFRAGMENTED,
        path_bits: 0,
    }
}

fn layer(faults: &[PacketFault]) -> FaultLayer {
    FaultLayer::new(7, faults, 0)
}

fn always(what: Mishap) -> PacketFault {
    PacketFault::new(what, When::ALWAYS)
}

/// Lets packets 0, 1, .. in, one each microsecond. Returns the packets that passed during that time, and those that passed later.
fn run(layer: &mut FaultLayer, packets: u16) -> (Vec<u16>, Vec<u16>) {
    let mut seen = Vec::new();
    let number = |packet: &[u8]| u16::from_be_bytes([packet[0], packet[1]]);
    for packet in 0..packets {
        let now_ns = u64::from(packet) * 1000;
        let mut bytes = [0xee; 32];
        bytes[..2].copy_from_slice(&packet.to_be_bytes());
        layer.receive(now_ns, PEER, &bytes, |_, packet| seen.push(number(packet)));
        layer.release(now_ns, Direction::In, |_, packet| {
            seen.push(number(packet));
            true
        });
    }
    let mut late = Vec::new();
    while let Some(deadline_ns) = layer.deadline_ns() {
        layer.release(deadline_ns, Direction::In, |_, packet| {
            late.push(number(packet));
            true
        });
    }
    (seen, late)
}

#[test]
fn without_faults_everything_passes_in_order() {
    let (seen, late) = run(&mut layer(&[]), 50);
    assert_eq!(seen, (0..50).collect::<Vec<_>>());
    assert_eq!(late, [0; 0]);
}

#[test]
fn a_fault_loses_its_share_of_packets_and_the_same_ones_each_time() {
    let fault = PacketFault::new(Mishap::Drop, When::PerMillion(100_000));
    let mut one = layer(&[fault]);
    let (seen, _) = run(&mut one, 10_000);
    assert!((8800..9200).contains(&seen.len()), "{}", seen.len());
    assert_eq!(one.counts().dropped, 10_000 - seen.len() as u64);
    assert_eq!(run(&mut layer(&[fault]), 10_000).0, seen);
    let mut other_seed = FaultLayer::new(8, &[fault], 0);
    assert_ne!(run(&mut other_seed, 10_000).0, seen);
}

#[test]
fn the_nth_packet_alone_is_met() {
    let fault = PacketFault::new(Mishap::Drop, When::Nth(3));
    let (seen, _) = run(&mut layer(&[fault]), 6);
    assert_eq!(seen, [0, 1, 3, 4, 5]);
}

#[test]
fn duplicates_follow_their_originals() {
    let (seen, late) = run(&mut layer(&[always(Mishap::Duplicate)]), 3);
    assert_eq!(seen, [0, 0, 1, 1, 2, 2]);
    assert_eq!(late, [0; 0]);
}

#[test]
fn a_displaced_packet_is_overtaken_by_a_few_and_not_lost() {
    let fault = PacketFault::new(Mishap::Reorder, When::PerMillion(50_000));
    let mut layer = layer(&[fault]);
    let (seen, late) = run(&mut layer, 1000);
    let all = [seen, late].concat();
    let mut sorted = all.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    assert_ne!(all, sorted);
    let reordered = layer.counts().reordered;
    assert!((20..100).contains(&reordered), "{reordered}");
    for (place, packet) in (0i32..).zip(&all) {
        let moved = place - i32::from(*packet);
        // The distance may be larger because other packets are displaced at the same time.
        assert!(moved.abs() <= 3 * 4, "packet {packet} came at {place}");
    }
}

#[test]
fn a_displaced_packet_that_none_overtakes_goes_on_after_a_while() {
    let mut layer = layer(&[always(Mishap::Reorder)]);
    assert_eq!(layer.judge(5, Direction::In, PEER, &[1; 20]), Fate::Gone);
    assert_eq!(layer.deadline_ns(), Some(5 + REORDER_PATIENCE_NS));
    let mut out = 0;
    layer.release(4 + REORDER_PATIENCE_NS, Direction::In, |_, _| {
        out += 1;
        true
    });
    assert_eq!(out, 0);
    layer.release(5 + REORDER_PATIENCE_NS, Direction::In, |_, _| {
        out += 1;
        true
    });
    assert_eq!(out, 1);
    assert_eq!(layer.deadline_ns(), None);
}

#[test]
fn late_packets_come_within_their_time_and_not_before() {
    let (from, to) = (Duration::from_millis(2), Duration::from_millis(5));
    let mut layer = layer(&[always(Mishap::Delay(from, to))]);
    layer.judge(MS, Direction::Out, PEER, &[9; 20]);
    let due_ns = layer.deadline_ns().unwrap();
    assert!((3 * MS..=6 * MS).contains(&due_ns), "{due_ns}");
    let mut seen = Vec::new();
    layer.release(due_ns - 1, Direction::Out, |_, _| unreachable!("too early"));
    layer.release(due_ns, Direction::Out, |peer, packet| {
        seen.push((peer, packet.to_vec()));
        true
    });
    assert_eq!(seen, [(PEER, vec![9; 20])]);
}

#[test]
fn what_finds_no_room_is_offered_again() {
    let mut layer = layer(&[always(Mishap::Delay(
        Duration::from_nanos(10),
        Duration::from_nanos(10),
    ))]);
    for packet in 0..3 {
        layer.judge(0, Direction::Out, PEER, &[packet; 20]);
    }
    let mut seen = Vec::new();
    for room in 1..=3 {
        layer.release(10, Direction::Out, |_, packet| {
            let fits = seen.len() < room;
            if fits {
                seen.push(packet[0]);
            }
            fits
        });
    }
    assert_eq!(seen, [0, 1, 2]);
}

#[test]
fn a_fault_keeps_to_its_direction_its_peer_and_its_time() {
    let only = |fault: PacketFault| layer(&[fault]);
    let drop = always(Mishap::Drop);
    let mut out = only(PacketFault {
        direction: Some(Direction::Out),
        ..drop
    });
    assert_eq!(out.judge(0, Direction::In, PEER, &[0; 20]), Fate::Pass);
    assert_eq!(out.judge(0, Direction::Out, PEER, &[0; 20]), Fate::Gone);
    let mut peer = only(PacketFault {
        peer: Some(*PEER.address.ip()),
        ..drop
    });
    assert_eq!(peer.judge(0, Direction::In, OTHER, &[0; 20]), Fate::Pass);
    assert_eq!(peer.judge(0, Direction::In, PEER, &[0; 20]), Fate::Gone);
    let mut timed = only(PacketFault {
        window: Window {
            from: Duration::from_millis(1),
            to: Some(Duration::from_millis(2)),
        },
        ..drop
    });
    let fates: Vec<Fate> = [0, MS - 1, MS, 2 * MS - 1, 2 * MS]
        .map(|now_ns| timed.judge(now_ns, Direction::In, PEER, &[0; 20]))
        .to_vec();
    assert_eq!(
        fates,
        [Fate::Pass, Fate::Pass, Fate::Gone, Fate::Gone, Fate::Pass]
    );
}

#[test]
fn while_the_link_is_down_nothing_passes_and_what_was_held_is_lost() {
    let mut layer = layer(&[always(Mishap::Delay(
        Duration::from_millis(1),
        Duration::from_millis(1),
    ))]);
    layer.judge(0, Direction::Out, PEER, &[0; 20]);
    layer.set_down(true);
    assert_eq!(layer.deadline_ns(), None);
    assert_eq!(layer.judge(0, Direction::Out, PEER, &[0; 20]), Fate::Gone);
    layer.set(0, &[], 0);
    assert_eq!(layer.judge(0, Direction::In, PEER, &[0; 20]), Fate::Gone);
    layer.set_down(false);
    assert_eq!(layer.judge(0, Direction::In, PEER, &[0; 20]), Fate::Pass);
}

#[test]
fn packets_for_one_qp_are_recorded_and_can_come_again() {
    let mut layer = layer(&[]);
    let packet = |qpn: u8| {
        let mut bytes = vec![0u8; 20];
        bytes[7] = qpn;
        bytes
    };
    layer.judge(0, Direction::In, PEER, &packet(5));
    layer.record(Some(5));
    layer.judge(0, Direction::In, PEER, &packet(5));
    layer.judge(0, Direction::In, PEER, &packet(6));
    layer.judge(0, Direction::Out, PEER, &packet(5));
    layer.record(None);
    layer.judge(0, Direction::In, PEER, &packet(5));
    let kept = layer.recorded().to_vec();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].bytes, packet(5));
    layer.inject(9, &kept[0]);
    let mut seen = Vec::new();
    layer.release(9, Direction::In, |source, packet| {
        seen.push((source, packet.to_vec()));
        true
    });
    assert_eq!(seen, [(PEER, packet(5))]);
}

#[derive(Default)]
struct TestSink {
    space: Vec<u8>,
    sent: Vec<(Destination, Vec<u8>)>,
    room: usize,
}

impl PacketSink for TestSink {
    fn slot(&mut self) -> Option<&mut [u8]> {
        self.space.resize(100, 0);
        (self.sent.len() < self.room).then_some(&mut self.space)
    }

    fn commit(&mut self, bytes: usize, destination: Destination) {
        self.sent.push((destination, self.space[..bytes].to_vec()));
    }
}

#[test]
fn the_sink_of_the_layer_sends_what_passes_and_later_what_was_late() {
    let mut layer = layer(&[
        PacketFault::new(Mishap::Drop, When::Nth(1)),
        PacketFault::new(
            Mishap::Delay(Duration::from_nanos(5), Duration::from_nanos(5)),
            When::Nth(1),
        ),
    ]);
    let mut carrier = TestSink {
        room: 3,
        ..TestSink::default()
    };
    let mut sink = FaultySink {
        layer: &mut layer,
        inner: &mut carrier,
        now_ns: 0,
    };
    let there = Destination {
        address: *PEER.address.ip(),
        envelope: Envelope::of_mark(0b1110),
        path_bits: 5,
    };
    for packet in 1..=4u8 {
        let Some(slot) = sink.slot() else {
            break;
        };
        slot[..10].fill(packet);
        sink.commit(10, there);
    }
    sink.now_ns = 5;
    sink.release();
    let sent: Vec<u8> = carrier.sent.iter().map(|(_, packet)| packet[0]).collect();
    // Packet 1 was lost, and packet 2 was late.
    assert_eq!(sent, [3, 4, 2]);
    assert!(carrier.sent.iter().all(|(to, _)| *to == there));
}

proptest! {
    #[test]
    fn a_damaged_packet_never_has_a_right_icrc(seed: u64, payload in proptest::collection::vec(any::<u8>(), 0..64)) {
        let flow = Flow::v4(*PEER.address.ip(), *OTHER.address.ip());
        let mut packet = vec![0u8; 12 + payload.len().next_multiple_of(4) + 4];
        packet[12..12 + payload.len()].copy_from_slice(&payload);
        let used = packet.len() - 4;
        prop_assert_eq!(seal(&mut packet, used, &flow), packet.len());
        prop_assert!(icrc_matches(&packet, &flow));
        let mut layer = FaultLayer::new(seed, &[always(Mishap::Corrupt)], 0);
        let mut seen = 0;
        layer.receive(0, PEER, &packet, |_, damaged| {
            seen += 1;
            assert!(!icrc_matches(damaged, &flow), "seed {seed}");
        });
        prop_assert_eq!(seen, 1);
    }

    #[test]
    fn any_bytes_meet_any_faults_without_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        chances in proptest::collection::vec(0u32..1_000_001, 5),
        seed: u64,
    ) {
        let far = Duration::from_secs(u64::MAX);
        let whats = [Mishap::Drop, Mishap::Duplicate, Mishap::Reorder, Mishap::Corrupt, Mishap::Delay(far, far)];
        let faults: Vec<PacketFault> = whats
            .into_iter()
            .zip(chances)
            .map(|(what, chance)| PacketFault::new(what, When::PerMillion(chance)))
            .collect();
        let mut layer = FaultLayer::new(seed, &faults, 3);
        for now_ns in 0..20 {
            layer.receive(now_ns, PEER, &bytes, |_, _| {});
            layer.release(now_ns, Direction::In, |_, _| true);
        }
    }
}
