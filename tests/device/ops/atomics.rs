//! Atomics from many threads and both ranks are atomic, and return the old value.

use std::collections::BTreeMap;
use std::mem::offset_of;

use test_support::abi::ops::{OpItem, OpKind, OpStep};
use test_support::device::test_gpu;
use warpverbs::abi::{
    ATOMIC_64, ATOMIC_MASKED_32, ATOMIC_MASKED_64, ATOMIC_RESULT_BE, QpContext, Status,
};
use warpverbs::verbs::QpConfig;

use crate::model::result;
use crate::program::{RESULTS, WINDOW, WORDS, step_back};
use crate::rig::{Call, Rig, Scope};

const ADD: u32 = 0;
const COMPARE_SWAP: u32 = 1;
const SWAP: u32 = 2;
const OR: u32 = 4;
const XOR: u32 = 5;

fn amo(amo: u32, bytes: u32, items: Vec<OpItem>) -> Call {
    Call {
        step: OpStep {
            amo,
            bytes,
            ..step_back(OpKind::AMO)
        },
        items,
    }
}

fn rig() -> Rig {
    let config = QpConfig::default().with_log_depth(9);
    Rig::new(WINDOW, &config)
}

#[test]
fn every_atomic_of_both_widths_does_what_the_model_says() {
    let words = [0, 1, u64::MAX, 0x8000_0000_8000_0000, 0x0123_4567_89ab_cdef];
    for direct in [false, true] {
        let rig = rig();
        rig.set_direct(0, direct);
        for ((number, bytes), compared) in (0..6)
            .flat_map(|n| [(n, 4), (n, 8)])
            .flat_map(|op| [(op, true), (op, false)])
        {
            for old in words {
                let (value, mask) = (0xf0e1_d2c3_b4a5_9687, u64::MAX >> (64 - 8 * bytes));
                let compare = if compared { old } else { !old };
                rig.ends[1].write(WORDS, &old.to_le_bytes());
                rig.ends[0].write(RESULTS, &[0xee; 16]);
                let item = OpItem {
                    remote: WORDS,
                    local: RESULTS,
                    value,
                    compare,
                    ..OpItem::default()
                };
                rig.run(0, Scope::Thread, 0, &[amo(number, bytes, vec![item])]);
                let what = format!("atomic {number} of {bytes} bytes on {old:#x}, direct {direct}");
                let new = result(number, old & mask, value & mask, compare & mask) & mask;
                assert_eq!(
                    rig.ends[1].window_at::<u64>(WORDS, 1)[0],
                    old & !mask | new,
                    "{what}"
                );
                let rest = u64::from_le_bytes([0xee; 8]);
                let fetched = [rest & !mask | old & mask, rest];
                assert_eq!(rig.ends[0].window_at::<u64>(RESULTS, 2), fetched, "{what}");
            }
        }
        assert_eq!(rig.findings(), [""; 0]);
    }
}

#[test]
fn fetch_adds_of_both_ranks_on_one_word_are_all_different() {
    // Rank 0 reaches the word by its QP; rank 1, where it lies, directly. Across PCIe an atomic of a GPU and one of the HCA on a
    // word of host memory are not atomic together, so there rank 1 has a word of its own.
    const STEPS: u32 = 20;
    let on_simt = test_gpu().label() == "simt";
    let words = [WORDS, if on_simt { WORDS } else { WORDS + 64 }];
    for (seed, bytes) in (0..4_u64).flat_map(|seed| [(seed, 4), (seed, 8)]) {
        let rig = rig();
        let start = u64::MAX >> (64 - 8 * bytes) & !0xff; // near the end: the sum wraps
        for word in words {
            rig.ends[1].write(word, &start.to_le_bytes());
        }
        let units = |word: u64, count: u64| -> Vec<Vec<Call>> {
            let call = |unit: u64, k: u64| {
                let item = |lane: u64| OpItem {
                    remote: word,
                    local: RESULTS + 8 * ((unit * u64::from(STEPS) + k) * 32 + lane),
                    value: 1,
                    ..OpItem::default()
                };
                amo(ADD, bytes, (0..32).map(item).collect())
            };
            let calls = |unit| (0..u64::from(STEPS)).map(|k| call(unit, k)).collect();
            (0..count).map(calls).collect()
        };
        let (here, there) = (units(words[0], 3), units(words[1], 2));
        rig.set_peer_here(1);
        let running = [
            rig.start(0, Scope::Warp, seed, &here),
            rig.start(1, Scope::Warp, seed, &there),
        ];
        for side in [0, 1] {
            let ended = rig.finish(side, &running[side]);
            assert!(
                ended.iter().all(|end| end.waited == Status::OK),
                "seed {seed}, rank {side}: {ended:?}"
            );
        }
        let mut old: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (side, units) in [&here, &there].into_iter().enumerate() {
            let count = units.len() * STEPS as usize * 32;
            let fetched = rig.ends[side].window_at::<u64>(RESULTS, count);
            let mask = u64::MAX >> (64 - 8 * bytes);
            let of_word = old.entry(words[side]).or_default();
            of_word.extend(
                fetched
                    .into_iter()
                    .map(|word| (word & mask).wrapping_sub(start) & mask),
            );
        }
        for (word, mut values) in old {
            values.sort_unstable();
            assert!(
                values.iter().copied().eq(0..values.len() as u64),
                "seed {seed}, {bytes} bytes at {word}: old values are not all different: {values:?}"
            );
        }
        assert_eq!(rig.findings(), [""; 0]);
    }
}

#[test]
fn a_lock_by_compare_swap_and_swap_has_one_holder_at_a_time() {
    // Each lane takes the word from 0 once in program order: exactly one compare_swap of a round finds it free.
    let rig = rig();
    for round in 0..10_u64 {
        rig.ends[1].write(WORDS, &0_u64.to_le_bytes());
        let item = |lane: u64| OpItem {
            remote: WORDS,
            local: RESULTS + 8 * lane,
            value: 100 * round + lane + 1,
            compare: 0,
            ..OpItem::default()
        };
        let take = amo(COMPARE_SWAP, 8, (0..32).map(item).collect());
        let release = amo(
            SWAP,
            8,
            vec![OpItem {
                value: 0,
                ..item(40)
            }],
        );
        rig.run(0, Scope::Warp, round, &[take, release]);
        let seen: Vec<u64> = rig.ends[0].window_at(RESULTS, 41);
        // Lanes are in order, so the first one wins, and all others see it.
        assert_eq!(seen[0], 0, "round {round}");
        assert!(
            seen[1..32].iter().all(|&word| word == 100 * round + 1),
            "{seen:?}"
        );
        assert_eq!(seen[40], 100 * round + 1);
        assert_eq!(rig.ends[1].window_at::<u64>(WORDS, 1)[0], 0_u64);
    }
}

#[test]
fn unwanted_results_go_to_the_sink_and_a_nop_follows_wide_ones() {
    let rig = rig();
    rig.ends[1].write(WORDS, &[0; 64]);
    let item = |lane: u64| OpItem {
        remote: WORDS,
        local: u64::MAX,
        value: 1 << lane,
        ..OpItem::default()
    };
    for (number, bytes, wqes) in [(OR, 8, 33), (XOR, 8, 32), (ADD, 4, 32), (SWAP, 4, 32)] {
        let before = rig.ends[0].hca.counters();
        rig.run(
            0,
            Scope::Warp,
            0,
            &[amo(number, bytes, (0..32).map(item).collect())],
        );
        let after = rig.ends[0].hca.counters();
        let what = format!("atomic {number} of {bytes} bytes");
        assert_eq!(after.wqes - before.wqes, wqes, "{what}");
        assert_eq!(after.cqes - before.cqes, 1, "{what}");
    }
    assert_eq!(rig.findings(), [""; 0]);
}

#[test]
fn what_the_device_lacks_is_refused_and_nothing_is_posted() {
    let all = ATOMIC_64 | ATOMIC_MASKED_32 | ATOMIC_MASKED_64;
    let rig = rig();
    assert_eq!(rig.context_of(0).atomics & all, all);
    assert_eq!(
        rig.context_of(0).atomics & ATOMIC_RESULT_BE,
        0,
        "softhca answers as the host does"
    );
    let item = OpItem {
        remote: WORDS,
        local: RESULTS,
        ..OpItem::default()
    };
    for number in 0..6 {
        for bytes in [4, 8] {
            let needs = match (bytes, number) {
                (4, _) => ATOMIC_MASKED_32,
                (_, 0 | 1) => ATOMIC_64,
                _ => ATOMIC_MASKED_64,
            };
            let call = amo(number, bytes, vec![item]);
            let offset = offset_of!(QpContext, atomics);
            rig.patch_of(0, offset, &(all & !needs));
            assert_eq!(rig.try_one(0, Scope::Thread, &call), Status::INVALID);
            rig.patch_of(0, offset, &needs);
            assert_eq!(rig.try_one(0, Scope::Thread, &call), Status::OK);
            // Off the boundary, at this side or at the peer.
            for off in [
                OpItem {
                    remote: WORDS + u64::from(bytes) / 2,
                    ..item
                },
                OpItem {
                    local: RESULTS + 1,
                    ..item
                },
            ] {
                let call = amo(number, bytes, vec![off]);
                assert_eq!(rig.try_one(0, Scope::Thread, &call), Status::INVALID);
            }
        }
    }
    assert_eq!(
        rig.context_of(0).resv,
        12 + 3 * 2,
        "three of two WQEBBs and a NOP"
    );
    assert_eq!(rig.findings(), [""; 0]);
}

#[test]
fn big_endian_results_are_turned_around() {
    // What a device answers whose results of 8 bytes are big-endian looks to a kernel as if softhca's word were swapped.
    let rig = rig();
    let bits = rig.context_of(0).atomics | ATOMIC_RESULT_BE;
    rig.patch_of(0, offset_of!(QpContext, atomics), &bits);
    rig.ends[1].write(WORDS, &0x0102_0304_0506_0708_u64.to_le_bytes());
    let item = OpItem {
        remote: WORDS,
        local: RESULTS,
        ..OpItem::default()
    };
    rig.run(0, Scope::Thread, 0, &[amo(ADD, 8, vec![item])]);
    assert_eq!(
        rig.ends[0].window_at::<u64>(RESULTS, 1)[0],
        0x0807_0605_0403_0201_u64
    );
}
