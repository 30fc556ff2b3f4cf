//! Shared receive queues: order, limits, errors, and what becomes of their QPs.

use mlx5_prm::cmd::{Opcode, Status};
use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::qp::{QpState, Qpc};
use mlx5_prm::srq::{Rmpc, Wq};
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::device::{DeviceError, Event, Simulation};
use softhca::wire::memory::Network;
use softhca::{Hca, HcaConfig};
use softhca_rig::patience::{QUIET, wait_until};
use softhca_rig::shared::{SharedKind, SharedQueue};
use softhca_rig::{End, Pair, QP_INDEX, Shape, data, simulated_pair};
use std::time::Duration;

/// Returns a sender `a` and a receiver `b` with a shared receive queue of `1 << log` WQEs, by memory or by packets.
fn pair(log: u32, loopback: bool) -> Pair {
    let config = HcaConfig {
        loopback,
        ..HcaConfig::default()
    };
    let receiver = Shape {
        log_srq: Some(log),
        ..Shape::default()
    };
    Pair::with(&config, Shape::default(), receiver)
}

/// Writes a SEND of `bytes` bytes from `offset` of the own data.
fn send(end: &mut End, offset: u64, bytes: u32) -> u16 {
    let rest = data(bytes, end.keys.lkey, end.data.address() + offset);
    // A segment of length 0 would stand for 2^31 bytes.
    let rest = if bytes == 0 { &[][..] } else { &rest };
    end.write_wqe(WqeOpcode::SEND, 0, CtrlSeg::CE_ALWAYS, 0, rest)
}

fn srq(end: &mut End) -> &mut SharedQueue {
    end.srq.as_mut().unwrap()
}

/// Posts a WQE of one segment at `offset` of the data. Its index.
fn post(end: &mut End, offset: u64, bytes: u32) -> u16 {
    let (lkey, address) = (end.keys.lkey, end.data.address() + offset);
    srq(end).post(&[(bytes, lkey, address)])
}

/// Waits until the events of an end are these.
fn await_events(end: &End, expected: &[Event]) {
    wait_until(&format!("{expected:?}"), || {
        end.events.lock().unwrap().len() >= expected.len()
    });
    assert_eq!(*end.events.lock().unwrap(), expected);
}

fn refusal(outcome: Result<(), DeviceError>) -> Status {
    match outcome {
        Err(DeviceError::Refused { status, .. }) => status,
        other => panic!("{other:?} is not a refusal"),
    }
}

#[test]
fn two_qps_take_wqes_from_one_queue_in_the_order_of_its_list() {
    for loopback in [true, false] {
        let seed = 0x5a5a;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut pair = pair(2, loopback);
        let mut second = pair.b.beside(Shape::default());
        let mut other = End::new(&pair.hca_a, Shape::default());
        other.connect(pair.hca_b.gid(), second.qpn, 7);
        second.connect(pair.hca_a.gid(), other.qpn, 7);
        let mut expected = std::collections::VecDeque::new();
        let mut held = Vec::new();
        for round in 0..40u32 {
            while expected.len() < 3 && (held.is_empty() || expected.len() + held.len() < 3) {
                expected.push_back(post(&mut pair.b, 0, 64));
            }
            if !held.is_empty() && (expected.is_empty() || rng.bool()) {
                // Given back in any order.
                let index = held.swap_remove(rng.usize(0..held.len()));
                srq(&mut pair.b).free(index);
                expected.push_back(post(&mut pair.b, 0, 64));
                continue;
            }
            let first = rng.bool();
            let text = round.to_be_bytes();
            let (from, to) = if first {
                (&mut pair.a, &mut pair.b)
            } else {
                (&mut other, &mut second)
            };
            from.data.write(0, &text);
            send(from, 0, 4);
            assert_eq!(
                from.run(1)[0].opcode(),
                CqeOpcode::REQ,
                "seed {seed:#x} {round}"
            );
            let cqe = to.completion();
            assert_eq!(cqe.opcode(), CqeOpcode::RESP_SEND);
            assert_eq!(
                cqe.wqe_counter.get(),
                expected.pop_front().unwrap(),
                "seed {seed:#x} {round}"
            );
            assert_eq!(cqe.srqn_uidx.get(), QP_INDEX);
            assert_eq!(cqe.sop_drop_qpn.get() & 0xff_ffff, to.qpn);
            assert_eq!(pair.b.data.read(0, 4), text);
            held.push(cqe.wqe_counter.get());
        }
        pair.assert_clean();
    }
}

#[test]
fn wqes_of_a_ring_are_taken_one_after_the_other_and_named_by_number() {
    for loopback in [true, false] {
        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let receiver = Shape {
            log_srq: Some(2),
            ring_srq: true,
            ..Shape::default()
        };
        let mut pair = Pair::with(&config, Shape::default(), receiver);
        assert_eq!(srq(&mut pair.b).query().wq().wq_type(), Wq::TYPE_CYCLIC);
        // Three times around, 4 at once, each to a place of its own.
        for round in 0..3u16 {
            for place in 0..4u16 {
                let posted = post(&mut pair.b, u64::from(place) * 64, 64);
                assert_eq!(posted, round * 4 + place);
            }
            for place in 0..4u16 {
                let number = round * 4 + place;
                pair.a.data.write(0, &number.to_be_bytes());
                send(&mut pair.a, 0, 2);
                assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
                let cqe = pair.b.completion();
                assert_eq!(cqe.opcode(), CqeOpcode::RESP_SEND);
                assert_eq!(cqe.wqe_counter.get(), number);
                let found = pair.b.data.read(usize::from(place) * 64, 2);
                assert_eq!(found, number.to_be_bytes());
            }
        }
        // The ring is empty now: the sender waits.
        send(&mut pair.a, 0, 2);
        pair.a.post();
        assert!(pair.a.poll_for(QUIET, |_| true).is_none());
        assert_eq!(post(&mut pair.b, 0, 64), 12);
        assert_eq!(pair.a.completion().opcode(), CqeOpcode::REQ);
        assert_eq!(pair.b.completion().wqe_counter.get(), 12);
        pair.assert_clean();
    }
}

#[test]
fn an_empty_queue_asks_the_sender_to_wait() {
    for loopback in [true, false] {
        let mut pair = pair(4, loopback);
        send(&mut pair.a, 0, 8);
        pair.a.post();
        assert!(pair.a.poll_for(QUIET, |_| true).is_none());
        post(&mut pair.b, 0, 8);
        assert_eq!(pair.a.completion().opcode(), CqeOpcode::REQ);
        assert_eq!(pair.b.completion().opcode(), CqeOpcode::RESP_SEND);

        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let receiver = Shape {
            log_srq: Some(2),
            ..Shape::default()
        };
        let sender = Shape {
            rnr_retry: 1,
            ..Shape::default()
        };
        let mut pair = Pair::with(&config, sender, receiver);
        send(&mut pair.a, 0, 8);
        let cqe = pair.a.run(1)[0];
        assert_eq!(cqe.as_error().reason(), Syndrome::RNR_RETRY_EXC_ERR);
        assert_eq!(pair.b.query().state(), u32::from(QpState::RTS.0));
    }
}

#[test]
fn a_message_may_be_empty_or_fill_its_wqe_and_no_longer() {
    for loopback in [true, false] {
        let mut pair = pair(4, loopback);
        // Three segments, one of them empty.
        let (lkey, at) = (pair.b.keys.lkey, pair.b.data.address());
        let segments = [(3000, lkey, at), (0, lkey, at), (3001, lkey, at + 0x2000)];
        for _ in 0..3 {
            srq(&mut pair.b).post(&segments);
        }
        let text: Vec<u8> = (0..6001u32).map(|n| n.to_be_bytes()[3]).collect();
        pair.a.data.write(0, &text);
        for bytes in [0, 6001] {
            send(&mut pair.a, 0, bytes);
            assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
            let cqe = pair.b.completion();
            assert_eq!(
                (cqe.opcode(), cqe.byte_cnt.get()),
                (CqeOpcode::RESP_SEND, bytes)
            );
        }
        assert_eq!(pair.b.data.read(0, 3000), text[..3000]);
        assert_eq!(pair.b.data.read(0x2000, 3001), text[3000..]);

        send(&mut pair.a, 0, 6002);
        let cqe = pair.a.run(1)[0];
        assert_eq!(cqe.as_error().reason(), Syndrome::REMOTE_INVAL_REQ_ERR);
        let cqe = pair.b.completion();
        assert_eq!(cqe.opcode(), CqeOpcode::RESP_ERR);
        assert_eq!(cqe.as_error().reason(), Syndrome::LOCAL_LENGTH_ERR);
        assert_eq!(cqe.wqe_counter.get(), 2);
    }
}

#[test]
fn the_limit_event_comes_once_and_at_once_if_it_is_passed_already() {
    let mut pair = pair(3, true);
    let limit = Event::SrqLimit(srq(&mut pair.b).number);
    assert_eq!(refusal(srq(&mut pair.b).arm(8)), Status::BAD_PARAM);
    for _ in 0..5 {
        post(&mut pair.b, 0, 8);
    }
    srq(&mut pair.b).arm(4).unwrap();
    assert_eq!(srq(&mut pair.b).query().wq().lwm(), 4);
    for expected in [&[][..], &[limit], &[limit]] {
        send(&mut pair.a, 0, 8);
        pair.a.run(1);
        pair.b.completion();
        await_events(&pair.b, expected);
    }
    assert_eq!(srq(&mut pair.b).query().wq().lwm(), 0);
    srq(&mut pair.b).arm(7).unwrap();
    await_events(&pair.b, &[limit, limit]);
}

#[test]
fn a_qp_in_error_leaves_wqes_to_others_and_reports_that_it_takes_no_more() {
    for loopback in [true, false] {
        let mut pair = pair(4, loopback);
        let mut second = pair.b.beside(Shape::default());
        let mut other = End::new(&pair.hca_a, Shape::default());
        other.connect(pair.hca_b.gid(), second.qpn, 7);
        second.connect(pair.hca_a.gid(), other.qpn, 7);
        let index = post(&mut pair.b, 0, 8);
        pair.b.modify(Opcode::TO_ERR_QP, Qpc::default()).unwrap();
        // The handler is the second end's, which was set last.
        await_events(&second, &[Event::QpLastWqe(pair.b.qpn)]);
        let flushed = pair.b.poll_for(QUIET, |_| true);
        assert!(flushed.is_none(), "{flushed:?}");
        send(&mut other, 0, 8);
        assert_eq!(other.run(1)[0].opcode(), CqeOpcode::REQ);
        assert_eq!(second.completion().wqe_counter.get(), index);
        await_events(&second, &[Event::QpLastWqe(pair.b.qpn)]);
    }
}

#[test]
fn a_message_cut_off_by_the_end_of_its_qp_returns_its_wqe_as_flushed() {
    // Without threads: the message has begun and is not over, because the test takes turn after turn.
    let simulation = Simulation::new();
    let network = Network::with_latency(1000);
    let by_packets = HcaConfig {
        loopback: false,
        ..HcaConfig::default()
    };
    let hcas = simulated_pair(&simulation, &network, &by_packets);
    let big = 24 << 20;
    let receiver = Shape {
        log_srq: Some(2),
        data_bytes: big,
        ..Shape::default()
    };
    let sender = Shape {
        data_bytes: big,
        ..Shape::default()
    };
    let mut a = End::new(&hcas[0], sender);
    let mut b = End::new(&hcas[1], receiver);
    a.connect(hcas[1].gid(), b.qpn, 7);
    b.connect(hcas[0].gid(), a.qpn, 7);
    let length = u32::try_from(big).unwrap();
    let index = post(&mut b, 0, length);
    a.data.write(0, &[1]);
    a.data.write(big - 1, &[1]);
    send(&mut a, 0, length);
    a.post();
    let mut now_ns = simulation.now_ns();
    while b.data.read(0, 1) == [0] {
        let step = simulation.step(now_ns);
        if !step.busy {
            now_ns = step.deadline_ns.expect("the message is under way");
        }
    }
    assert_eq!(b.data.read(big - 1, 1), [0], "it is not over");
    assert!(b.poll_for(Duration::ZERO, |_| true).is_none());
    b.modify(Opcode::TO_ERR_QP, Qpc::default()).unwrap();
    simulation.step(now_ns);
    let cqe = b.poll_for(Duration::ZERO, |_| true).expect("it is flushed");
    assert_eq!(cqe.as_error().reason(), Syndrome::WR_FLUSH_ERR);
    assert_eq!(cqe.wqe_counter.get(), index);
    simulation.step(now_ns);
    assert_eq!(*b.events.lock().unwrap(), [Event::QpLastWqe(b.qpn)]);
}

#[test]
fn keys_in_a_shared_wqe_are_of_the_domain_of_the_queue() {
    let mut pair = pair(4, true);
    // The second end has a domain of its own, and uses the first one's queue.
    let mut second = pair.b.beside(Shape::default());
    let mut other = End::new(&pair.hca_a, Shape::default());
    other.connect(pair.hca_b.gid(), second.qpn, 7);
    second.connect(pair.hca_a.gid(), other.qpn, 7);
    post(&mut pair.b, 0, 8);
    let (lkey, address) = (second.keys.lkey, second.data.address());
    srq(&mut pair.b).post(&[(8, lkey, address)]);
    send(&mut other, 0, 8);
    assert_eq!(other.run(1)[0].opcode(), CqeOpcode::REQ);
    assert_eq!(second.completion().opcode(), CqeOpcode::RESP_SEND);
    send(&mut other, 0, 8);
    assert_eq!(other.run(1)[0].as_error().reason(), Syndrome::REMOTE_OP_ERR);
    let cqe = second.completion();
    assert_eq!(cqe.as_error().reason(), Syndrome::LOCAL_PROT_ERR);
}

#[test]
fn a_list_that_leads_astray_is_reported_and_ends_the_queue() {
    type Spoil = fn(&mut SharedQueue);
    let cases: [(&str, Spoil); 2] = [
        // WQE 1 is posted; what it says is followed for the one after it.
        ("names 99 as the next", |srq| {
            srq.link(1, 99);
            srq.record_as(3);
        }),
        ("17 ahead of the device", |srq| srq.record_as(18)),
    ];
    for (words, spoil) in cases {
        let mut pair = pair(4, true);
        post(&mut pair.b, 0, 8);
        post(&mut pair.b, 0, 8);
        send(&mut pair.a, 0, 8);
        pair.a.run(1);
        pair.b.completion();
        spoil(srq(&mut pair.b));
        for _ in 0..2 {
            send(&mut pair.a, 0, 8);
        }
        pair.a.post();
        let failed = (0..2)
            .map(|_| pair.a.completion())
            .find(|cqe| cqe.opcode() == CqeOpcode::REQ_ERR)
            .unwrap();
        assert_eq!(
            failed.as_error().reason(),
            Syndrome::REMOTE_OP_ERR,
            "{words}"
        );
        let error = Event::SrqError(srq(&mut pair.b).number);
        wait_until(words, || pair.b.events.lock().unwrap().contains(&error));
        assert_eq!(srq(&mut pair.b).query().state(), Rmpc::STATE_ERR);
        let findings = pair.hca_b.findings();
        assert!(
            findings.iter().any(|text| text.contains(words)),
            "{findings:?}"
        );
    }
}

#[test]
fn what_makes_no_queue_is_refused_and_what_is_in_use_stays() {
    let pair = pair(4, true);
    let b = &pair.b;
    let object = b.srq.as_ref().unwrap().object;
    assert_eq!(refusal(b.context.devx_destroy(object)), Status::RES_BUSY);

    let hca = Hca::new().unwrap();
    let made = softhca_rig::bringup::bring_up(&hca).unwrap();
    let good = softhca_rig::shared::input(made.pdn, made.umem, 4, SharedKind::List);
    let input = mlx5_prm::srq::CreateRmpIn::from_prefix(&good);
    let wq = *input.ctx().wq();
    let with = |wq: Wq| input.with_ctx(input.ctx().with_wq(wq));
    let cases = [
        (with(wq.with_pd(0)), Status::BAD_RES),
        (with(wq.with_wq_umem_id(0)), Status::BAD_RES),
        (with(wq.with_log_wq_sz(20)), Status::LIM_ERR),
        (with(wq.with_log_wq_stride(4)), Status::LIM_ERR),
        (with(wq.with_log_wq_stride(11)), Status::LIM_ERR),
        (with(wq.with_lwm(16)), Status::BAD_PARAM),
        (with(wq.with_wq_umem_offset(1 << 40)), Status::BAD_PARAM),
        (with(wq.with_dbr_addr(4)), Status::BAD_PARAM),
        // Several messages to a WQE; WQEs without a header.
        (with(wq.with_wq_type(2)), Status::BAD_PARAM),
        (with(wq.with_wq_type(3)), Status::BAD_PARAM),
        (
            input.with_ctx(input.ctx().with_basic_cyclic_rcv_wqe(1)),
            Status::BAD_PARAM,
        ),
        (
            input.with_ctx(input.ctx().with_state(3)),
            Status::BAD_RES_STATE,
        ),
    ];
    for (bad, status) in cases {
        let outcome = softhca_rig::create(&made.context, bad.as_bytes());
        assert_eq!(softhca_rig::bringup::refused(outcome).0, status, "{bad:?}");
    }
    let before = made.context.live_objects();
    let (object, _) = softhca_rig::create(&made.context, &good).unwrap();
    assert_eq!(made.context.live_objects().srq, before.srq + 1);
    assert_eq!(
        made.context.dereg_umem(made.umem).unwrap_err().errno(),
        libc::EBUSY
    );
    made.context.devx_destroy(object).unwrap();
    assert_eq!(made.context.live_objects(), before);
}
