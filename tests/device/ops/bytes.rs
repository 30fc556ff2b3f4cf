//! Every operation at every scope moves its bytes and no others, in order.

use test_support::abi::ops::{OPS_ADD, OpItem, OpKind, OpStep};
use test_support::counts::seeds;
use warpverbs::abi::{MAX_PUT_BYTES, Status};
use warpverbs::verbs::QpConfig;

use crate::model::Model;
use crate::program::{
    FETCHED, LENGTHS, RESULTS, SOURCES, TARGETS, WINDOW, WORDS, quiet, random_call, step, step_back,
};
use crate::rig::{Call, Rig, SCOPES, Scope};

/// Makes `calls` from side 0 and compares both windows with the model.
fn check(rig: &Rig, model: &mut Model, scope: Scope, seed: u64, calls: &[Call], what: &str) {
    rig.run(0, scope, seed, calls);
    for call in calls {
        model.call(0, call);
    }
    model.check(rig, what);
}

fn rig(scope: Scope) -> Rig {
    // A quarter of the ring holds what a scope posts at once: 64 threads with two WQEBBs each and one more.
    let log_depth = if scope.width() > 32 { 10 } else { 9 };
    let config = QpConfig::default().with_log_depth(log_depth);
    Rig::new(WINDOW, &config)
}

/// One item per thread, of `bytes` bytes each, that lie apart.
fn items(width: u32, bytes: u64) -> Vec<OpItem> {
    let item = |k: u64| OpItem {
        remote: TARGETS + k * (bytes + 3),
        local: SOURCES + k * 4 + 1,
        bytes,
        second: SOURCES + 77 * k,
        second_bytes: 5,
        signal: WORDS + 8,
        value: 0x0123_4567_89ab_cdef + k,
        ..OpItem::default()
    };
    (0..u64::from(width)).map(item).collect()
}

#[test]
fn each_operation_moves_its_bytes_at_each_scope_by_qp_and_directly() {
    for (scope, direct) in SCOPES
        .into_iter()
        .flat_map(|scope| [(scope, false), (scope, true)])
    {
        let rig = rig(scope);
        rig.set_direct(0, direct);
        let mut model = Model::new(&rig, &mut fastrand::Rng::with_seed(1));
        let width = scope.width();
        let mut calls = Vec::new();
        for bytes in LENGTHS {
            for kind in [OpKind::PUT, OpKind::PUT_SIGNAL] {
                let step = OpStep {
                    bytes: 8,
                    ..step(kind)
                };
                calls.push(Call {
                    step,
                    items: items(width, bytes),
                });
            }
            let mut back = items(width, bytes);
            for item in &mut back {
                item.local = FETCHED + (item.remote - TARGETS);
            }
            calls.push(Call {
                step: step_back(OpKind::GET),
                items: back,
            });
        }
        for bytes in [4, 8, 12, 16, 24, 28] {
            let mut packed = items(width, 0);
            for (k, item) in packed.iter_mut().enumerate() {
                item.remote = TARGETS + 4 + k as u64 * bytes;
            }
            let step = OpStep {
                bytes: bytes as u32,
                ..step(OpKind::PUT_VALUE)
            };
            calls.push(Call {
                step,
                items: packed,
            });
        }
        for (bytes, add) in [(4, 0), (8, 0), (4, OPS_ADD), (8, OPS_ADD)] {
            for kind in [OpKind::SIGNAL, OpKind::PUT_SIGNAL] {
                let mut step = step(kind);
                (step.bytes, step.options) = (bytes, step.options | add);
                calls.push(Call {
                    step,
                    items: items(width, 40),
                });
            }
        }
        if !direct {
            calls.push(Call {
                step: step(OpKind::PUT_TWO),
                items: items(width, 40),
            });
            calls.push(Call {
                step: step(OpKind::FENCE),
                items: items(1, 1),
            });
            calls.push(Call {
                step: step(OpKind::FLUSH),
                items: items(1, 1),
            });
        }
        calls.push(quiet());
        check(
            &rig,
            &mut model,
            scope,
            0,
            &calls,
            &format!("{scope:?}, direct {direct}"),
        );
        let context = rig.context_of(0);
        assert_eq!((context.err, context.cons), (Status::OK, context.resv));
        assert_eq!(context.resv == 0, direct, "a direct path posts nothing");
    }
}

#[test]
fn lanes_whose_values_follow_each_other_share_a_wqe() {
    let cases = [
        // Bytes of a value, gap after every so many lanes, WQEs of a warp.
        (4, 32, 5),
        (8, 32, 11),
        (12, 32, 16),
        (16, 32, 32),
        (28, 32, 32),
        (4, 8, 8),
        (4, 7, 5),
        (4, 1, 32),
        (8, 4, 16),
        (8, 3, 11),
    ];
    for (bytes, run, wqes) in cases {
        for (scope, warps) in [(Scope::Warp, 1), (Scope::Block(64), 2)] {
            let rig = rig(scope);
            let mut model = Model::new(&rig, &mut fastrand::Rng::with_seed(2));
            let mut items = items(scope.width(), 0);
            for (k, item) in items.iter_mut().enumerate() {
                let (warp, lane) = (k as u64 / 32, k as u64 % 32);
                item.remote = TARGETS + 8192 * warp + lane * bytes + lane / run * 4;
            }
            let step = OpStep {
                bytes: bytes as u32,
                ..step(OpKind::PUT_VALUE)
            };
            let call = Call { step, items };
            let what = format!("{scope:?}, {bytes} bytes, runs of {run}");
            check(&rig, &mut model, scope, 0, &[call], &what);
            assert_eq!(rig.ends[0].hca.counters().wqes, wqes * warps, "{what}");
        }
    }
}

#[test]
fn random_programs_do_what_the_memory_model_says() {
    for seed in seeds(6, 200) {
        for (scope, direct) in SCOPES
            .into_iter()
            .flat_map(|scope| [(scope, false), (scope, true)])
        {
            let mut rng = fastrand::Rng::with_seed(seed);
            let rig = rig(scope);
            rig.set_direct(0, direct);
            let mut model = Model::new(&rig, &mut rng);
            let calls = (0..60).map(|_| random_call(&mut rng, scope.width(), direct));
            let calls: Vec<Call> = calls.chain([quiet()]).collect();
            let what = format!("seed {seed}, {scope:?}, direct {direct}");
            check(&rig, &mut model, scope, seed, &calls, &what);
        }
    }
}

#[test]
fn a_get_brings_what_the_peer_has_just_written() {
    let rig = rig(Scope::Warp);
    for round in 0..20_u8 {
        rig.ends[1].write(TARGETS, &[round; 32 * 64]);
        let item = |k: u64| OpItem {
            remote: TARGETS + 64 * k,
            local: FETCHED + 64 * k,
            bytes: 64,
            ..OpItem::default()
        };
        let call = Call {
            step: step_back(OpKind::GET),
            items: (0..32).map(item).collect(),
        };
        rig.run(0, Scope::Warp, round.into(), &[call]);
        let fetched: Vec<u8> = rig.ends[0].window_at(FETCHED, 32 * 64);
        assert_eq!(fetched, [round; 32 * 64]);
    }
    assert_eq!(rig.findings(), [""; 0]);
}

#[test]
fn more_than_a_gib_is_split_inside_one_reservation() {
    const GIB: u64 = MAX_PUT_BYTES as u64;
    const BYTES: u64 = GIB + 5;
    // The windows are empty pages but for what is marked; sources and targets overlap nowhere at their marks.
    let rig = Rig::new(BYTES + 4096, &QpConfig::default());
    let marks = [0, 4093, GIB - 3, GIB, GIB + 4];
    for (k, mark) in marks.into_iter().enumerate() {
        rig.ends[0].write(mark, &[k as u8 + 1]);
    }
    let item = OpItem {
        remote: 64,
        local: 0,
        bytes: BYTES,
        signal: 8,
        value: 0x5a5a_5a5a_a5a5_a5a5,
        ..OpItem::default()
    };
    let put = Call {
        step: OpStep {
            bytes: 8,
            ..step(OpKind::PUT_SIGNAL)
        },
        items: vec![item],
    };
    rig.run(0, Scope::Thread, 0, &[put]);
    let counters = rig.ends[0].hca.counters();
    assert_eq!(
        (counters.wqes, counters.doorbells, counters.cqes),
        (3, 1, 1)
    );
    let around: Vec<u8> = rig.ends[1].window_at(64 + GIB - 8, 13);
    assert_eq!(around, [0, 0, 0, 0, 0, 3, 0, 0, 4, 0, 0, 0, 5]);
    assert_eq!(rig.ends[1].window_at::<u8>(64 + BYTES, 100), [0; 100]);
    assert_eq!(rig.ends[1].window_at::<u64>(8, 1), [item.value]);
    assert_eq!(rig.ends[1].window_at::<u8>(64, 1), [1]);
    assert_eq!(rig.ends[1].window_at::<u8>(64 + 4093, 1), [2]);
    assert_eq!(rig.findings(), [""; 0]);
}

// The areas that programs use do not overlap.
const _: () = assert!(
    SOURCES < TARGETS
        && TARGETS < FETCHED
        && FETCHED < WORDS
        && WORDS < RESULTS
        && RESULTS < WINDOW
);
