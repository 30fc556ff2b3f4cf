//! Tests of rules of the standard that matter only for a malicious peer, or after 2^24 packets.

use super::*;

const FIRST: Body = Body::Send {
    starts: true,
    end: None,
};
const LAST: Body = Body::Send {
    starts: false,
    end: Some(SendEnd::Plain),
};
const INVALID: Syndrome = Syndrome::Nak(NakCode::INVALID_REQUEST);

#[test]
fn a_read_or_atomic_inside_a_message_is_an_invalid_request() {
    for body in [Body::ReadRequest(reth(0, 8)), add_one()] {
        let mut bench = bench();
        bench.device.receives = [0].into();
        bench.request(0, FIRST, &[1; MTU as usize]);
        bench.answers();
        assert_eq!(bench.request(1, body, &[]), Arrival::Refused, "{body:?}");
        assert_eq!(bench.answers(), [answer(1, INVALID, 0)], "{body:?}");
        assert_eq!(bench.device.atomics_done, 0);
    }
}

#[test]
fn an_empty_last_packet_is_an_invalid_request() {
    let mut bench = bench();
    bench.device.receives = [0].into();
    bench.request(0, FIRST, &[1; MTU as usize]);
    bench.answers();
    assert_eq!(bench.request(1, LAST, &[]), Arrival::Refused);
    assert_eq!(bench.answers(), [answer(1, INVALID, 0)]);
    assert_eq!(bench.device.received, []);
}

#[test]
fn a_message_of_more_than_two_gib_is_an_invalid_request() {
    let too_long = reth(0, (1 << 31) + 1);
    let mut bench = bench();
    assert_eq!(
        bench.write(0, Some(too_long), None, &[1; MTU as usize]),
        Arrival::Refused
    );
    assert_eq!(bench.answers(), [answer(0, INVALID, 0)]);
    let mut bench = super::bench();
    let read = Body::ReadRequest(too_long);
    assert_eq!(bench.request(0, read, &[]), Arrival::Refused);
    assert_eq!(bench.answers(), [answer(0, INVALID, 0)]);
}

#[test]
fn more_reads_and_atomics_than_agreed_are_an_invalid_request() {
    let mut bench = bench_with(Service::Rc, Transport::Rc, 2);
    for psn in 0..2 {
        assert_eq!(bench.request(psn, add_one(), &[]), Arrival::Executed);
    }
    // Duplicates do not count.
    assert_eq!(bench.request(0, add_one(), &[]), Arrival::Duplicate);
    assert_eq!(bench.request(2, add_one(), &[]), Arrival::Refused);
    assert_eq!(bench.device.atomics_done, 2);

    let mut bench = bench_with(Service::Rc, Transport::Rc, 2);
    for round in 0..5 {
        bench.request(2 * round, add_one(), &[]);
        bench.request(2 * round, add_one(), &[]);
        let read = Body::ReadRequest(reth(0, 8));
        assert_eq!(bench.request(2 * round + 1, read, &[]), Arrival::Executed);
        assert_eq!(bench.answers().len(), 3);
    }
    assert_eq!(bench.device.atomics_done, 5);
}

#[test]
fn of_two_atomics_with_the_same_number_the_later_is_answered_again() {
    let mut bench = bench();
    bench.request(5, add_one(), &[]);
    for psn in 0..6 {
        bench.request(psn, add_one(), &[]);
    }
    bench.answers();
    // From here on 2^24 packets have passed.
    bench.responder.expected = Psn::new(5);
    bench.request(5, add_one(), &[]);
    bench.answers();
    assert_eq!(bench.request(5, add_one(), &[]), Arrival::Duplicate);
    let original = |(_, body, _): &(u32, Body, usize)| match body {
        Body::AtomicAcknowledge { original, .. } => Some(*original),
        _ => None,
    };
    let answers = bench.answers();
    assert_eq!(answers.iter().filter_map(original).collect::<Vec<_>>(), [6]);
    assert_eq!(bench.device.atomics_done, 7);
}

#[test]
fn a_duplicate_from_half_the_circle_ago_is_answered_and_not_done() {
    let mut bench = bench();
    bench.responder.expected = Psn::new(0x80_0000);
    let old = bench.write(0, Some(reth(0, 4)), PLAIN, &[7; 4]);
    assert_eq!(old, Arrival::Duplicate);
    assert_eq!(bench.answers(), [answer(0x7f_ffff, ACK, 0)]);
    // One PSN further away it counts as a packet of the future.
    let ahead = bench.write(0xff_ffff, Some(reth(0, 4)), PLAIN, &[7; 4]);
    assert_eq!(ahead, Arrival::OutOfOrder);
    assert_eq!(bench.device.bytes_written, 0);
}

#[test]
fn a_lost_sequence_nak_is_not_repeated_before_progress() {
    let mut bench = bench();
    for psn in [3, 4, 3] {
        bench.write(psn, Some(reth(0, 1)), PLAIN, &[1]);
    }
    let nak = Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR);
    assert_eq!(bench.answers(), [answer(0, nak, 0)]);
    bench.write(5, Some(reth(0, 1)), PLAIN, &[1]);
    assert_eq!(bench.answers(), []);
    bench.write(0, Some(reth(0, 1)), PLAIN, &[1]);
    bench.write(2, Some(reth(0, 1)), PLAIN, &[1]);
    assert_eq!(bench.answers(), [answer(0, ACK, 1), answer(1, nak, 1)]);
}
