//! The same WQEs over packets: two HCAs of one process whose loopback is off, and a seeded schedule.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::qp::{QpState, Qpc};
use mlx5_prm::wqe::{AtomicSeg, CtrlSeg, OPMOD_MASKED_4_BYTES, WqeOpcode};
use softhca::HcaConfig;
use softhca_rig::patience::{HANG, QUIET, wait_until};
use softhca_rig::{Pair, Shape, data, inline, raddr};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn over_packets(shape: Shape) -> Pair {
    let config = HcaConfig {
        loopback: false,
        ..HcaConfig::default()
    };
    Pair::with(&config, shape.clone(), shape)
}

fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    (0..bytes).map(|_| rng.u8(..)).collect()
}

#[test]
fn writes_and_reads_of_many_packets_arrive() {
    let mut pair = over_packets(Shape {
        data_bytes: 1 << 20,
        ..Shape::default()
    });
    let bytes = pattern(300_000, 1);
    pair.a.data.write(5, &bytes);
    let (remote, rkey) = (pair.b.data.address() + 11, pair.b.keys.rkey);
    pair.a.write(5, 300_000, remote, rkey);
    let rest = [
        raddr(remote, rkey),
        data(300_000, pair.a.keys.lkey, pair.a.data.address() + 500_000),
    ]
    .concat();
    pair.a
        .write_wqe(WqeOpcode::RDMA_READ, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    for cqe in pair.a.run(2) {
        assert_eq!(cqe.opcode(), CqeOpcode::REQ);
    }
    assert!(pair.b.data.read(11, 300_000) == bytes);
    assert!(pair.a.data.read(500_000, 300_000) == bytes);
    pair.assert_clean();
    let counters = pair.hca_a.counters();
    assert!(counters.packets_sent > 300, "{counters:?}");
    assert_eq!(counters.bytes_sent, 300_000);
    assert_eq!(counters.bytes_received, 300_000);
}

#[test]
fn atomics_immediates_and_sends_arrive() {
    let mut pair = over_packets(Shape {
        log_receive: Some(3),
        ..Shape::default()
    });
    let at = raddr(pair.b.data.address() + 64, pair.b.keys.rkey);
    pair.b.data.word(64).store(40, Ordering::Release);
    let operands = AtomicSeg {
        swap_add: 2.into(),
        compare: 0.into(),
    };
    let result = data(8, pair.a.keys.lkey, pair.a.data.address());
    let rest = [at.as_slice(), bytemuck::bytes_of(&operands), &result].concat();
    pair.a
        .write_wqe(WqeOpcode::ATOMIC_FA, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    // A masked add of 4 bytes: 1 to the low half.
    let result = data(4, pair.a.keys.lkey, pair.a.data.address() + 8);
    let rest = [at, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], result].concat();
    pair.a.write_wqe(
        WqeOpcode::ATOMIC_MASKED_FA,
        OPMOD_MASKED_4_BYTES,
        CtrlSeg::CE_ALWAYS,
        0,
        &rest,
    );
    pair.a.run(2);
    assert_eq!(pair.b.data.word(64).load(Ordering::Acquire), 43);
    assert_eq!(pair.a.data.word(0).load(Ordering::Acquire), 40);
    assert_eq!(
        pair.a.data.word(8).load(Ordering::Acquire),
        42_u32.to_be().into()
    );

    pair.b.post_receive(1000, 64);
    pair.b.post_receive(2000, 64);
    let rest = [
        raddr(pair.b.data.address(), pair.b.keys.rkey).as_slice(),
        &inline(&[9; 16]),
    ]
    .concat();
    pair.a
        .write_wqe(WqeOpcode::RDMA_WRITE_IMM, 0, CtrlSeg::CE_ALWAYS, 77, &rest);
    pair.a
        .write_wqe(WqeOpcode::SEND, 0, CtrlSeg::CE_ALWAYS, 0, &inline(&[8; 20]));
    pair.a.run(2);
    let first = pair.b.completion();
    assert_eq!(first.opcode(), CqeOpcode::RESP_WR_IMM);
    assert_eq!(first.imm_inval_pkey.get(), 77);
    assert_eq!(pair.b.completion().opcode(), CqeOpcode::RESP_SEND);
    assert_eq!(pair.b.data.read(0, 16), [9; 16]);
    assert_eq!(pair.b.data.read(2000, 20), [8; 20]);
    pair.assert_clean();
}

#[test]
fn completions_keep_the_order_of_the_wqes_nops_included() {
    let mut pair = over_packets(Shape::default());
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let mut expected = Vec::new();
    for round in 0..20u32 {
        expected.push(pair.a.write(0, 100 + round * 300, remote, rkey));
        expected.push(pair.a.nop(true));
    }
    let seen: Vec<u16> = pair
        .a
        .run(40)
        .iter()
        .map(|cqe| cqe.wqe_counter.get())
        .collect();
    assert_eq!(seen, expected);
    pair.assert_clean();
}

#[test]
fn a_bad_rkey_fails_its_wqe_and_flushes_those_behind_it() {
    let mut pair = over_packets(Shape {
        log_depth: 7,
        ..Shape::default()
    });
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write_inline(&[1; 8], remote, rkey);
    pair.a.write_inline(&[2; 8], remote + 8, rkey ^ 1);
    // More than the wire takes at once: some are flushed by the wire, some by the engine; a NOP in between.
    for at in 0..50 {
        if at == 20 {
            pair.a.nop(true);
        }
        pair.a.write_inline(&[3; 8], remote + 16, rkey);
    }
    let cqes = pair.a.run(53);
    assert_eq!(cqes[0].opcode(), CqeOpcode::REQ);
    assert_eq!(cqes[1].as_error().reason(), Syndrome::REMOTE_ACCESS_ERR);
    for (cqe, index) in cqes[1..].iter().zip(1u16..) {
        assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR, "WQE {index}");
        assert_eq!(cqe.wqe_counter.get(), index);
        if index > 1 {
            assert_eq!(
                cqe.as_error().reason(),
                Syndrome::WR_FLUSH_ERR,
                "WQE {index}"
            );
        }
    }
    assert_eq!(pair.b.data.read(0, 24), [[1; 8], [0; 8], [0; 8]].concat());
    wait_until("the peer's QP is in error", || {
        pair.b.query().state() == u32::from(QpState::ERR.0)
    });
}

#[test]
fn a_dead_peer_ends_in_retry_exceeded_and_a_reset_pair_talks_again() {
    let mut pair = over_packets(Shape {
        ack_timeout: 1,
        retry_count: 0,
        ..Shape::default()
    });
    pair.b.reset();
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write(0, 8, remote, rkey);
    pair.a.nop(true);
    let cqes = pair.a.run(2);
    assert_eq!(
        cqes[0].as_error().reason(),
        Syndrome::TRANSPORT_RETRY_EXC_ERR
    );
    assert_eq!(cqes[1].as_error().reason(), Syndrome::WR_FLUSH_ERR);
    pair.a.reset();
    pair.a.connect(pair.hca_b.gid(), pair.b.qpn, 0x77_7777);
    pair.b.connect(pair.hca_a.gid(), pair.a.qpn, 0x77_7777);
    pair.a.write_inline(&[6; 8], remote, rkey);
    assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
    assert_eq!(pair.b.data.read(0, 8), [6; 8]);
}

#[test]
fn to_error_flushes_what_is_on_the_wire() {
    let mut pair = over_packets(Shape::default());
    pair.hca_b.pause(2 * HANG);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    for _ in 0..40 {
        pair.a.write_inline(&[1; 8], remote, rkey);
    }
    pair.a.post();
    assert!(pair.a.poll_for(QUIET, |_| true).is_none());
    pair.a.modify(Opcode::TO_ERR_QP, Qpc::default()).unwrap();
    for index in 0..40u16 {
        let cqe = pair.a.completion();
        assert_eq!(cqe.as_error().reason(), Syndrome::WR_FLUSH_ERR);
        assert_eq!(cqe.wqe_counter.get(), index);
    }
}

#[test]
fn a_receiver_that_sleeps_for_50_ms_costs_time_and_no_data() {
    let mut pair = over_packets(Shape {
        log_depth: 10,
        log_cq: None,
        ..Shape::default()
    });
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let bytes = pattern(50_000, 9);
    pair.a.data.write(0, &bytes);
    pair.hca_b.pause(Duration::from_millis(50));
    let mut last = 0;
    for part in 0..500u64 {
        last = pair.a.write(part * 100, 100, remote + part * 100, rkey);
    }
    pair.a.post();
    pair.a
        .poll_for(HANG, |cqe| cqe.wqe_counter.get() == last)
        .expect("all parts complete");
    assert!(pair.b.data.read(0, 50_000) == bytes);
    pair.assert_clean();
}

#[test]
fn any_schedule_moves_the_same_bytes() {
    for seed in 0..6 {
        for loopback in [true, false] {
            let config = HcaConfig {
                schedule_seed: Some(seed),
                loopback,
                ..HcaConfig::default()
            };
            let mut pair = Pair::with(&config, Shape::default(), Shape::default());
            let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
            for round in 0..50u8 {
                let at = u64::from(round % 8) * 64;
                let word = u64::from(round);
                pair.a.write_inline(&[round; 40], remote + at, rkey);
                let signal = pair
                    .a
                    .write_inline(&word.to_ne_bytes(), remote + 4096 + at, rkey);
                let cqes = pair.a.run(2);
                assert_eq!(
                    cqes[1].wqe_counter.get(),
                    signal,
                    "seed {seed} loopback {loopback}"
                );
                let at = usize::try_from(at).unwrap();
                assert_eq!(
                    pair.b.data.read(at, 40),
                    [round; 40],
                    "seed {seed} loopback {loopback}"
                );
                assert_eq!(pair.b.data.word(4096 + at).load(Ordering::Acquire), word);
            }
            pair.assert_clean();
        }
    }
}
