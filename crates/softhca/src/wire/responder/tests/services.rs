//! Tests of UC and XRC.

use super::*;

#[test]
fn uc_drops_what_is_broken_and_goes_on_with_the_next_message() {
    let mut bench = bench_of(Service::Uc, Transport::Uc);
    bench.device.receives = [0, 0].into();
    let first = Body::Send {
        starts: true,
        end: None,
    };
    let last = Body::Send {
        starts: false,
        end: Some(SendEnd::Plain),
    };
    let payload = [1; MTU as usize];
    // The packet between these two is missing.
    assert_eq!(bench.request(10, first, &payload), Arrival::Executed);
    assert_eq!(bench.request(12, last, &[2]), Arrival::OutOfOrder);
    assert_eq!(bench.request(13, last, &[3]), Arrival::OutOfOrder);
    // A new message interrupts a message that was not finished, and may have any number.
    assert_eq!(bench.request(14, first, &payload), Arrival::Executed);
    assert_eq!(bench.request(5, first, &payload), Arrival::Executed);
    assert_eq!(bench.request(6, last, &[4]), Arrival::Executed);
    let lengths: Vec<u32> = bench
        .device
        .received
        .iter()
        .map(|(got, _)| got.bytes)
        .collect();
    assert_eq!(lengths, [MTU + 1]);
    assert_eq!(bench.device.receives.len(), 1, "one receive WQE was used");
    assert_eq!(bench.answers(), []);
}

#[test]
fn uc_reports_no_missing_key_or_receive_to_the_requester() {
    let mut bench = bench_of(Service::Uc, Transport::Uc);
    let foreign = Reth {
        rkey: RKEY + 1,
        ..reth(0, 4)
    };
    assert_eq!(
        bench.write(0, Some(foreign), PLAIN, &[7; 4]),
        Arrival::Dropped
    );
    let only = Body::Send {
        starts: true,
        end: Some(SendEnd::Plain),
    };
    assert_eq!(bench.request(1, only, &[1]), Arrival::Dropped);
    let immediate = Some(WriteEnd::Immediate(1));
    assert_eq!(
        bench.write(2, Some(reth(0, 4)), immediate, &[7; 4]),
        Arrival::Dropped
    );
    assert_eq!(
        bench.write(3, Some(reth(8, 4)), PLAIN, &[8; 4]),
        Arrival::Executed
    );
    assert_eq!(bench.device.bytes_written, 4);
    assert_eq!(bench.device.refused, None);
    assert_eq!(bench.answers(), []);
}

#[test]
fn an_xrc_target_answers_in_its_service_and_takes_the_srq_of_the_packet() {
    let transport = Transport::XrcRequest(crate::wire::headers::XrcEth { srqn: 0x55 });
    let mut bench = bench_of(Service::XrcTarget, transport);
    bench.device.receives = [0].into();
    let only = Body::Send {
        starts: true,
        end: Some(SendEnd::Plain),
    };
    assert_eq!(bench.request(0, only, &[1]), Arrival::Executed);
    assert_eq!(bench.device.srqs, [Some(0x55)]);
    let mut out = [0; 64];
    let used = bench
        .responder
        .poll_transmit(1, &mut bench.device, &mut out)
        .unwrap();
    let bytes = seal(&mut out, used, &FLOW);
    let packet = Packet::parse(&out[..bytes]).unwrap();
    assert_eq!(packet.head.transport, Transport::XrcResponse);
    assert_eq!(out[0], 0xb1);
}
