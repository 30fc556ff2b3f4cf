//! Tests of requester and responder joined by a link that loses, reorders, duplicates and corrupts packets, in virtual time.

mod services;

use super::icrc::Flow;
use super::packet::{Body, MAX_OVERHEAD_BYTES, Packet, icrc_matches, seal};
use super::psn::Psn;
use super::requester::{Requester, RequesterConfig};
use super::responder::{Responder, ResponderConfig};
use super::testing::{RKEY, TestDevice, TestWqe, fetch_add, operation, read, send, write};
use crate::transport::{Device, Failure, Operation, OperationKind, SendWith, Service};
use std::net::Ipv4Addr;

const MTU: u32 = 256;
const QPN: u32 = 9;
const FLOW: Flow = Flow::v4(Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));

/// The faults of the link, in percent of packets.
#[derive(Clone, Copy, Debug, Default)]
struct Faults {
    lost: u32,
    duplicated: u32,
    reordered: u32,
    corrupted: u32,
}

const CLEAN: Faults = Faults {
    lost: 0,
    duplicated: 0,
    reordered: 0,
    corrupted: 0,
};
const ROUGH: Faults = Faults {
    lost: 10,
    duplicated: 10,
    reordered: 20,
    corrupted: 2,
};

struct Link {
    now_ns: u64,
    random: fastrand::Rng,
    faults: Faults,
    /// Packets on their way: arrival time, tie-breaker, whether it goes to the responder's side, datagram.
    flying: Vec<(u64, u64, bool, Vec<u8>)>,
    count: u64,
    requester: Requester<TestWqe>,
    responder: Responder,
    near: TestDevice,
    far: TestDevice,
    pending: Vec<(TestWqe, Operation)>,
}

impl Link {
    fn new(seed: u64, faults: Faults, first_psn: u32, memory: Vec<u8>) -> Self {
        Self::between((Service::Rc, Service::Rc), seed, faults, first_psn, memory)
    }

    /// Returns a link between a requester and a responder of these services.
    fn between(
        (near, far): (Service, Service),
        seed: u64,
        faults: Faults,
        first_psn: u32,
        memory: Vec<u8>,
    ) -> Self {
        let first_psn = Psn::new(first_psn);
        let requester = Requester::new(RequesterConfig {
            service: near,
            remote_qpn: QPN,
            first_psn,
            mtu: MTU,
            retry_count: 7,
            rnr_retry: 7,
            ack_timeout: 14,
            max_read_atomic: 4,
            window: 16,
        });
        let responder = Responder::new(ResponderConfig {
            service: far,
            remote_qpn: QPN,
            first_psn,
            mtu: MTU,
            min_rnr_timer: 12,
            max_read_atomic: 16,
        });
        Self {
            now_ns: 0,
            random: fastrand::Rng::with_seed(seed),
            faults,
            flying: vec![],
            count: 0,
            requester,
            responder,
            near: TestDevice::default(),
            far: TestDevice::new(memory),
            pending: vec![],
        }
    }

    fn percent(&mut self, chance: u32) -> bool {
        self.random.u32(0..100) < chance
    }

    fn launch(&mut self, to_responder: bool, datagram: Vec<u8>) {
        let copies = 1 + u32::from(self.percent(self.faults.duplicated));
        for _ in 0..copies {
            if self.percent(self.faults.lost) {
                continue;
            }
            let mut datagram = datagram.clone();
            if self.percent(self.faults.corrupted) {
                let at = self.random.usize(0..datagram.len());
                datagram[at] ^= 1 << self.random.u32(0..8);
            }
            let late = if self.percent(self.faults.reordered) {
                self.random.u64(0..100_000)
            } else {
                0
            };
            self.count += 1;
            self.flying.push((
                self.now_ns + 10_000 + late,
                self.count,
                to_responder,
                datagram,
            ));
        }
    }

    /// Lets both sides send all that they may send.
    fn transmit(&mut self) {
        let mut out = vec![0; MTU as usize + MAX_OVERHEAD_BYTES];
        while let Some((wqe, operation)) = self.pending.pop() {
            if let Err(wqe) = self.requester.submit(wqe, operation) {
                self.pending.push((wqe, operation));
                break;
            }
        }
        while let Some(used) =
            self.requester
                .poll_transmit(self.now_ns, QPN, 64, &mut self.near, &mut out)
        {
            let bytes = seal(&mut out, used, &FLOW);
            self.launch(true, out[..bytes].to_vec());
        }
        while let Some(used) = self.responder.poll_transmit(QPN, &mut self.far, &mut out) {
            let bytes = seal(&mut out, used, &FLOW);
            self.launch(false, out[..bytes].to_vec());
        }
    }

    fn arrive(&mut self, to_responder: bool, datagram: &[u8]) {
        if !icrc_matches(datagram, &FLOW) {
            return;
        }
        // The ICRC does not cover the congestion bits, so every packet whose ICRC is right can be parsed.
        let packet = Packet::parse(datagram).unwrap();
        if to_responder {
            self.responder.on_request(QPN, &packet, &mut self.far);
        } else {
            self.requester
                .on_response(self.now_ns, QPN, &packet, &mut self.near);
        }
        while let Some(completion) = self.requester.take_completion() {
            self.near.complete(QPN, completion.wqe, completion.outcome);
        }
    }

    /// Runs until all operations are complete.
    fn run(&mut self, operations: Vec<(TestWqe, Operation)>) {
        self.pending = operations;
        self.pending.reverse();
        for _ in 0..2_000_000 {
            self.transmit();
            let next = (0..self.flying.len())
                .min_by_key(|index| (self.flying[*index].0, self.flying[*index].1));
            let arrival_ns = next.map_or(u64::MAX, |index| self.flying[index].0);
            let deadline_ns = self.requester.deadline_ns().unwrap_or(u64::MAX);
            if arrival_ns == u64::MAX && deadline_ns == u64::MAX {
                return;
            }
            if let Some(index) = next.filter(|_| arrival_ns <= deadline_ns) {
                let (at_ns, _, to_responder, datagram) = self.flying.swap_remove(index);
                self.now_ns = at_ns;
                self.arrive(to_responder, &datagram);
            } else {
                self.now_ns = deadline_ns;
                self.requester.on_clock(self.now_ns);
                while let Some(completion) = self.requester.take_completion() {
                    self.near.complete(QPN, completion.wqe, completion.outcome);
                }
            }
        }
        panic!("does not end: {:?}", self.requester);
    }
}

/// Random operations, and the results that they must have, as if executed one after the other.
struct Model {
    operations: Vec<(TestWqe, Operation)>,
    memory: Vec<u8>,
    returned: Vec<(usize, Vec<u8>)>,
    sent: Vec<Vec<u8>>,
    bytes_written: u64,
    atomics: u64,
    receives: Vec<u32>,
}

/// End of the counters in memory, which begin at 0. Constants that are read follow up to `WRITABLE`, and the rest is written.
const READABLE: usize = 64;
const WRITABLE: usize = 4096;
const MEMORY: usize = 16 * 1024;

fn model(seed: u64, count: usize) -> (Vec<u8>, Model) {
    let mut random = fastrand::Rng::with_seed(seed);
    let initial: Vec<u8> = (0..MEMORY)
        .map(|index| if index < READABLE { 0 } else { random.u8(..) })
        .collect();
    let mut model = Model {
        operations: vec![],
        memory: initial.clone(),
        returned: vec![],
        sent: vec![],
        bytes_written: 0,
        atomics: 0,
        receives: vec![],
    };
    for tag in 0..count {
        let bytes = [0, 1, 8, 255, 256, 257, 1024, 3000][random.usize(..8)];
        let data: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
        let (mut operation, data) = match random.u32(0..10) {
            0..5 => {
                let va = random.usize(WRITABLE..MEMORY - bytes);
                model.memory[va..va + bytes].copy_from_slice(&data);
                model.bytes_written += bytes as u64;
                (write(va as u64, bytes), data)
            }
            5 | 6 => {
                let va = random.usize(READABLE..WRITABLE - bytes);
                if bytes > 0 {
                    model.returned.push((tag, initial[va..va + bytes].to_vec()));
                }
                (read(va as u64, bytes), vec![])
            }
            7 | 8 => {
                let (at, add) = (8 * random.usize(0..8), random.u64(..));
                let old = u64::from_ne_bytes(model.memory[at..at + 8].try_into().unwrap());
                model.memory[at..at + 8].copy_from_slice(&old.wrapping_add(add).to_ne_bytes());
                model.returned.push((tag, old.to_ne_bytes().to_vec()));
                model.atomics += 1;
                (fetch_add(at as u64, add), vec![])
            }
            _ => {
                model.sent.push(data.clone());
                model.receives.push(random.u32(0..3));
                (send(bytes), data)
            }
        };
        operation.fence = random.u32(0..8) == 0;
        model.operations.push((TestWqe::new(tag, data), operation));
    }
    (initial, model)
}

fn check(seed: u64, faults: Faults, first_psn: u32, count: usize) -> Link {
    let (initial, model) = model(seed, count);
    let link = Link::new(seed ^ 0x5eed, faults, first_psn, initial);
    check_on(link, seed, faults, first_psn, model)
}

fn check_on(mut link: Link, seed: u64, faults: Faults, first_psn: u32, model: Model) -> Link {
    let count = model.operations.len();
    link.far.receives = model.receives.iter().copied().collect();
    link.run(model.operations);
    let context = format!("seed {seed}, first PSN {first_psn:#x}, {faults:?}");
    let completed: Vec<_> = (0..count).map(|tag| (tag, Ok(()))).collect();
    assert_eq!(link.near.completed, completed, "{context}");
    assert_eq!(link.far.memory, model.memory, "{context}");
    assert_eq!(link.near.returned, model.returned, "{context}");
    assert_eq!(
        link.far.bytes_written, model.bytes_written,
        "every byte is written once; {context}"
    );
    assert_eq!(link.far.atomics_done, model.atomics, "{context}");
    let sent: Vec<Vec<u8>> = link
        .far
        .received
        .iter()
        .map(|(_, bytes)| bytes.clone())
        .collect();
    assert_eq!(sent, model.sent, "{context}");
    link
}

#[test]
fn a_clean_link_needs_no_packet_twice() {
    for seed in 0..5 {
        let (initial, model) = model(seed, 60);
        let mut link = Link::new(seed, CLEAN, 0, initial);
        link.far.receives = model.receives.iter().map(|_| 0).collect();
        link.run(model.operations);
        assert_eq!(link.requester.retransmitted(), 0, "seed {seed}");
        assert_eq!(link.far.memory, model.memory, "seed {seed}");
    }
}

#[test]
fn a_rough_link_changes_nothing_but_the_time() {
    let mut retransmitted = 0;
    for seed in 0..150 {
        retransmitted += check(seed, ROUGH, fastrand::Rng::with_seed(seed).u32(..), 60)
            .requester
            .retransmitted();
    }
    assert!(
        retransmitted > 1000,
        "only {retransmitted} packets were sent again: the link is not rough"
    );
}

#[test]
fn each_kind_of_fault_alone_changes_nothing_either() {
    let kinds = [
        Faults { lost: 30, ..CLEAN },
        Faults {
            duplicated: 50,
            ..CLEAN
        },
        Faults {
            reordered: 50,
            ..CLEAN
        },
        Faults {
            corrupted: 20,
            ..CLEAN
        },
    ];
    for faults in kinds {
        (0..20).for_each(|seed| drop(check(seed, faults, 0, 40)));
    }
}

#[test]
fn psns_wrap_through_two_to_the_24() {
    for seed in 0..40 {
        let first_psn = (1 << 24) - 1 - fastrand::Rng::with_seed(seed).u32(0..150);
        check(seed, ROUGH, first_psn, 60);
    }
}

#[test]
fn a_dead_peer_ends_in_retry_exceeded_and_the_rest_is_flushed() {
    let mut link = Link::new(1, Faults { lost: 100, ..CLEAN }, 7, vec![0; MEMORY]);
    let operations = (0..5)
        .map(|tag| (TestWqe::new(tag, vec![1; 300]), write(0, 300)))
        .collect();
    link.run(operations);
    let outcomes: Vec<_> = link
        .near
        .completed
        .iter()
        .map(|(_, outcome)| *outcome)
        .collect();
    assert_eq!(outcomes[0], Err(Failure::RetryExceeded));
    assert_eq!(outcomes[1..], [Err(Failure::Flushed); 4]);
    assert!(
        link.now_ns >= 4_000_000_000 && link.now_ns < 5_000_000_000,
        "after {} ns",
        link.now_ns
    );
}

#[test]
fn a_refusal_names_the_right_operation_also_when_the_nak_gets_lost() {
    let refusals: [(Operation, Failure); 3] = [
        (write(MEMORY as u64, 300), Failure::RemoteAccess),
        (read(MEMORY as u64 - 1, 300), Failure::RemoteAccess),
        (
            operation(
                OperationKind::Write {
                    va: 0,
                    rkey: RKEY + 1,
                    immediate: Some(1),
                },
                300,
            ),
            Failure::RemoteAccess,
        ),
    ];
    for (seed, (bad, failure)) in (0..30).zip(refusals.into_iter().cycle()) {
        let (initial, mut model) = model(seed, 10);
        let mut link = Link::new(seed, ROUGH, 99, initial);
        link.far.receives = model.receives.iter().copied().collect();
        model.operations.push((TestWqe::new(10, vec![7; 300]), bad));
        model
            .operations
            .push((TestWqe::new(11, vec![7; 300]), write(WRITABLE as u64, 300)));
        link.run(model.operations);
        let expected: Vec<_> = (0..10)
            .map(|tag| (tag, Ok(())))
            .chain([(10, Err(failure)), (11, Err(Failure::Flushed))])
            .collect();
        assert_eq!(link.near.completed, expected, "seed {seed}");
        assert_eq!(link.far.memory, model.memory, "seed {seed}");
        assert!(link.far.refused.is_some(), "seed {seed}");
    }
}

#[test]
fn a_missing_receive_ends_in_rnr_retry_exceeded() {
    let mut link = Link::new(3, CLEAN, 5, vec![0; MEMORY]);
    let config = RequesterConfig {
        service: Service::Rc,
        remote_qpn: QPN,
        first_psn: Psn::new(5),
        mtu: MTU,
        retry_count: 7,
        rnr_retry: 3,
        ack_timeout: 14,
        max_read_atomic: 1,
        window: 16,
    };
    link.requester = Requester::new(config);
    let with = SendWith::Immediate(6);
    link.run(vec![
        (TestWqe::new(0, vec![1; 8]), write(0, 8)),
        (
            TestWqe::new(1, vec![2; 600]),
            operation(OperationKind::Send { with }, 600),
        ),
    ]);
    assert_eq!(
        link.near.completed,
        [(0, Ok(())), (1, Err(Failure::RnrRetryExceeded))]
    );
    assert!(
        link.now_ns < 10_000_000,
        "four RNR delays of 0.64 ms, not {} ns",
        link.now_ns
    );
}

#[test]
fn a_duplicate_of_the_past_does_no_harm() {
    // Every packet that ever flew towards the responder arrives again at the end.
    let (initial, model) = model(77, 40);
    let mut link = Link::new(77, CLEAN, 0xff_fff0, initial);
    link.far.receives = model.receives.iter().copied().collect();
    let mut all = vec![];
    link.pending = model.operations;
    link.pending.reverse();
    for _ in 0..100_000 {
        link.transmit();
        all.extend(
            link.flying
                .iter()
                .filter(|flight| flight.2)
                .map(|flight| (flight.1, flight.3.clone())),
        );
        let Some(index) = (0..link.flying.len()).min_by_key(|index| link.flying[*index].1) else {
            break;
        };
        let (_, _, to_responder, datagram) = link.flying.remove(index);
        link.now_ns += 1_000_000;
        link.requester.on_clock(link.now_ns);
        link.arrive(to_responder, &datagram);
    }
    all.sort();
    all.dedup();
    let before = (
        link.far.memory.clone(),
        link.far.bytes_written,
        link.far.atomics_done,
        link.far.received.len(),
    );
    for (_, datagram) in &all {
        link.arrive(true, datagram);
    }
    let after = (
        link.far.memory.clone(),
        link.far.bytes_written,
        link.far.atomics_done,
        link.far.received.len(),
    );
    assert!(all.len() > 40 && before == after);
    assert!(!matches!(
        Packet::parse(&all[0].1).unwrap().body,
        Body::Acknowledge(_)
    ));
}
