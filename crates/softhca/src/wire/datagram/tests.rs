use crate::envelope::{Name, Version};
use crate::wire::datagram::*;
use crate::wire::icrc::Flow;
use crate::wire::packet::{MAX_OVERHEAD_BYTES, seal};
use crate::wire::testing::{QKEY, TestDevice, TestWqe, operation, write};
use std::net::Ipv4Addr;

const MTU: u32 = 1024;
const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const QPN: u32 = 0x77;

fn here() -> Source {
    Source::of_hca(HERE)
}

fn to(address: Ipv4Addr) -> Target {
    Target::Datagram(Datagram {
        gid: address.to_ipv6_mapped().octets(),
        has_grh: true,
        qpn: 5,
        qkey: QKEY,
        hop_limit: 64,
        traffic_class: 0,
        path_bits: 0,
    })
}

fn send_to(target: Target, with: SendWith, bytes: usize) -> Operation {
    let mut operation = operation(OperationKind::Send { with }, bytes);
    operation.to = target;
    operation
}

fn qp() -> Datagrams<TestWqe> {
    let (mtu, first_psn) = (MTU, Psn::new(0xff_ffff));
    Datagrams::new(DatagramConfig {
        mtu,
        first_psn,
        lmc: 0,
    })
}

/// Lets the QP send all that it has. Returns the datagrams with their destinations.
fn sent(qp: &mut Datagrams<TestWqe>, device: &mut TestDevice) -> Vec<(Ipv4Addr, Vec<u8>)> {
    let mut packets = vec![];
    let mut out = vec![0; MTU as usize + MAX_OVERHEAD_BYTES];
    while let Some(outgoing) = qp.poll_transmit(QPN, Kept::Ipv4, device, &mut out) {
        let flow = Flow::v4(HERE, outgoing.destination.address);
        let bytes = seal(&mut out, outgoing.used, &flow);
        packets.push((outgoing.destination.address, out[..bytes].to_vec()));
    }
    while let Some(completion) = qp.take_completion() {
        device.complete(QPN, completion.wqe, completion.outcome);
    }
    packets
}

fn post(qp: &mut Datagrams<TestWqe>, tag: usize, operation: Operation) {
    let data = vec![u8::try_from(tag).unwrap(); operation.bytes as usize];
    qp.submit(TestWqe::new(tag, data), operation).unwrap();
}

#[test]
fn a_datagram_names_its_sender_and_arrives_whole() {
    let (mut near, mut far) = (TestDevice::default(), TestDevice::default());
    let mut qp = qp();
    post(&mut qp, 1, send_to(to(THERE), SendWith::Nothing, 0));
    post(&mut qp, 2, send_to(to(THERE), SendWith::Immediate(9), 1024));
    far.receives = [0, 0].into();
    let packets = sent(&mut qp, &mut near);
    assert_eq!(near.completed, [(1, Ok(())), (2, Ok(()))]);
    for (index, (destination, datagram)) in (0..).zip(&packets) {
        assert_eq!(*destination, THERE);
        let packet = Packet::parse(datagram).unwrap();
        assert_eq!(packet.head.psn, Psn::new(0xff_ffff).add(index));
        assert_eq!(receive(5, &here(), &packet, &mut far), Arrival::Executed);
    }
    let source = Some(DatagramSource {
        qpn: QPN,
        address: HERE,
        lmc: 0,
        own_path_bits: 0,
        envelope: Envelope::V2_IPV4,
        has_grh: true,
    });
    let received: Vec<_> = far
        .received
        .iter()
        .map(|(received, data)| (received.source, received.with, data.len()))
        .collect();
    assert_eq!(
        received,
        [
            (source, SendWith::Nothing, 0),
            (source, SendWith::Immediate(9), 1024)
        ]
    );
    assert_eq!(far.received[1].1, [2; 1024]);
}

#[test]
fn a_datagram_without_receive_or_with_a_foreign_key_is_dropped() {
    let (mut near, mut far) = (TestDevice::default(), TestDevice::default());
    let mut qp = qp();
    post(&mut qp, 1, send_to(to(THERE), SendWith::Nothing, 8));
    let mut foreign = send_to(to(THERE), SendWith::Nothing, 8);
    if let Target::Datagram(to) = &mut foreign.to {
        to.qkey += 1;
    }
    post(&mut qp, 2, foreign);
    let packets = sent(&mut qp, &mut near);
    let arrive = |far: &mut TestDevice, index: usize| {
        receive(5, &here(), &Packet::parse(&packets[index].1).unwrap(), far)
    };
    assert_eq!(arrive(&mut far, 0), Arrival::Dropped);
    far.receives = [0].into();
    assert_eq!(arrive(&mut far, 1), Arrival::Dropped);
    assert_eq!(far.receives.len(), 1, "the receive WQE is still there");
    assert_eq!(arrive(&mut far, 0), Arrival::Executed);
    assert_eq!(far.refused, None);
}

#[test]
fn each_packet_goes_to_its_own_destination_and_nowhere_is_no_error() {
    let mut device = TestDevice::default();
    let mut qp = qp();
    let nowhere = Target::Datagram(Datagram {
        has_grh: true,
        gid: [0xfe; 16],
        qpn: 5,
        qkey: QKEY,
        hop_limit: 1,
        traffic_class: 0,
        path_bits: 0,
    });
    for (tag, target) in [to(HERE), nowhere, to(THERE)].into_iter().enumerate() {
        post(&mut qp, tag, send_to(target, SendWith::Nothing, 8));
    }
    let destinations: Vec<_> = sent(&mut qp, &mut device)
        .into_iter()
        .map(|(destination, _)| destination)
        .collect();
    assert_eq!(destinations, [HERE, THERE]);
    assert_eq!(device.completed, [(0, Ok(())), (1, Ok(())), (2, Ok(()))]);
}

#[test]
fn what_the_service_lacks_ends_in_an_error_and_flushes_the_rest() {
    let mut write_to = write(0, 8);
    write_to.to = to(THERE);
    let cases = [
        (
            send_to(to(THERE), SendWith::Nothing, 1025),
            Failure::LocalLength,
        ),
        (
            send_to(to(THERE), SendWith::Invalidate(3), 8),
            Failure::LocalOperation,
        ),
        (
            send_to(Target::Connected, SendWith::Nothing, 8),
            Failure::LocalOperation,
        ),
        (write_to, Failure::LocalOperation),
    ];
    for (bad, failure) in cases {
        let mut device = TestDevice::default();
        let mut qp = qp();
        post(&mut qp, 1, send_to(to(THERE), SendWith::Nothing, 8));
        post(&mut qp, 2, bad);
        post(&mut qp, 3, send_to(to(THERE), SendWith::Nothing, 8));
        assert_eq!(sent(&mut qp, &mut device).len(), 1);
        post(&mut qp, 4, send_to(to(THERE), SendWith::Nothing, 8));
        assert_eq!(sent(&mut qp, &mut device).len(), 0);
        let flushed = Err(Failure::Flushed);
        assert_eq!(
            device.completed,
            [(1, Ok(())), (2, Err(failure)), (3, flushed), (4, flushed)]
        );
    }
}

#[test]
fn local_memory_that_fails_ends_the_qp() {
    let mut device = TestDevice::default();
    let mut qp = qp();
    let broken = TestWqe {
        broken: true,
        ..TestWqe::new(1, vec![0; 8])
    };
    qp.submit(broken, send_to(to(THERE), SendWith::Nothing, 8))
        .unwrap();
    assert_eq!(sent(&mut qp, &mut device).len(), 0);
    assert_eq!(device.completed, [(1, Err(Failure::LocalProtection))]);
}

#[test]
fn no_more_operations_are_taken_than_there_is_room_for() {
    let mut qp = qp();
    for tag in 0..MAX_OPERATIONS {
        post(&mut qp, tag, send_to(to(THERE), SendWith::Nothing, 0));
    }
    assert!(!qp.has_room());
    let more = qp.submit(
        TestWqe::new(99, vec![]),
        send_to(to(THERE), SendWith::Nothing, 0),
    );
    assert_eq!(more.unwrap_err().tag, 99);
}

#[test]
fn the_envelope_stands_in_the_deth_unless_the_carrier_keeps_it() {
    let envelope = Envelope {
        version: Version::V1,
        source: Name::LinkLocal,
        destination: Name::LinkLocal,
    };
    for kept in [Kept::Ipv4, Kept::All] {
        let (mut near, mut far) = (TestDevice::default(), TestDevice::default());
        let mut qp = qp();
        let mut target = to(THERE);
        if let Target::Datagram(to) = &mut target {
            to.gid = Name::LinkLocal.gid(THERE);
        }
        let wqe = TestWqe {
            envelope: Envelope {
                destination: Name::Ip,
                ..envelope
            },
            ..TestWqe::new(1, vec![])
        };
        qp.submit(wqe, send_to(target, SendWith::Nothing, 0))
            .unwrap();
        let mut out = vec![0; MTU as usize + MAX_OVERHEAD_BYTES];
        let outgoing = qp.poll_transmit(QPN, kept, &mut near, &mut out).unwrap();
        let carried = outgoing.destination.envelope;
        let flow = Flow::outbound(HERE, &outgoing.destination);
        let bytes = seal(&mut out, outgoing.used, &flow);
        let packet = Packet::parse(&out[..bytes]).unwrap();
        let Transport::Ud(deth) = packet.head.transport else {
            panic!("no datagram");
        };
        let expected = if kept == Kept::All {
            (envelope, Envelope::V2_IPV4)
        } else {
            (Envelope::V2_IPV4, envelope)
        };
        assert_eq!((carried, deth.envelope), expected);
        // With either carrier the receiver learns the envelope.
        far.receives = [0].into();
        let source = Source {
            envelope: carried,
            ..here()
        };
        assert_eq!(receive(5, &source, &packet, &mut far), Arrival::Executed);
        assert_eq!(far.received[0].0.source.unwrap().envelope, envelope);
    }
}
