//! What cannot be posted is refused, and nothing of it is posted.

use std::mem::offset_of;

use test_support::abi::ops::{OPS_ADD, OPS_SIGNALLED, OPS_TRY, OpItem, OpKind, OpStep};
use warpverbs::abi::{DevicePtr, MAX_PUT_BYTES, QpContext, Status};
use warpverbs::verbs::QpConfig;

use crate::program::{RESULTS, SOURCES, TARGETS, WINDOW, WORDS, quiet, step};
use crate::rig::{Call, Rig, Scope};

/// A ring of 256 WQEBBs: at most 64 at once.
fn rig() -> Rig {
    let config = QpConfig::default().with_log_depth(8);
    Rig::new(WINDOW, &config)
}

fn item() -> OpItem {
    OpItem {
        remote: TARGETS,
        local: SOURCES,
        bytes: 8,
        second: SOURCES,
        second_bytes: 8,
        signal: WORDS,
        ..OpItem::default()
    }
}

fn call(kind: OpKind, bytes: u32, count: usize, item: OpItem) -> Call {
    Call {
        step: OpStep {
            bytes,
            ..step(kind)
        },
        items: vec![item; count],
    }
}

#[track_caller]
fn is_refused(rig: &Rig, scope: Scope, call: &Call) {
    assert_eq!(
        rig.try_one(0, scope, call),
        Status::INVALID,
        "{:?}",
        call.step
    );
    let context = rig.context_of(0);
    assert_eq!((context.claim, context.resv), (0, 0), "{:?}", call.step);
}

#[test]
fn nothing_of_no_length_is_posted() {
    for direct in [false, true] {
        let rig = rig();
        rig.set_direct(0, direct);
        let empty = OpItem { bytes: 0, ..item() };
        for kind in [
            OpKind::PUT,
            OpKind::PUT_SIGNAL,
            OpKind::GET,
            OpKind::PUT_TWO,
        ] {
            if direct && kind == OpKind::PUT_TWO {
                continue;
            }
            for scope in [Scope::Thread, Scope::Warp] {
                is_refused(&rig, scope, &call(kind, 8, 1, empty));
            }
            // One of a warp is enough.
            let mut some = call(kind, 8, 32, item());
            some.items[7].bytes = 0;
            is_refused(&rig, Scope::Warp, &some);
        }
        let second = OpItem {
            second_bytes: 0,
            ..item()
        };
        is_refused(&rig, Scope::Thread, &call(OpKind::PUT_TWO, 8, 1, second));
    }
}

#[test]
fn nobody_posts_nothing() {
    let rig = rig();
    let kinds = [
        OpKind::PUT,
        OpKind::PUT_VALUE,
        OpKind::PUT_SIGNAL,
        OpKind::GET,
        OpKind::AMO,
    ];
    for (kind, scope) in kinds
        .into_iter()
        .flat_map(|kind| [(kind, Scope::Warp), (kind, Scope::Block(40))])
    {
        is_refused(&rig, scope, &call(kind, 8, 0, item()));
    }
}

#[test]
fn a_quarter_of_the_ring_fits_and_one_more_does_not() {
    let block = Scope::Block(96);
    for (kind, bytes, fits) in [
        (OpKind::PUT, 8, 64),
        (OpKind::PUT_TWO, 8, 64),
        (OpKind::PUT_VALUE, 16, 64),
        (OpKind::PUT_SIGNAL, 8, 63),
        (OpKind::GET, 8, 64),
        (OpKind::AMO, 8, 64),
    ] {
        let rig = rig();
        let local = if kind == OpKind::AMO {
            u64::MAX
        } else {
            RESULTS
        };
        let item = OpItem { local, ..item() };
        is_refused(&rig, block, &call(kind, bytes, fits + 1, item));
        assert_eq!(
            rig.try_one(0, block, &call(kind, bytes, fits, item)),
            Status::OK,
            "{kind:?}"
        );
        assert_eq!(rig.context_of(0).resv, 64, "{kind:?}");
        assert_eq!(rig.findings(), [""; 0], "{kind:?}");
    }
    // A swap of 8 bytes takes two, and one more for all.
    let swap = |count| {
        let mut call = call(
            OpKind::AMO,
            8,
            count,
            OpItem {
                local: u64::MAX,
                ..item()
            },
        );
        call.step.amo = 2;
        call
    };
    let rig = rig();
    is_refused(&rig, Scope::Warp, &swap(32));
    assert_eq!(rig.try_one(0, Scope::Warp, &swap(31)), Status::OK);
    assert_eq!(rig.context_of(0).resv, 63);
}

#[test]
fn what_is_longer_than_a_quarter_of_the_ring_of_gib_is_refused() {
    let rig = rig();
    let longest = 64 * u64::from(MAX_PUT_BYTES);
    for bytes in [longest + 1, u64::MAX] {
        let item = OpItem { bytes, ..item() };
        for kind in [OpKind::PUT, OpKind::GET, OpKind::PUT_SIGNAL] {
            is_refused(&rig, Scope::Thread, &call(kind, 8, 1, item));
        }
    }
    // With a signal after it one piece less fits; and 33 GiB of two lanes are too much.
    let item = OpItem {
        bytes: longest,
        ..item()
    };
    is_refused(&rig, Scope::Thread, &call(OpKind::PUT_SIGNAL, 8, 1, item));
    let half = OpItem {
        bytes: longest / 2 + 1,
        ..item
    };
    is_refused(&rig, Scope::Warp, &call(OpKind::PUT, 8, 2, half));
    let two = OpItem {
        bytes: u64::from(MAX_PUT_BYTES),
        second_bytes: 1,
        ..item
    };
    is_refused(&rig, Scope::Thread, &call(OpKind::PUT_TWO, 8, 1, two));
}

#[test]
fn an_addition_needs_a_boundary_and_a_sink() {
    let rig = rig();
    for kind in [OpKind::SIGNAL, OpKind::PUT_SIGNAL] {
        for bytes in [4, 8] {
            let mut off = call(
                kind,
                bytes,
                1,
                OpItem {
                    signal: WORDS + 2,
                    ..item()
                },
            );
            off.step.options |= OPS_ADD;
            is_refused(&rig, Scope::Warp, &off);
        }
    }
    rig.patch_of(
        0,
        offset_of!(QpContext, atomic_sink),
        &DevicePtr::<u64>::NULL.addr(),
    );
    for kind in [OpKind::SIGNAL, OpKind::PUT_SIGNAL, OpKind::AMO] {
        let mut add = call(
            kind,
            8,
            1,
            OpItem {
                local: u64::MAX,
                ..item()
            },
        );
        add.step.options |= OPS_ADD;
        is_refused(&rig, Scope::Thread, &add);
    }
}

#[test]
fn a_full_ring_refuses_a_try_and_loses_nothing() {
    for kind in [
        OpKind::PUT,
        OpKind::PUT_TWO,
        OpKind::PUT_VALUE,
        OpKind::SIGNAL,
        OpKind::PUT_SIGNAL,
        OpKind::GET,
        OpKind::AMO,
        OpKind::FENCE,
    ] {
        let rig = rig();
        // No thread takes what is posted.
        rig.sleep(0);
        let mut one = call(
            kind,
            8,
            1,
            OpItem {
                local: RESULTS,
                ..item()
            },
        );
        one.step.options = OPS_SIGNALLED | OPS_TRY;
        let running = rig.start(0, Scope::Thread, 0, &[vec![one; 400]]);
        let ended = rig.finish(0, &running);
        let posted = ended
            .iter()
            .take_while(|end| end.posted == Status::OK)
            .count();
        let each = if kind == OpKind::PUT_SIGNAL { 2 } else { 1 };
        assert_eq!(posted, 256 / each, "{kind:?}");
        assert!(
            ended[posted..]
                .iter()
                .all(|end| end.posted == Status::WOULD_BLOCK),
            "{kind:?}"
        );
        rig.wake(0);
        rig.run(0, Scope::Thread, 0, &[quiet()]);
        let context = rig.context_of(0);
        assert_eq!(
            (context.err, context.claim),
            (Status::OK, context.cons),
            "{kind:?}"
        );
        assert_eq!(rig.findings(), [""; 0], "{kind:?}");
    }
}
