use crate::envelope::Envelope;
use crate::wire::frames::*;
use crate::wire::testing::HANG;
use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SECOND_NS: u64 = 1_000_000_000;

fn free_port() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap()
}

fn carrier(local: SocketAddr, remote: SocketAddr, address: Ipv4Addr) -> FrameCarrier {
    FrameCarrier::new(FrameSocket::over_udp(local, remote).unwrap(), address, None)
}

/// Returns two HCAs on one Ethernet.
fn pair() -> (FrameCarrier, FrameCarrier) {
    let (one, two) = (free_port(), free_port());
    (carrier(one, two, HERE), carrier(two, one, THERE))
}

/// Returns an HCA and the bare socket at the other end of its Ethernet.
fn alone() -> (FrameCarrier, UdpSocket) {
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    other.set_read_timeout(Some(HANG)).unwrap();
    let local = free_port();
    other.connect(local).unwrap();
    (carrier(local, other.local_addr().unwrap(), HERE), other)
}

fn put(carrier: &mut FrameCarrier, destination: Ipv4Addr, payload: &[u8]) {
    let sink = carrier.sink();
    sink.slot().unwrap()[..payload.len()].copy_from_slice(payload);
    sink.commit(payload.len(), destination.into());
}

fn next(socket: &UdpSocket) -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    let bytes = socket.recv(&mut frame).expect("a frame");
    frame.truncate(bytes);
    frame
}

/// Lets both HCAs receive until `count` packets have come to `there`. Returns the packets.
fn collect(here: &mut FrameCarrier, there: &mut FrameCarrier, count: usize) -> Vec<Vec<u8>> {
    let mut packets = vec![];
    let end = Instant::now() + HANG;
    while packets.len() < count && Instant::now() < end {
        here.receive(0, &mut |_, _| {}).unwrap();
        there
            .receive(0, &mut |source, payload| {
                assert_eq!(source, Source::of_hca(HERE));
                packets.push(payload.to_vec());
            })
            .unwrap();
    }
    packets
}

#[test]
fn packets_wait_for_the_mac_address_and_arrive_in_order() {
    let (mut here, mut there) = pair();
    let sent: Vec<Vec<u8>> = (1..=40u8)
        .map(|tag| vec![tag; usize::from(tag) * 100])
        .collect();
    for packet in &sent[..20] {
        put(&mut here, THERE, packet);
    }
    assert!(here.flush(0));
    assert_eq!(collect(&mut here, &mut there, 20), sent[..20]);
    for packet in &sent[20..] {
        put(&mut here, THERE, packet);
    }
    assert!(here.flush(0) && !here.is_blocked());
    assert_eq!(collect(&mut here, &mut there, 20), sent[20..]);
    assert_eq!(here.deadline_ns(), None);
}

#[test]
fn a_question_about_our_address_is_answered_and_others_are_not() {
    let (mut here, other) = alone();
    let asker = (THERE, [0x52, 0x54, 0, 0, 0, 2]);
    let question = |ip| Arp {
        is_request: true,
        sender: asker,
        target: (ip, [0; 6]),
    };
    other
        .send(&question(Ipv4Addr::new(10, 0, 0, 9)).frame())
        .unwrap();
    other.send(&question(HERE).frame()).unwrap();
    while here.counters().receive_calls < 2 {
        here.receive(0, &mut |_, _| {}).unwrap();
    }
    let answer = Arp {
        is_request: false,
        sender: (HERE, mac_of(HERE)),
        target: asker,
    };
    assert_eq!(Frame::parse(&next(&other)), Ok(Frame::Arp(answer)));
    // The HCA knows the asker from then on.
    put(&mut here, THERE, b"hello");
    here.flush(0);
    let frame = next(&other);
    assert_eq!(frame[..6], asker.1);
    assert_eq!(frame[42..], *b"hello");
}

#[test]
fn a_peer_that_does_not_answer_costs_its_packets_after_five_questions() {
    let (mut here, other) = alone();
    for _ in 0..HELD_PACKETS + 3 {
        put(&mut here, THERE, b"hello");
    }
    assert_eq!(here.counters().refused, 3, "more than are held");
    let mut now_ns = 0;
    for _ in 0..ATTEMPTS {
        here.flush(now_ns);
        let question = Frame::parse(&next(&other)).map(|frame| match frame {
            Frame::Arp(arp) => (arp.is_request, arp.target.0),
            Frame::Roce { .. } => panic!("no address, but a packet"),
        });
        assert_eq!(question, Ok((true, THERE)));
        now_ns = here.deadline_ns().unwrap();
    }
    here.flush(now_ns);
    assert_eq!(here.counters().refused, 3 + HELD_PACKETS as u64);
    assert_eq!(here.deadline_ns(), None);
}

#[test]
fn what_an_hca_sends_to_itself_comes_back_without_the_wire() {
    let (mut here, _other) = alone();
    put(&mut here, HERE, b"me");
    here.flush(0);
    let mut seen = vec![];
    here.receive(0, &mut |source, payload| {
        seen.push((source, payload.to_vec()))
    })
    .unwrap();
    assert_eq!(seen, [(Source::of_hca(HERE), b"me".to_vec())]);
    assert_eq!(here.counters().send_calls, 0);
}

#[test]
fn a_packet_goes_in_its_envelope_and_a_link_local_gid_needs_no_arp() {
    let (mut here, mut there) = pair();
    let (one, two) = (vec![1; 300], vec![2; 20]);
    let by = |mark| Destination {
        address: THERE,
        envelope: Envelope::of_mark(mark),
        path_bits: 0,
    };
    // The marks are both versions, each with either GID of the peer. Packets to its IP address wait for ARP.
    let marks = [0, 0b0010, 0b0100 | 0b1000, 0b0010 | 0b1000];
    for mark in marks {
        for payload in [&one, &two] {
            let sink = here.sink();
            sink.slot().unwrap()[..payload.len()].copy_from_slice(payload);
            sink.commit(payload.len(), by(mark));
        }
    }
    assert!(here.flush(0));
    let mut seen = vec![];
    let end = Instant::now() + HANG;
    while seen.len() < 8 && Instant::now() < end {
        here.receive(0, &mut |_, _| {}).unwrap();
        there
            .receive(0, &mut |source, payload| {
                assert_eq!(*source.address.ip(), HERE);
                seen.push((source.envelope.mark(), payload.to_vec()));
            })
            .unwrap();
    }
    // The packets that had to wait come last.
    let expected: Vec<_> = [marks[2], marks[3], marks[0], marks[1]]
        .into_iter()
        .flat_map(|mark| [(mark, one.clone()), (mark, two.clone())])
        .collect();
    assert_eq!(seen, expected);
    assert_eq!(there.counters().foreign, 0);
}

#[test]
fn what_an_hca_sends_to_itself_keeps_its_envelope() {
    let (mut here, _other) = alone();
    let envelope = Envelope::of_mark(0b1110);
    here.sink().slot().unwrap()[..2].copy_from_slice(b"me");
    here.sink().commit(
        2,
        Destination {
            address: HERE,
            envelope,
            path_bits: 0,
        },
    );
    let mut seen = vec![];
    here.receive(0, &mut |source, _| seen.push(source.envelope))
        .unwrap();
    assert_eq!(seen, [envelope]);
}

#[test]
fn frames_for_others_and_garbage_are_counted() {
    let (mut here, other) = alone();
    let stranger = Ipv4Addr::new(10, 0, 0, 9);
    let to = |mac, ip| {
        let route = Route {
            destination_mac: mac,
            ..Route::between(Source::of_hca(THERE), ip)
        };
        [&headers(&route, b"x")[..], b"x"].concat()
    };
    for frame in [
        to(mac_of(stranger), HERE),
        to(mac_of(HERE), stranger),
        b"garbage".to_vec(),
        vec![0xff; FRAME_BYTES + 100],
    ] {
        other.send(&frame).unwrap();
    }
    while here.counters().receive_calls < 4 {
        here.receive(0, &mut |_, _| panic!("not for us")).unwrap();
    }
    assert_eq!(here.counters().foreign, 4);
    other.send(&to(mac_of(HERE), HERE)).unwrap();
    let mut count = 0;
    while count == 0 {
        here.receive(0, &mut |_, _| count += 1).unwrap();
    }
}

#[test]
fn nobody_at_the_other_end_is_not_an_error() {
    let mut here = carrier(free_port(), free_port(), HERE);
    for round in 0..3 {
        put(&mut here, THERE, b"hello");
        here.flush(round * SECOND_NS);
        here.receive(round * SECOND_NS, &mut |_, _| {
            panic!("no host has that address")
        })
        .unwrap();
    }
}

#[test]
fn an_interface_that_is_not_there_is_an_error() {
    let error = FrameSocket::on_interface("no-such-net", mac_of(HERE)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
}
