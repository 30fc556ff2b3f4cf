//! Errors and their reports: syndromes, flush, states, findings.

use mlx5_prm::cmd::Opcode;
use mlx5_prm::cqe::{Cqe64, CqeOpcode, Syndrome};
use mlx5_prm::qp::{QpState, Qpc};
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::HcaConfig;
use softhca_rig::patience::{HANG, QUIET, wait_until};
use softhca_rig::{Pair, Shape, data, inline, raddr};
use std::time::{Duration, Instant};

fn is_error(cqe: &Cqe64, index: u16, syndrome: Syndrome) {
    assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR);
    assert_eq!(cqe.as_error().reason(), syndrome);
    assert_eq!(cqe.wqe_counter.get(), index);
}

fn has_finding(findings: &[String], words: &str) {
    assert!(
        findings.iter().any(|text| text.contains(words)),
        "no finding says {words:?}: {findings:#?}"
    );
}

#[test]
fn a_bad_rkey_fails_its_wqe_and_flushes_those_behind_it() {
    let mut pair = Pair::new(Shape::default());
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.a.write_inline(&[1; 8], remote, rkey);
    pair.a.write_inline(&[2; 8], remote + 8, rkey ^ 1);
    for _ in 0..3 {
        pair.a.write_inline(&[3; 8], remote + 16, rkey);
    }
    let cqes = pair.a.run(5);
    assert_eq!(cqes[0].opcode(), CqeOpcode::REQ);
    is_error(&cqes[1], 1, Syndrome::REMOTE_ACCESS_ERR);
    for (cqe, index) in cqes[2..].iter().zip(2..) {
        is_error(cqe, index, Syndrome::WR_FLUSH_ERR);
    }
    assert_eq!(pair.b.data.read(0, 24), [[1; 8], [0; 8], [0; 8]].concat());
    assert_eq!(pair.a.query().state(), u32::from(QpState::ERR.0));
    // The responder that refused is in error too.
    assert_eq!(pair.b.query().state(), u32::from(QpState::ERR.0));
    has_finding(&pair.hca_b.findings(), "no such key");
    assert_eq!(pair.hca_a.counters().error_cqes, 4);

    // What is posted afterwards is flushed as well, signalled or not.
    let index = pair.a.nop(false);
    let cqe = pair.a.run(1)[0];
    is_error(&cqe, index, Syndrome::WR_FLUSH_ERR);
}

#[test]
fn each_local_mistake_has_its_syndrome() {
    type Post = fn(&mut Pair) -> u16;
    let cases: [(&str, Syndrome, Post); 7] = [
        ("an unknown lkey", Syndrome::LOCAL_PROT_ERR, |pair| {
            let rest = [
                raddr(pair.b.data.address(), pair.b.keys.rkey),
                data(8, pair.a.keys.lkey + 0x100, pair.a.data.address()),
            ];
            let rest = rest.concat();
            pair.a
                .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &rest)
        }),
        (
            "a local range beyond the key",
            Syndrome::LOCAL_PROT_ERR,
            |pair| {
                let end = pair.a.data.bytes();
                pair.a
                    .write(end - 7, 8, pair.b.data.address(), pair.b.keys.rkey)
            },
        ),
        ("an unknown opcode", Syndrome::LOCAL_QP_OP_ERR, |pair| {
            pair.a
                .write_wqe(WqeOpcode(0x33), 0, CtrlSeg::CE_ALWAYS, 0, &[])
        }),
        (
            "a WQE without remote address",
            Syndrome::LOCAL_QP_OP_ERR,
            |pair| {
                pair.a
                    .write_wqe(WqeOpcode::RDMA_WRITE, 0, CtrlSeg::CE_ALWAYS, 0, &[])
            },
        ),
        ("a message above 2^30", Syndrome::LOCAL_LENGTH_ERR, |pair| {
            let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
            pair.a.write(0, (1 << 30) + 1, remote, rkey)
        }),
        (
            "the QP of another program",
            Syndrome::LOCAL_QP_OP_ERR,
            |pair| {
                let mut ctrl = CtrlSeg::new(WqeOpcode::NOP, pair.a.index, pair.a.qpn + 1, 1);
                ctrl.fm_ce_se = CtrlSeg::CE_ALWAYS;
                pair.a.write_raw(bytemuck::bytes_of(&ctrl))
            },
        ),
        ("a length of 0", Syndrome::LOCAL_QP_OP_ERR, |pair| {
            let mut bytes = [0; 16];
            bytes[4..7].copy_from_slice(&pair.a.qpn.to_be_bytes()[1..]);
            pair.a.write_raw(&bytes)
        }),
    ];
    for (what, syndrome, post) in cases {
        let mut pair = Pair::new(Shape::default());
        let index = post(&mut pair);
        let cqe = pair.a.run(1)[0];
        assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR, "{what}");
        assert_eq!(cqe.as_error().reason(), syndrome, "{what}");
        assert_eq!(cqe.wqe_counter.get(), index, "{what}");
        assert_eq!(pair.hca_a.findings().len(), 1, "{what}");
        // The peer heard nothing of it.
        assert_eq!(pair.b.query().state(), u32::from(QpState::RTS.0), "{what}");
    }
}

#[test]
fn the_right_to_write_belongs_to_key_domain_and_qp() {
    let no_right = Shape {
        access: 0x1 | 0x4,
        ..Shape::default()
    };
    let no_qp_right = Shape {
        rwe: 0,
        ..Shape::default()
    };
    for (shape, syndrome, words) in [
        (
            no_right,
            Syndrome::REMOTE_ACCESS_ERR,
            "does not allow remote write",
        ),
        (
            no_qp_right,
            Syndrome::REMOTE_INVAL_REQ_ERR,
            "remote writes are not allowed",
        ),
    ] {
        let mut pair = Pair::with(&HcaConfig::default(), Shape::default(), shape);
        let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
        let index = pair.a.write(0, 8, remote, rkey);
        is_error(&pair.a.run(1)[0], index, syndrome);
        has_finding(&pair.hca_b.findings(), words);
    }
    // A key of another domain of the same context.
    let mut pair = Pair::new(Shape::default());
    let other = pair.b.context.alloc_pd().unwrap();
    let (address, bytes) = (pair.b.data.address(), pair.b.data.bytes());
    #[expect(unsafe_code, reason = "the memory outlives the pair")]
    // SAFETY: the memory belongs to `pair`, which closes its context first.
    let keys = unsafe {
        pair.b
            .context
            .reg_mr(other, address, bytes, address, softhca::device::Access(0xf))
    }
    .unwrap();
    let index = pair.a.write(0, 8, address, keys.rkey);
    is_error(&pair.a.run(1)[0], index, Syndrome::REMOTE_ACCESS_ERR);
    has_finding(&pair.hca_b.findings(), "the key is of domain");
}

#[test]
fn a_misaligned_atomic_is_an_invalid_request() {
    let mut pair = Pair::new(Shape::default());
    let rest = [
        raddr(pair.b.data.address() + 4, pair.b.keys.rkey),
        [0; 16],
        data(8, pair.a.keys.lkey, pair.a.data.address()),
    ]
    .concat();
    let index = pair
        .a
        .write_wqe(WqeOpcode::ATOMIC_FA, 0, CtrlSeg::CE_ALWAYS, 0, &rest);
    is_error(&pair.a.run(1)[0], index, Syndrome::REMOTE_INVAL_REQ_ERR);
}

#[test]
fn a_key_that_is_gone_is_refused() {
    let mut pair = Pair::new(Shape::default());
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    pair.b.context.dereg_mr(pair.b.keys.lkey).unwrap();
    let index = pair.a.write(0, 8, remote, rkey);
    is_error(&pair.a.run(1)[0], index, Syndrome::REMOTE_ACCESS_ERR);
}

#[test]
fn a_slot_without_its_wqe_is_found_out() {
    let mut pair = Pair::new(Shape::default());
    pair.a.nop(true);
    // Two are allowed to run, one was written.
    pair.a.record_as(2);
    pair.a.ring();
    assert_eq!(pair.a.completion().opcode(), CqeOpcode::REQ);
    is_error(&pair.a.completion(), 1, Syndrome::LOCAL_QP_OP_ERR);
    has_finding(
        &pair.hca_a.findings(),
        "the WQE due has index 1, its slot holds index 0",
    );
}

#[test]
fn a_ring_overrun_a_step_back_and_a_stray_doorbell_are_found_out() {
    let mut pair = Pair::new(Shape {
        log_depth: 2,
        ..Shape::default()
    });
    for _ in 0..5 {
        pair.a.nop(true);
    }
    pair.a.post();
    let cqe = pair.a.completion();
    assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR);
    has_finding(&pair.hca_a.findings(), "the ring has 4 WQEBBs");

    let mut pair = Pair::new(Shape::default());
    pair.a.nop(true);
    pair.a.nop(true);
    pair.a.run(2);
    pair.a.record_as(1);
    pair.a.ring();
    wait_for_doorbells(&pair, 2);
    has_finding(&pair.hca_a.findings(), "went back from 2 to 1");

    let pair = Pair::new(Shape::default());
    pair.a.ring_as(pair.a.qpn + 1);
    wait_for_doorbells(&pair, 1);
    has_finding(&pair.hca_a.findings(), "which does not use that page");
}

fn wait_for_doorbells(pair: &Pair, count: u64) {
    wait_until("the doorbells are taken", || {
        pair.hca_a.counters().doorbells >= count
    });
}

#[test]
fn a_cq_that_no_thread_reads_overruns_and_takes_its_qp_along() {
    let mut pair = Pair::new(Shape {
        log_cq: Some(2),
        ..Shape::default()
    });
    for _ in 0..6 {
        pair.a.nop(true);
    }
    pair.a.post();
    wait_until("the QP is in error", || {
        pair.a.query().state() == u32::from(QpState::ERR.0)
    });
    has_finding(
        &pair.hca_a.findings(),
        "overran: 4 entries, 4 written and 0 consumed",
    );
    assert_eq!(pair.hca_a.counters().cqes, 4);
}

#[test]
fn a_peer_that_is_not_there_ends_in_retry_exceeded() {
    let mut pair = Pair::new(Shape {
        ack_timeout: 1,
        retry_count: 0,
        ..Shape::default()
    });
    pair.b.reset();
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let start = Instant::now();
    let index = pair.a.write(0, 8, remote, rkey);
    is_error(&pair.a.run(1)[0], index, Syndrome::TRANSPORT_RETRY_EXC_ERR);
    assert!(start.elapsed() >= Duration::from_millis(500));
}

#[test]
fn a_peer_that_becomes_ready_late_is_waited_for() {
    let hca_a = softhca::Hca::new().unwrap();
    let hca_b = softhca::Hca::new().unwrap();
    let mut a = softhca_rig::End::new(&hca_a, Shape::default());
    let b = softhca_rig::End::new(&hca_b, Shape::default());
    a.connect(hca_b.gid(), b.qpn, 7);
    a.write_inline(&[5; 8], b.data.address(), b.keys.rkey);
    a.post();
    assert!(a.poll_for(QUIET, |_| true).is_none());
    b.connect(hca_a.gid(), a.qpn, 7);
    assert_eq!(a.completion().opcode(), CqeOpcode::REQ);
    assert_eq!(b.data.read(0, 8), [5; 8]);
    assert_eq!(hca_a.findings(), [""; 0]);
}

#[test]
fn ends_with_different_sequence_numbers_never_talk() {
    let hca_a = softhca::Hca::new().unwrap();
    let hca_b = softhca::Hca::new().unwrap();
    let shape = Shape {
        ack_timeout: 1,
        retry_count: 0,
        ..Shape::default()
    };
    let mut a = softhca_rig::End::new(&hca_a, shape.clone());
    let b = softhca_rig::End::new(&hca_b, shape);
    a.connect(hca_b.gid(), b.qpn, 7);
    b.connect(hca_a.gid(), a.qpn, 8);
    let index = a.write_inline(&[5; 8], b.data.address(), b.keys.rkey);
    is_error(&a.run(1)[0], index, Syndrome::TRANSPORT_RETRY_EXC_ERR);
    has_finding(
        &hca_a.findings(),
        "it sends PSN 0x7 and its peer expects 0x8",
    );
}

#[test]
fn a_missing_receive_wqe_ends_in_rnr_retry_exceeded() {
    let shape = Shape {
        rnr_retry: 2,
        log_receive: Some(1),
        ..Shape::default()
    };
    let mut pair = Pair::new(shape);
    let index = pair
        .a
        .write_wqe(WqeOpcode::SEND, 0, CtrlSeg::CE_ALWAYS, 0, &inline(&[1; 4]));
    is_error(&pair.a.run(1)[0], index, Syndrome::RNR_RETRY_EXC_ERR);
}

#[test]
fn a_message_longer_than_its_receive_wqe_fails_both_ends() {
    let shape = Shape {
        log_receive: Some(1),
        ..Shape::default()
    };
    let mut pair = Pair::new(shape);
    pair.b.post_receive(0, 10);
    let index = pair
        .a
        .write_wqe(WqeOpcode::SEND, 0, CtrlSeg::CE_ALWAYS, 0, &inline(&[1; 11]));
    is_error(&pair.a.run(1)[0], index, Syndrome::REMOTE_INVAL_REQ_ERR);
    let cqe = pair.b.completion();
    assert_eq!(cqe.opcode(), CqeOpcode::RESP_ERR);
    assert_eq!(cqe.as_error().reason(), Syndrome::LOCAL_LENGTH_ERR);
}

#[test]
fn to_error_flushes_and_reset_starts_again_at_index_0() {
    let shape = Shape {
        log_receive: Some(2),
        ..Shape::default()
    };
    let mut pair = Pair::new(shape);
    for _ in 0..70 {
        pair.a.nop(true);
        pair.a.run(1);
    }
    assert_eq!(pair.a.query().hw_sq_wqebb_counter(), 70);
    pair.b.post_receive(0, 8);
    for end in [&pair.a, &pair.b] {
        end.modify(Opcode::TO_ERR_QP, Qpc::default()).unwrap();
    }
    // The receive WQE is flushed at once.
    let cqe = pair.b.completion();
    assert_eq!(cqe.opcode(), CqeOpcode::RESP_ERR);
    assert_eq!(cqe.as_error().reason(), Syndrome::WR_FLUSH_ERR);
    let index = pair.a.nop(false);
    is_error(&pair.a.run(1)[0], index, Syndrome::WR_FLUSH_ERR);

    pair.a.reset();
    pair.b.reset();
    assert_eq!(pair.a.query().hw_sq_wqebb_counter(), 0);
    assert_eq!(pair.a.query().state(), 0);
    pair.a.connect(pair.hca_b.gid(), pair.b.qpn, 0xff_ffff);
    pair.b.connect(pair.hca_a.gid(), pair.a.qpn, 0xff_ffff);
    let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    for value in 1..=3u8 {
        let index = pair.a.write_inline(&[value; 8], remote, rkey);
        assert_eq!(index, u16::from(value) - 1);
        assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
    }
    assert_eq!(pair.b.data.read(0, 8), [3; 8]);
    pair.assert_clean();
}

#[test]
fn doorbells_before_rts_are_nothing() {
    let hca = softhca::Hca::new().unwrap();
    let mut end = softhca_rig::End::new(&hca, Shape::default());
    end.nop(true);
    end.post();
    assert!(end.poll_for(QUIET, |_| true).is_none());
    end.init();
    end.post();
    assert!(end.poll_for(QUIET, |_| true).is_none());
}

#[test]
fn a_qp_may_go_with_its_doorbell_still_in_the_register() {
    for _ in 0..3 {
        let mut pair = Pair::new(Shape::default());
        pair.hca_a.pause(HANG);
        pair.a.nop(true);
        pair.a.post();
        let qp = softhca::device::DevxObject::Qp(pair.a.qpn);
        pair.a.context.devx_destroy(qp).unwrap();
        pair.hca_a.pause(Duration::ZERO);
        // One engine serves both devices: it has been at the first one when the second one has answered twice.
        for _ in 0..2 {
            pair.b.nop(true);
            pair.b.run(1);
        }
        pair.assert_clean();
    }
}
