//! Tests of the responder alone, packet by packet.

mod rules;
mod services;

use super::answers::MAX_JOBS;
use super::*;
use crate::wire::headers::{Aeth, AtomicEth, AtomicOp, Reth};
use crate::wire::icrc::Flow;
use crate::wire::packet::{Head, MAX_OVERHEAD_BYTES, ReadPart, SendEnd, WriteEnd, seal};
use crate::wire::testing::{RKEY, TestDevice};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const MTU: u32 = 256;
const FLOW: Flow = Flow::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
const PLAIN: Option<WriteEnd> = Some(WriteEnd::Plain);

struct Bench {
    responder: Responder,
    device: TestDevice,
    transport: Transport,
}

fn bench() -> Bench {
    bench_of(Service::Rc, Transport::Rc)
}

fn bench_of(service: Service, transport: Transport) -> Bench {
    bench_with(service, transport, 16)
}

fn bench_with(service: Service, transport: Transport, max_read_atomic: u32) -> Bench {
    let config = ResponderConfig {
        service,
        remote_qpn: 1,
        first_psn: Psn::new(0),
        mtu: MTU,
        min_rnr_timer: 12,
        max_read_atomic,
    };
    Bench {
        responder: Responder::new(config),
        device: TestDevice::new(vec![0; 4096]),
        transport,
    }
}

impl Bench {
    fn request(&mut self, psn: u32, body: Body, payload: &[u8]) -> Arrival {
        let head = Head {
            dest_qpn: 1,
            psn: Psn::new(psn),
            ack_request: true,
            solicited: false,
            transport: self.transport,
        };
        self.responder.on_request(
            1,
            &Packet {
                head,
                body,
                payload,
            },
            &mut self.device,
        )
    }

    fn write(
        &mut self,
        psn: u32,
        start: Option<Reth>,
        end: Option<WriteEnd>,
        payload: &[u8],
    ) -> Arrival {
        self.request(psn, Body::Write { start, end }, payload)
    }

    /// Returns all answers that wait to be sent: PSN, body, length of the payload.
    fn answers(&mut self) -> Vec<(u32, Body, usize)> {
        let mut out = vec![0; MTU as usize + MAX_OVERHEAD_BYTES];
        let mut answers = vec![];
        while let Some(used) = self.responder.poll_transmit(1, &mut self.device, &mut out) {
            let bytes = seal(&mut out, used, &FLOW);
            let packet = Packet::parse(&out[..bytes]).unwrap();
            answers.push((packet.head.psn.value(), packet.body, packet.payload.len()));
        }
        answers
    }
}

fn reth(va: u64, bytes: u32) -> Reth {
    Reth {
        va,
        rkey: RKEY,
        bytes,
    }
}

fn add_one() -> Body {
    Body::Atomic(AtomicEth {
        va: 0,
        rkey: RKEY,
        op: AtomicOp::FetchAdd { add: 1 },
    })
}

fn answer(psn: u32, syndrome: Syndrome, msn: u32) -> (u32, Body, usize) {
    (psn, Body::Acknowledge(Aeth { syndrome, msn }), 0)
}

#[test]
fn one_ack_answers_for_a_batch() {
    let mut bench = bench();
    for psn in 0..5 {
        assert_eq!(
            bench.write(psn, Some(reth(0, 4)), PLAIN, &[7; 4]),
            Arrival::Executed
        );
    }
    assert_eq!(bench.answers(), [answer(4, ACK, 5)]);
    assert!(!bench.responder.has_answer());
}

#[test]
fn what_is_missing_is_asked_for_once() {
    let mut bench = bench();
    assert_eq!(
        bench.write(2, Some(reth(0, 1)), PLAIN, &[2]),
        Arrival::OutOfOrder
    );
    assert_eq!(
        bench.write(3, Some(reth(0, 1)), PLAIN, &[3]),
        Arrival::OutOfOrder
    );
    let nak = Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR);
    assert_eq!(bench.answers(), [answer(0, nak, 0)]);
    for psn in 0..4 {
        bench.write(psn, Some(reth(0, 1)), PLAIN, &[1]);
    }
    bench.write(9, Some(reth(0, 1)), PLAIN, &[9]);
    assert_eq!(bench.answers(), [answer(3, ACK, 4), answer(4, nak, 4)]);
    assert_eq!(bench.device.bytes_written, 4);
}

#[test]
fn lengths_that_do_not_add_up_are_invalid_requests() {
    let cases: [(&str, Option<Reth>, Option<WriteEnd>, usize); 7] = [
        (
            "first packet shorter than the MTU",
            Some(reth(0, 400)),
            None,
            255,
        ),
        (
            "only packet longer than the MTU",
            Some(reth(0, 257)),
            PLAIN,
            257,
        ),
        ("less than announced", Some(reth(0, 10)), PLAIN, 9),
        ("more than announced", Some(reth(0, 10)), PLAIN, 11),
        (
            "nothing left for the last packet",
            Some(reth(0, 256)),
            None,
            256,
        ),
        ("a middle packet without a first", None, None, 256),
        ("a last packet without a first", None, PLAIN, 1),
    ];
    for (what, start, end, bytes) in cases {
        let mut bench = bench();
        assert_eq!(
            bench.write(0, start, end, &vec![1; bytes]),
            Arrival::Refused,
            "{what}"
        );
        let nak = Syndrome::Nak(NakCode::INVALID_REQUEST);
        assert_eq!(bench.answers(), [answer(0, nak, 0)], "{what}");
        assert_eq!(
            bench.device.refused,
            Some(NakCode::INVALID_REQUEST),
            "{what}"
        );
        assert_eq!(bench.device.bytes_written, 0, "{what}");
    }
}

#[test]
fn a_message_inside_a_message_is_an_invalid_request() {
    let mut bench = bench();
    bench.write(0, Some(reth(0, 300)), None, &[1; 256]);
    assert_eq!(
        bench.request(
            1,
            Body::Send {
                starts: false,
                end: Some(SendEnd::Plain)
            },
            &[1]
        ),
        Arrival::Refused
    );
    assert!(bench.responder.has_refused());
}

#[test]
fn a_refusal_is_repeated_and_duplicates_are_still_answered() {
    let mut bench = bench();
    bench.request(0, Body::ReadRequest(reth(0, 8)), &[]);
    bench.answers();
    assert_eq!(
        bench.write(
            1,
            Some(Reth {
                rkey: 0,
                ..reth(0, 8)
            }),
            PLAIN,
            &[1; 8]
        ),
        Arrival::Refused
    );
    let nak = answer(1, Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR), 1);
    assert_eq!(bench.answers(), [nak]);
    assert_eq!(
        bench.write(1, Some(reth(0, 8)), PLAIN, &[1; 8]),
        Arrival::Refused
    );
    assert_eq!(
        bench.write(2, Some(reth(0, 8)), PLAIN, &[1; 8]),
        Arrival::Refused
    );
    assert_eq!(bench.answers(), [nak]);
    assert_eq!(
        bench.request(0, Body::ReadRequest(reth(0, 8)), &[]),
        Arrival::Duplicate
    );
    assert_eq!(bench.answers().len(), 1);
    assert_eq!(bench.device.memory, vec![0; 4096]);
}

#[test]
fn a_long_read_is_answered_in_packets_of_the_mtu() {
    let mut bench = bench();
    bench.request(0, Body::ReadRequest(reth(0, 600)), &[]);
    bench.write(3, Some(reth(0, 1)), PLAIN, &[1]);
    let aeth = Aeth {
        syndrome: ACK,
        msn: 1,
    };
    let expected = [
        (0, Body::ReadResponse(ReadPart::First(aeth)), 256),
        (1, Body::ReadResponse(ReadPart::Middle), 256),
        (2, Body::ReadResponse(ReadPart::Last(aeth)), 88),
        answer(3, ACK, 2),
    ];
    assert_eq!(bench.answers(), expected);
}

#[test]
fn a_duplicate_read_that_reaches_beyond_what_was_asked_is_not_answered() {
    let mut bench = bench();
    bench.request(0, Body::ReadRequest(reth(0, 600)), &[]);
    bench.answers();
    assert_eq!(
        bench.request(1, Body::ReadRequest(reth(256, 344)), &[]),
        Arrival::Duplicate
    );
    assert_eq!(bench.answers().len(), 2);
    assert_eq!(
        bench.request(1, Body::ReadRequest(reth(256, 3 * 256)), &[]),
        Arrival::Duplicate
    );
    assert_eq!(bench.answers(), []);
}

#[test]
fn a_key_that_goes_while_a_read_is_answered_ends_it_where_it_is() {
    let mut bench = bench();
    bench.request(0, Body::ReadRequest(reth(4096 - 600, 600)), &[]);
    let mut out = vec![0; MTU as usize + MAX_OVERHEAD_BYTES];
    bench
        .responder
        .poll_transmit(1, &mut bench.device, &mut out)
        .unwrap();
    bench.device.memory.truncate(4096 - 300);
    let nak = answer(1, Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR), 1);
    assert_eq!(bench.answers(), [nak]);
    assert_eq!(bench.device.refused, Some(NakCode::REMOTE_ACCESS_ERROR));
}

#[test]
fn an_immediate_waits_for_its_receive_before_the_last_bytes_are_written() {
    let mut bench = bench();
    let end = Some(WriteEnd::Immediate(0xabcd));
    bench.write(0, Some(reth(0, 300)), None, &[1; 256]);
    assert_eq!(bench.write(1, None, end, &[2; 44]), Arrival::Refused);
    assert_eq!(
        bench.answers(),
        [
            answer(0, ACK, 0),
            answer(1, Syndrome::RnrNak { timer: 12 }, 0)
        ]
    );
    assert_eq!(bench.device.bytes_written, 256);
    bench.device.receives.push_back(0);
    assert_eq!(bench.write(1, None, end, &[2; 44]), Arrival::Executed);
    assert_eq!(bench.answers(), [answer(1, ACK, 1)]);
    let (received, _) = &bench.device.received[0];
    assert_eq!((received.bytes, received.send), (300, false));
    assert_eq!(received.with, crate::transport::SendWith::Immediate(0xabcd));
}

#[test]
fn requests_beyond_the_answers_that_can_wait_are_dropped_and_not_done() {
    let mut bench = bench_with(Service::Rc, Transport::Rc, u32::MAX);
    let add = |psn| (psn, add_one());
    let arrivals: Vec<Arrival> = (0..100)
        .map(add)
        .map(|(psn, body)| bench.request(psn, body, &[]))
        .collect();
    let done = arrivals
        .iter()
        .filter(|arrival| **arrival == Arrival::Executed)
        .count();
    assert_eq!((done, arrivals[MAX_JOBS]), (MAX_JOBS, Arrival::Dropped));
    assert_eq!(bench.device.atomics_done, 64);
    bench.answers();
    assert_eq!(bench.request(64, add(64).1, &[]), Arrival::Executed);
}

/// Returns requests whose fields are often nearly right.
fn any_request() -> impl Strategy<Value = Body> {
    let va = prop_oneof![0u64..5000, Just(u64::MAX), any::<u64>()];
    let rkey = prop_oneof![4 => Just(RKEY), 1 => any::<u32>()];
    let bytes = prop_oneof![0u32..700, Just(1 << 31), Just(u32::MAX)];
    let reth = (va, rkey, bytes).prop_map(|(va, rkey, bytes)| Reth { va, rkey, bytes });
    let write_end = prop::option::of(prop_oneof![
        Just(WriteEnd::Plain),
        Just(WriteEnd::Immediate(1))
    ]);
    let send_end = prop::option::of(prop_oneof![
        Just(SendEnd::Plain),
        Just(SendEnd::Invalidate(1))
    ]);
    prop_oneof![
        (prop::option::of(reth.clone()), write_end)
            .prop_map(|(start, end)| Body::Write { start, end }),
        (any::<bool>(), send_end).prop_map(|(starts, end)| Body::Send { starts, end }),
        reth.clone().prop_map(Body::ReadRequest),
        reth.prop_map(|reth| Body::Atomic(AtomicEth {
            va: reth.va,
            rkey: reth.rkey,
            op: AtomicOp::FetchAdd { add: 1 }
        })),
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_requests_does_harm(
        requests in prop::collection::vec((0u32..4, any_request(), prop_oneof![Just(256usize), 0usize..300]), 1..60),
        receives in prop::collection::vec(0u32..3, 0..5),
    ) {
        let mut bench = bench();
        bench.device.receives = receives.into();
        let mut answers = 0;
        for (step, body, bytes) in requests {
            // This is mostly the expected PSN, sometimes the one before or after it.
            let psn = bench.responder.expected.add(step).sub(u32::from(step > 0)).value();
            bench.request(psn, body, &vec![1; bytes]);
            // This sends as many answers as fit into a burst; a READ of 2 GiB has more.
            let mut out = vec![0; MTU as usize + MAX_OVERHEAD_BYTES];
            while answers < 500 && bench.responder.poll_transmit(1, &mut bench.device, &mut out).is_some() {
                answers += 1;
            }
            answers = 0;
        }
        prop_assert!(bench.responder.answers.len() <= 2 * MAX_JOBS);
    }
}
