//! Warp operations and bit intrinsics give what CUDA documents.

// UNSAFETY: launches kernels.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

mod common;

use common::{run, shape};
use simt::LaunchConfig;

const SEEDS: [u64; 4] = [0, 1, 2, 3];

#[test]
fn a_block_reduces_with_shuffles_and_shared_memory() {
    let x: Vec<f32> = (0..512u16).map(f32::from).collect();
    for seed in SEEDS {
        let mut out = [0f32; 2];
        let config = LaunchConfig {
            shared_bytes: 32,
            seed,
            ..shape(2, 256)
        };
        run(
            "block_reduce",
            args![x.as_ptr(), out.as_mut_ptr(), 512i32, 3i32],
            &config,
        )
        .unwrap();
        assert_eq!(out, [32640.0, 98176.0], "seed {seed}");
    }
}

#[test]
fn shuffles_read_the_lane_that_cuda_says() {
    for seed in SEEDS {
        let mut out = vec![0u32; 8 * 64];
        run(
            "shuffles",
            args![out.as_mut_ptr()],
            &LaunchConfig {
                seed,
                ..shape(1, 64)
            },
        )
        .unwrap();
        for t in 0..64u32 {
            let lane = t % 32;
            let sources = [
                5,
                if lane < 3 { lane } else { lane - 3 },
                if lane > 28 { lane } else { lane + 3 },
                lane ^ 1,
                (lane & !7) + 1,
                if lane % 8 < 2 { lane } else { lane - 2 },
                if lane % 8 > 5 { lane } else { lane + 2 },
                if (lane ^ 12) > (lane | 7) {
                    lane
                } else {
                    lane ^ 12
                },
            ];
            for (kind, source) in sources.into_iter().enumerate() {
                assert_eq!(
                    out[kind * 64 + t as usize],
                    1000 + t - lane + source,
                    "seed {seed} kind {kind} thread {t}"
                );
            }
        }
    }
}

#[test]
fn values_of_one_to_eight_bytes_pass_a_shuffle_whole() {
    let mut bad = 0u32;
    run("shuffle_types", args![&raw mut bad], &shape(1, 32)).unwrap();
    assert_eq!(bad, 0);
}

#[test]
fn groups_of_one_warp_vote_independently() {
    for seed in SEEDS {
        let mut out = [0u32; 64];
        run(
            "half_votes",
            args![out.as_mut_ptr()],
            &LaunchConfig {
                seed,
                ..shape(1, 32)
            },
        )
        .unwrap();
        let (odd, even) = (0xaaaa_aaaau32, 0x5555_5555u32);
        let low = 3 * (odd & 0x7ff) + 2 * (even & 0x7ff); // 5 votes, starting with the odd lanes
        let high = (odd & !0x7ff).wrapping_add(even & !0x7ff);
        for lane in 0..32 {
            let expected = if lane < 11 { (low, 2) } else { (high, 1) };
            assert_eq!(
                (out[lane], out[32 + lane]),
                expected,
                "seed {seed} lane {lane}"
            );
        }
    }
}

#[test]
fn matches_compare_all_64_bits() {
    let keys: Vec<u64> = (0..32).map(|lane| (lane % 5) << 40 | 7).collect();
    let mut out = [0u32; 160];
    run(
        "matches",
        args![keys.as_ptr(), out.as_mut_ptr()],
        &shape(1, 32),
    )
    .unwrap();
    for t in 0..32usize {
        let same = (0..32)
            .filter(|&other| keys[other] == keys[t])
            .fold(0u32, |mask, other| mask | 1 << other);
        assert_eq!(
            [out[t], out[32 + t], out[64 + t], out[96 + t], out[128 + t]],
            [same, 0, 0, u32::MAX, 1],
            "lane {t}"
        );
    }
}

#[test]
fn reductions_agree_with_a_scalar_loop() {
    let x: Vec<i32> = (0..32)
        .map(|i: i32| (i * 7919 - 100_000) ^ (i << 27))
        .collect();
    let mut out = vec![0i32; 256];
    run(
        "reduces",
        args![x.as_ptr(), out.as_mut_ptr()],
        &shape(1, 32),
    )
    .unwrap();
    let u = || x.iter().map(|v| v.cast_unsigned());
    let expected = [
        x.iter().fold(0i32, |sum, v| sum.wrapping_add(*v)),
        *x.iter().min().unwrap(),
        *x.iter().max().unwrap(),
        u().min().unwrap().cast_signed(),
        u().max().unwrap().cast_signed(),
        u().fold(u32::MAX, |a, b| a & b).cast_signed(),
        u().fold(0, |a, b| a | b).cast_signed(),
        u().fold(0, |a, b| a ^ b).cast_signed(),
    ];
    for (i, expected) in expected.into_iter().enumerate() {
        assert_eq!(out[i * 32..][..32], [expected; 32], "reduction {i}");
    }
}

#[test]
fn bit_intrinsics_give_the_documented_values() {
    let mut out = [0u32; 18];
    run("bits", args![out.as_mut_ptr()], &shape(1, 32)).unwrap();
    let expected = [
        9,
        8,
        5,
        0,
        41,
        32,
        15,
        63,
        0x8000_0001,
        0x4800_0000,
        0x0011_2233,
        0x7766_5544,
        0x0000_00ff,
        3,
        3,
        3,
        0x3f80_0000,
        6,
    ];
    assert_eq!(out, expected);
}
