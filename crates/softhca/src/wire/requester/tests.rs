//! Tests of the requester alone, packet by packet.

use super::*;
use crate::transport::NakCode;
use crate::wire::headers::{Aeth, NO_CREDITS, Syndrome};
use crate::wire::icrc::Flow;
use crate::wire::packet::{MAX_OVERHEAD_BYTES, Packet, ReadPart, Transport, seal};
use crate::wire::testing::{TestDevice, TestWqe, fetch_add, read, send, write};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const MTU: u32 = 256;
const MS: u64 = 1_000_000;
const FLOW: Flow = Flow::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);

struct Bench {
    requester: Requester<TestWqe>,
    device: TestDevice,
    now_ns: u64,
}

fn bench(change: impl FnOnce(&mut RequesterConfig)) -> Bench {
    let mut config = RequesterConfig {
        service: Service::Rc,
        remote_qpn: 1,
        first_psn: Psn::new(0),
        mtu: MTU,
        retry_count: 7,
        rnr_retry: 2,
        ack_timeout: 14,
        max_read_atomic: 4,
        window: 16,
    };
    change(&mut config);
    Bench {
        requester: Requester::new(config),
        device: TestDevice::default(),
        now_ns: 0,
    }
}

impl Bench {
    fn submit(&mut self, tag: usize, operation: Operation) {
        let data = vec![0; operation.bytes as usize];
        self.requester
            .submit(TestWqe::new(tag, data), operation)
            .unwrap();
    }

    /// Sends all that may be sent. Returns PSNs and bodies.
    fn sent(&mut self, allowance: u32) -> Vec<(u32, Body)> {
        let mut out = vec![0; MTU as usize + MAX_OVERHEAD_BYTES];
        let mut packets = vec![];
        while let Some(used) =
            self.requester
                .poll_transmit(self.now_ns, 1, allowance, &mut self.device, &mut out)
        {
            let bytes = seal(&mut out, used, &FLOW);
            let packet = Packet::parse(&out[..bytes]).unwrap();
            packets.push((packet.head.psn.value(), packet.body));
        }
        packets
    }

    fn psns(&mut self) -> Vec<u32> {
        self.sent(64).iter().map(|(psn, _)| *psn).collect()
    }

    fn answer(&mut self, psn: u32, body: Body, payload: &[u8]) -> Feedback {
        let head = Head {
            dest_qpn: 1,
            psn: Psn::new(psn),
            ack_request: false,
            solicited: false,
            transport: Transport::Rc,
        };
        let feedback = self.requester.on_response(
            self.now_ns,
            1,
            &Packet {
                head,
                body,
                payload,
            },
            &mut self.device,
        );
        while let Some(completion) = self.requester.take_completion() {
            self.device.complete(1, completion.wqe, completion.outcome);
        }
        feedback
    }

    fn aeth(&mut self, psn: u32, syndrome: Syndrome) -> Feedback {
        self.answer(psn, Body::Acknowledge(Aeth { syndrome, msn: 0 }), &[])
    }

    fn ack(&mut self, psn: u32) -> Feedback {
        self.aeth(
            psn,
            Syndrome::Ack {
                credits: NO_CREDITS,
            },
        )
    }

    fn clock(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.requester.on_clock(now_ns);
    }
}

#[test]
fn the_window_bounds_what_is_in_flight_and_an_ack_opens_it() {
    let mut bench = bench(|_| {});
    bench.submit(0, write(0, 20 * 256));
    assert_eq!(bench.psns(), (0..16).collect::<Vec<_>>());
    assert_eq!(
        bench.ack(3),
        Feedback {
            acked: 4,
            lost: false
        }
    );
    assert_eq!(bench.psns(), [16, 17, 18, 19]);
    bench.ack(19);
    assert_eq!(bench.device.completed, [(0, Ok(()))]);
    assert!(bench.requester.is_idle() && bench.requester.deadline_ns().is_none());
}

#[test]
fn the_allowance_of_the_destination_bounds_it_too() {
    let mut bench = bench(|_| {});
    bench.submit(0, write(0, 4 * 256));
    assert_eq!(bench.sent(0), []);
    assert_eq!(bench.requester.deadline_ns(), None, "nothing is under way");
    assert!(bench.requester.wants_to_send());
}

#[test]
fn acks_of_the_future_and_of_the_past_are_ignored() {
    let mut bench = bench(|_| {});
    bench.submit(0, write(0, 3 * 256));
    assert_eq!(bench.psns(), [0, 1, 2]);
    for psn in [3, 100, 0x80_0000, 0xff_ffff] {
        assert_eq!(bench.ack(psn), Feedback::default(), "{psn:#x}");
    }
    bench.ack(1);
    assert_eq!(bench.ack(0), Feedback::default());
    assert_eq!(bench.requester.in_flight(), 1);
}

#[test]
fn a_sequence_nak_sends_the_rest_again_and_a_second_one_does_not() {
    let mut bench = bench(|_| {});
    bench.submit(0, write(0, 8 * 256));
    bench.psns();
    let nak = Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR);
    assert_eq!(
        bench.aeth(2, nak),
        Feedback {
            acked: 2,
            lost: true
        }
    );
    assert_eq!(bench.psns(), [2, 3, 4, 5, 6, 7]);
    assert_eq!(
        bench.aeth(2, nak),
        Feedback {
            acked: 0,
            lost: false
        }
    );
    assert_eq!(bench.psns(), []);
    assert_eq!(
        bench.aeth(4, nak),
        Feedback {
            acked: 2,
            lost: true
        }
    );
    assert_eq!(bench.psns(), [4, 5, 6, 7]);
}

#[test]
fn a_timeout_sends_one_packet_and_the_answer_to_it_sends_the_rest() {
    let mut bench = bench(|_| {});
    bench.submit(0, write(0, 8 * 256));
    bench.psns();
    bench.clock(19 * MS);
    assert_eq!(bench.psns(), []);
    bench.clock(20 * MS);
    assert_eq!(bench.psns(), [0]);
    bench.clock(59 * MS);
    assert_eq!(bench.psns(), []);
    bench.clock(60 * MS);
    assert_eq!(bench.psns(), [0]);
    // The peer had the packets up to 4: they are not sent again.
    bench.ack(4);
    assert_eq!(bench.psns(), [5, 6, 7]);
}

#[test]
fn waiting_for_the_destination_is_not_silence_of_the_peer() {
    let mut bench = bench(|_| {});
    bench.submit(0, write(0, 4 * 256));
    bench.psns();
    bench.clock(20 * MS);
    // Other QPs take up the window for a minute.
    assert_eq!(bench.requester.deadline_ns(), None);
    bench.clock(60_000 * MS);
    assert_eq!(bench.sent(0), []);
    assert_eq!(bench.psns(), [0]);
    bench.aeth(0, Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR));
    assert_eq!(bench.requester.deadline_ns(), None);
    assert!(bench.device.completed.is_empty());
}

#[test]
fn a_read_is_asked_for_in_pieces_that_stay_the_same_when_asked_again() {
    let mut bench = bench(|_| {});
    bench.submit(0, read(0x1000, 20 * 256 - 6));
    let request = |offset: u64, bytes| {
        Body::ReadRequest(Reth {
            va: 0x1000 + offset,
            rkey: 0x1234,
            bytes,
        })
    };
    assert_eq!(
        bench.sent(64),
        [(0, request(0, 2048)), (8, request(2048, 2048))]
    );
    let aeth = Aeth {
        syndrome: Syndrome::Ack {
            credits: NO_CREDITS,
        },
        msn: 0,
    };
    bench.answer(0, Body::ReadResponse(ReadPart::First(aeth)), &[1; 256]);
    bench.answer(1, Body::ReadResponse(ReadPart::Middle), &[2; 256]);
    // Response 2 is lost.
    let feedback = bench.answer(3, Body::ReadResponse(ReadPart::Middle), &[4; 256]);
    assert!(feedback.lost);
    assert_eq!(
        bench.sent(64),
        [(2, request(512, 1536)), (8, request(2048, 2048))]
    );
    for psn in 2..16 {
        bench.answer(psn, Body::ReadResponse(ReadPart::Middle), &[3; 256]);
    }
    assert_eq!(bench.sent(64), [(16, request(4096, 1018))]);
    for psn in 16..19 {
        bench.answer(psn, Body::ReadResponse(ReadPart::Middle), &[3; 256]);
    }
    bench.answer(19, Body::ReadResponse(ReadPart::Last(aeth)), &[5; 250]);
    assert_eq!(bench.device.completed, [(0, Ok(()))]);
    assert_eq!(bench.device.returned[0].1.len(), 20 * 256 - 6);
}

#[test]
fn an_ack_beyond_a_read_means_that_its_response_is_lost() {
    let mut bench = bench(|_| {});
    bench.submit(0, write(0, 8));
    bench.submit(1, read(0, 8));
    bench.submit(2, write(0, 8));
    assert_eq!(bench.psns(), [0, 1, 2]);
    assert_eq!(
        bench.ack(2),
        Feedback {
            acked: 1,
            lost: true
        }
    );
    assert_eq!(bench.device.completed, [(0, Ok(()))]);
    assert_eq!(bench.psns(), [1, 2]);
}

#[test]
fn a_response_of_the_wrong_length_ends_in_bad_response() {
    for bytes in [0, 7, 9, 256] {
        let mut bench = bench(|_| {});
        bench.submit(0, read(0, 8));
        bench.psns();
        bench.answer(0, Body::ReadResponse(ReadPart::Middle), &vec![0; bytes]);
        assert_eq!(
            bench.device.completed,
            [(0, Err(Failure::BadResponse))],
            "{bytes} bytes"
        );
    }
}

#[test]
fn a_fence_waits_for_reads_and_atomics_before_it() {
    let mut bench = bench(|_| {});
    bench.submit(0, fetch_add(0, 1));
    bench.submit(1, write(0, 8));
    bench.submit(
        2,
        Operation {
            fence: true,
            ..write(0, 8)
        },
    );
    assert_eq!(bench.psns(), [0, 1]);
    let aeth = Aeth {
        syndrome: Syndrome::Ack {
            credits: NO_CREDITS,
        },
        msn: 0,
    };
    bench.answer(0, Body::AtomicAcknowledge { aeth, original: 5 }, &[]);
    assert_eq!(bench.psns(), [2]);
    assert_eq!(bench.device.returned, [(0, 5_u64.to_ne_bytes().to_vec())]);
}

#[test]
fn no_more_reads_and_atomics_are_under_way_than_the_peer_allows() {
    let mut bench = bench(|config| config.max_read_atomic = 2);
    (0..4).for_each(|tag| bench.submit(tag, fetch_add(0, 1)));
    assert_eq!(bench.psns(), [0, 1]);
    let aeth = Aeth {
        syndrome: Syndrome::Ack {
            credits: NO_CREDITS,
        },
        msn: 0,
    };
    bench.answer(0, Body::AtomicAcknowledge { aeth, original: 0 }, &[]);
    assert_eq!(bench.psns(), [2]);
}

#[test]
fn rnr_naks_count_only_in_a_row() {
    let mut bench = bench(|config| config.rnr_retry = 2);
    (0..3).for_each(|tag| bench.submit(tag, send(8)));
    bench.psns();
    let rnr = Syndrome::RnrNak { timer: 12 };
    for psn in [0, 0, 1, 1, 2, 2] {
        // An RNR NAK for a packet also acknowledges the packet before it.
        bench.aeth(psn, rnr);
        assert_eq!(bench.psns(), [], "held");
        bench.clock(bench.now_ns + 639_999);
        assert_eq!(bench.psns(), [], "held");
        bench.clock(bench.now_ns + 1);
        assert_eq!(bench.psns()[0], psn);
    }
    assert_eq!(bench.device.completed.len(), 2);
    bench.aeth(2, rnr);
    assert_eq!(
        bench.device.completed[2],
        (2, Err(Failure::RnrRetryExceeded))
    );
}

#[test]
fn a_local_fault_fails_its_operation_after_those_before_it() {
    let mut bench = bench(|_| {});
    bench.submit(0, write(0, 300));
    let broken = TestWqe {
        broken: true,
        ..TestWqe::new(1, vec![])
    };
    bench.requester.submit(broken, write(0, 300)).unwrap();
    bench.submit(2, write(0, 8));
    assert_eq!(bench.psns(), [0, 1]);
    assert!(bench.device.completed.is_empty());
    bench.ack(1);
    let outcomes = [
        (0, Ok(())),
        (1, Err(Failure::LocalProtection)),
        (2, Err(Failure::Flushed)),
    ];
    assert_eq!(bench.device.completed, outcomes);
    bench.submit(3, write(0, 8));
    assert_eq!(bench.psns(), []);
    assert!(matches!(
        bench.requester.take_completion(),
        Some(Completion {
            outcome: Err(Failure::Flushed),
            ..
        })
    ));
}

#[test]
fn a_full_requester_gives_the_operation_back() {
    let mut bench = bench(|_| {});
    (0..MAX_OPERATIONS).for_each(|tag| bench.submit(tag, write(0, 0)));
    assert!(!bench.requester.has_room());
    let back = bench
        .requester
        .submit(TestWqe::new(99, vec![]), write(0, 0))
        .unwrap_err();
    assert_eq!(back.tag, 99);
}

fn any_response() -> impl Strategy<Value = Body> {
    let syndrome = any::<u8>().prop_map(|byte| Aeth::parse(&[byte, 0, 0, 0]));
    prop_oneof![
        syndrome.clone().prop_map(Body::Acknowledge),
        syndrome
            .clone()
            .prop_map(|aeth| Body::ReadResponse(ReadPart::Only(aeth))),
        Just(Body::ReadResponse(ReadPart::Middle)),
        (syndrome, any::<u64>())
            .prop_map(|(aeth, original)| Body::AtomicAcknowledge { aeth, original }),
    ]
}

proptest! {
    #[test]
    fn no_sequence_of_responses_does_harm(
        operations in prop::collection::vec((0u32..4, 0usize..2000, any::<bool>()), 1..20),
        responses in prop::collection::vec((0u32..20, any_response(), prop_oneof![Just(256usize), 0usize..300], 0..30 * MS), 0..100),
    ) {
        let mut bench = bench(|_| {});
        let count = operations.len();
        for (tag, (kind, bytes, fence)) in operations.into_iter().enumerate() {
            let operation = match kind {
                0 => write(0, bytes),
                1 => send(bytes),
                2 => read(0, bytes),
                _ => fetch_add(0, 1),
            };
            bench.submit(tag, Operation { fence, ..operation });
        }
        for (step, body, bytes, pause_ns) in responses {
            bench.psns();
            let psn = bench.requester.psn_of(bench.requester.unacked).add(step).sub(2).value();
            bench.answer(psn, body, &vec![1; bytes]);
            bench.clock(bench.now_ns + pause_ns);
            prop_assert!(bench.requester.in_flight() <= 16);
        }
        // The peer falls silent: every operation ends, in order, and failures come last.
        for _ in 0..100 {
            bench.psns();
            let Some(deadline_ns) = bench.requester.deadline_ns() else { break };
            bench.clock(deadline_ns);
        }
        while let Some(completion) = bench.requester.take_completion() {
            bench.device.complete(1, completion.wqe, completion.outcome);
        }
        let completed = &bench.device.completed;
        prop_assert_eq!(completed.len(), count);
        prop_assert!(completed.iter().map(|(tag, _)| *tag).eq(0..count));
        prop_assert!(completed.iter().map(|(_, outcome)| outcome.is_err()).is_sorted());
    }
}

#[test]
fn what_a_service_lacks_fails_after_the_operations_before_it() {
    let xrc = |mut operation: Operation| {
        operation.to = Target::Srq(1);
        operation
    };
    let cases = [
        (Service::Uc, write(0, 8), read(0, 8)),
        (Service::Uc, write(0, 8), fetch_add(0, 1)),
        (Service::Uc, write(0, 8), xrc(write(0, 8))),
        (Service::Rc, write(0, 8), xrc(write(0, 8))),
        (Service::XrcInitiator, xrc(write(0, 8)), write(0, 8)),
    ];
    for (service, good, bad) in cases {
        let mut bench = bench(|config| config.service = service);
        bench.submit(1, good);
        bench.submit(2, bad);
        bench.submit(3, good);
        assert_eq!(bench.sent(64).len(), 1, "{service:?} {bad:?}");
        if service != Service::Uc {
            bench.requester.acknowledge_before(0, 1);
            bench.requester.apply_fault();
        }
        let ends: Vec<_> = std::iter::from_fn(|| bench.requester.take_completion())
            .map(|completion| (completion.wqe.tag, completion.outcome))
            .collect();
        assert_eq!(
            ends,
            [
                (1, Ok(())),
                (2, Err(Failure::LocalOperation)),
                (3, Err(Failure::Flushed))
            ],
            "{service:?} {bad:?}"
        );
    }
}

#[test]
fn uc_needs_no_answer_and_asks_for_none() {
    let mut bench = bench(|config| config.service = Service::Uc);
    for tag in 0..3 {
        bench.submit(tag, write(0, 1000));
    }
    assert_eq!(bench.sent(64).len(), 12);
    assert_eq!(bench.requester.in_flight(), 0);
    assert_eq!(bench.requester.deadline_ns(), None);
    let ends = std::iter::from_fn(|| bench.requester.take_completion());
    assert_eq!(ends.filter(|end| end.outcome.is_ok()).count(), 3);
}
