//! Send queues without a doorbell record: the index in the doorbell decides what runs.

use mlx5_prm::cmd::{Opcode, Status};
use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::hca_cap::{CapType, CmdHcaCap, HcaCap2, QueryHcaCapIn, QueryHcaCapOut};
use mlx5_prm::qp::Qpc;
use softhca::Hca;
use softhca::device::syndrome;
use softhca_rig::bringup::{bring_up, create_qp, refused};
use softhca_rig::patience::{QUIET, wait_until};
use softhca_rig::{Pair, Shape, create};
use std::time::Duration;

fn without_record() -> Shape {
    Shape {
        no_record: true,
        ..Shape::default()
    }
}

fn query(hca: &Hca, kind: CapType) -> Vec<u8> {
    let input = QueryHcaCapIn::default()
        .with_opcode(Opcode::QUERY_HCA_CAP.0.into())
        .with_op_mod(kind.current());
    let mut output = vec![0; QueryHcaCapOut::BYTES];
    let context = softhca::device::Context::open(hca.name()).unwrap();
    context.devx_general(input.as_bytes(), &mut output).unwrap();
    output.split_off(16)
}

#[test]
fn the_capability_says_so() {
    let hca = Hca::new().unwrap();
    let general = CmdHcaCap::from_prefix(&query(&hca, CapType::GENERAL));
    assert_eq!(general.hca_cap_2(), 1);
    let second = HcaCap2::from_prefix(&query(&hca, CapType::GENERAL_2));
    assert_eq!(second.send_dbr_mode_no_dbr_ext(), 1);
    assert_eq!(second.send_dbr_mode_no_dbr_int(), 0);
    assert_eq!(
        second.log_max_send_dbr_less_qp_sq(),
        general.log_max_qp_sz()
    );
}

#[test]
fn the_index_in_the_doorbell_says_how_far_to_run_and_the_record_nothing() {
    let mut pair = Pair::new(without_record());
    let (va, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    for n in 0..4u64 {
        pair.a.write(n * 8, 8, va + n * 8, rkey);
    }
    // The record is memory like any other.
    pair.a.record_as(4);
    pair.a.ring_without_record(2);
    for index in 0..2 {
        assert_eq!(pair.a.completion().wqe_counter.get(), index);
    }
    let none = pair.a.poll_for(QUIET, |_| true);
    assert!(none.is_none(), "{none:?}");
    pair.a.record_as(0);
    pair.a.ring();
    for index in 2..4 {
        assert_eq!(pair.a.completion().wqe_counter.get(), index);
    }
    pair.assert_clean();
}

#[test]
fn indices_run_through_2_to_the_16_and_start_at_0_after_a_reset() {
    let mut pair = Pair::new(without_record());
    for _ in 0..1100 {
        for slot in 0..60 {
            pair.a.nop(slot == 59);
        }
        assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
    }
    pair.a.reset();
    pair.b.reset();
    pair.a.connect(pair.hca_b.gid(), pair.b.qpn, 7);
    pair.b.connect(pair.hca_a.gid(), pair.a.qpn, 7);
    pair.a.data.write(0, b"again...");
    let (va, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    assert_eq!(pair.a.write(0, 8, va, rkey), 0);
    assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ);
    assert_eq!(pair.b.data.read(0, 8), b"again...");
    pair.assert_clean();
}

/// As rdma-core's test of such queues does: it stores the beginning of its last WQE.
#[test]
fn a_doorbell_may_be_the_beginning_of_the_last_wqe() {
    let mut pair = Pair::new(without_record());
    let (va, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
    let text: Vec<u8> = (0..200).collect();
    // NOPs take a WQEBB; an inline WRITE of 200 bytes takes four, and wraps at the end of the ring now and then.
    for round in 0..100u16 {
        let first = pair.a.nop(true);
        let last = pair.a.write_inline(&text, va, rkey);
        assert_eq!((first, last), (round * 5, round * 5 + 1));
        pair.a.ring_without_record_by(last);
        for expected in [first, last] {
            assert_eq!(pair.a.completion().wqe_counter.get(), expected);
        }
        let none = pair.a.poll_for(Duration::ZERO, |_| true);
        assert!(none.is_none(), "{none:?}");
    }
    // The same place, by its index.
    pair.a.ring();
    pair.a.nop(true);
    pair.a.ring();
    pair.a.completion();
    assert_eq!(pair.b.data.read(0, 200), text);
    pair.assert_clean();
}

#[test]
fn a_doorbell_that_goes_back_is_found_out() {
    let mut pair = Pair::new(without_record());
    for _ in 0..2 {
        pair.a.nop(true);
        pair.a.run(1);
    }
    pair.a.ring_without_record(1);
    wait_until("a finding", || !pair.hca_a.findings().is_empty());
    let findings = pair.hca_a.findings();
    assert!(
        findings[0].contains("went back from 2 to 1"),
        "{findings:?}"
    );
}

#[test]
fn a_register_of_such_a_queue_is_its_own() {
    let hca = Hca::new().unwrap();
    let made = bring_up(&hca).unwrap();
    let wanted = create_qp(made.pdn, made.umem, made.page_id, made.cqn);
    let mode = |mode| wanted.with_qpc(wanted.qpc().with_send_dbr_mode(mode));
    let attempt = |input: &mlx5_prm::qp::CreateQpIn| create(&made.context, input.as_bytes());
    let shared = (Status::BAD_PARAM, syndrome::SHARED_REGISTER);
    let own = attempt(&mode(Qpc::SEND_DBR_MODE_NONE)).unwrap().0;
    assert_eq!(refused(attempt(&mode(Qpc::SEND_DBR_MODE_RECORD))), shared);
    assert_eq!(refused(attempt(&mode(Qpc::SEND_DBR_MODE_NONE))), shared);
    made.context.devx_destroy(own).unwrap();
    let other = attempt(&mode(Qpc::SEND_DBR_MODE_RECORD)).unwrap().0;
    assert_eq!(refused(attempt(&mode(Qpc::SEND_DBR_MODE_NONE))), shared);
    made.context.devx_destroy(other).unwrap();
    let bad = (Status::BAD_PARAM, syndrome::DBR_MODE);
    assert_eq!(refused(attempt(&mode(2))), bad);
}

#[test]
fn such_a_queue_names_a_umem_for_its_record_all_the_same() {
    let hca = Hca::new().unwrap();
    let made = bring_up(&hca).unwrap();
    let wanted = create_qp(made.pdn, made.umem, made.page_id, made.cqn);
    let without = wanted.qpc().with_send_dbr_mode(Qpc::SEND_DBR_MODE_NONE);
    let attempt = |qpc| create(&made.context, wanted.with_qpc(qpc).as_bytes());
    assert_eq!(
        refused(attempt(without.with_dbr_umem_id(0))),
        (Status::BAD_RES, syndrome::NO_SUCH_UMEM)
    );
    assert_eq!(
        refused(attempt(without.with_dbr_addr(without.dbr_addr() + 4))),
        (Status::BAD_PARAM, syndrome::DBR_MISALIGNED)
    );
    assert_eq!(
        refused(attempt(without.with_dbr_addr(1 << 40))),
        (Status::BAD_PARAM, syndrome::DBR_OUTSIDE_UMEM)
    );
    let made_qp = attempt(without).unwrap().0;
    assert!(made.context.dereg_umem(made.umem).is_err());
    made.context.devx_destroy(made_qp).unwrap();
}
