//! Immediates: each arrives once, with its data, whichever thread takes it; receive WQEs are given back for ever.

use test_support::abi::ops::{OPS_SIGNALLED, OPS_TRY, OpItem, OpKind, OpStep};
use warpverbs::abi::Status;
use warpverbs::verbs::QpConfig;

use crate::model::Model;
use crate::program::{SOURCES, TARGETS, WINDOW, quiet, step};
use crate::rig::{Call, Rig, Scope};

fn rig(log_recv_depth: u8) -> Rig {
    let config = QpConfig::default()
        .with_log_depth(9)
        .with_log_recv_depth(Some(log_recv_depth));
    Rig::new(WINDOW, &config)
}

fn take(options: u32) -> Call {
    Call {
        step: OpStep {
            options,
            ..step(OpKind::WAIT_IMM)
        },
        items: vec![],
    }
}

/// A call of a warp that sends immediates `first`, `first` + 1, and so on, one per lane, each with 8 bytes.
fn send(first: u64) -> Call {
    let item = |lane: u64| OpItem {
        remote: TARGETS + 8 * ((first + lane) % 32_768),
        local: SOURCES + 8 * ((first + lane) % 32_000),
        bytes: if lane == 5 { 0 } else { 8 },
        value: first + lane,
        ..OpItem::default()
    };
    Call {
        step: OpStep {
            options: OPS_SIGNALLED,
            ..step(OpKind::PUT_IMM)
        },
        items: (0..32).map(item).collect(),
    }
}

#[test]
fn each_immediate_is_taken_once_by_one_of_many_threads() {
    for (seed, scope, takers) in [
        (0, Scope::Thread, 1),
        (1, Scope::Thread, 8),
        (2, Scope::Warp, 4),
        (3, Scope::Block(40), 2),
    ] {
        const CALLS: u64 = 40;
        let rig = rig(6);
        let mut model = Model::new(&rig, &mut fastrand::Rng::with_seed(seed));
        let calls: Vec<Call> = (0..CALLS).map(|k| send(32 * k)).collect();
        let each = CALLS * 32 / takers;
        let taking = rig.start(
            1,
            scope,
            seed,
            &vec![vec![take(0); each as usize]; takers as usize],
        );
        rig.run(0, Scope::Warp, seed, &calls);
        let what = format!("seed {seed}, {takers} takers, {scope:?}");
        let taken = rig.finish(1, &taking);
        assert!(taken.iter().all(|end| end.posted == Status::OK), "{what}");
        for call in &calls {
            model.call(0, call);
        }
        let mut taken: Vec<u32> = taken.iter().map(|end| end.imm).collect();
        if takers == 1 {
            assert_eq!(
                taken, model.immediates[1],
                "{what}: in the order of the sender"
            );
        }
        taken.sort_unstable();
        assert_eq!(taken, model.immediates[1], "{what}");
        model.check(&rig, &what);
    }
}

#[test]
fn the_receive_counter_runs_through_2_to_the_16() {
    const CALLS: u64 = 2200;
    const TAKERS: u64 = 8;
    let rig = rig(6);
    let each = (CALLS * 32 / TAKERS) as usize;
    let taking = rig.start(
        1,
        Scope::Thread,
        9,
        &vec![vec![take(0); each]; TAKERS as usize],
    );
    let calls: Vec<Call> = (0..CALLS).map(|k| send(32 * k)).collect();
    rig.run(0, Scope::Warp, 9, &calls);
    let mut taken: Vec<u32> = rig.finish(1, &taking).iter().map(|end| end.imm).collect();
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..CALLS as u32 * 32));
    let context = rig.context_of(1);
    assert_eq!((context.recv_posted, context.recv_owed), (CALLS * 32, 0));
    assert_eq!(rig.findings(), [""; 0]);
}

#[test]
fn a_take_is_refused_without_a_receive_queue_and_a_try_does_not_wait() {
    let without = Rig::new(WINDOW, &QpConfig::default());
    for options in [0, OPS_TRY] {
        assert_eq!(
            without.try_one(1, Scope::Warp, &take(options)),
            Status::INVALID
        );
    }
    let rig = rig(6);
    assert_eq!(
        rig.try_one(1, Scope::Warp, &take(OPS_TRY)),
        Status::WOULD_BLOCK
    );
    rig.run(0, Scope::Warp, 0, &[send(7), quiet()]);
    for _ in 0..32 {
        assert_eq!(rig.try_one(1, Scope::Warp, &take(OPS_TRY)), Status::OK);
    }
    assert_eq!(
        rig.try_one(1, Scope::Warp, &take(OPS_TRY)),
        Status::WOULD_BLOCK
    );
}

#[test]
fn a_qp_in_error_ends_the_wait_for_an_immediate() {
    let rig = rig(6);
    let taking = rig.start(1, Scope::Thread, 0, &[vec![take(0)], vec![take(0)]]);
    std::thread::sleep(std::time::Duration::from_millis(20));
    rig.qps()[1].to_error().unwrap();
    for end in rig.finish(1, &taking) {
        assert_eq!(end.posted, Status::FLUSHED);
    }
}
