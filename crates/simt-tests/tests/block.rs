//! Blocks, grids and memory: barriers, atomics, progress across blocks and workers.

// UNSAFETY: launches kernels.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]

mod common;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use common::{run, shape, until};
use simt::{Dim3, LaunchConfig};

#[test]
fn two_blocks_take_turns_through_memory() {
    for (seed, workers) in [(0, 1), (1, 1), (2, 1), (3, 1), (0, 2), (9, 2)] {
        let (mut flags, mut data, mut bad) = ([0u32; 2], 0u32, 0u32);
        let config = LaunchConfig {
            seed,
            workers,
            ..shape(2, 64)
        };
        run(
            "ping_pong",
            args![flags.as_mut_ptr(), &raw mut data, &raw mut bad, 300i32],
            &config,
        )
        .unwrap();
        assert_eq!(
            (flags, data, bad),
            ([300; 2], 2100, 0),
            "seed {seed}, {workers} workers"
        );
    }
}

#[test]
fn a_cooperative_grid_meets_across_workers() {
    for (seed, workers) in [(0, 1), (5, 1), (0, 2), (5, 3)] {
        let (mut words, mut bad) = ([0u32; 7], 0u32);
        let config = LaunchConfig {
            seed,
            workers,
            cooperative: true,
            ..shape(7, 40)
        };
        run(
            "grid_rounds",
            args![words.as_mut_ptr(), &raw mut bad, 20i32],
            &config,
        )
        .unwrap();
        assert_eq!(bad, 0, "seed {seed}, {workers} workers");
        assert_eq!(words[6], 19_006);
    }
}

#[test]
fn atomics_lose_nothing_between_workers() {
    for (seed, workers) in [(0, 1), (0, 2), (11, 2)] {
        let n = 8 * 64u32;
        let mut u = [0u32, 0, 0, u32::MAX, 0, u32::MAX, 0, 0, 0, 0, 0];
        let (mut i, mut l, mut f) = ([0i32, 0, i32::MIN], [0u64; 2], [0f32]);
        let config = LaunchConfig {
            seed,
            workers,
            ..shape(8, 64)
        };
        run(
            "atomics",
            args![
                u.as_mut_ptr(),
                i.as_mut_ptr(),
                l.as_mut_ptr(),
                f.as_mut_ptr()
            ],
            &config,
        )
        .unwrap();
        let xor = (0..n).fold(0, |a, b| a ^ b);
        assert_eq!(
            u[..9],
            [
                n,
                0u32.wrapping_sub(2 * n),
                n - 1,
                5,
                u32::MAX,
                0xffff_0000,
                xor,
                n % 10,
                n
            ],
            "seed {seed}"
        );
        assert!((1..=n).contains(&u[9]), "the last exchange wins");
        assert_eq!(u[10], 0, "each thread exchanges a value of its own once");
        assert_eq!(i, [-3 * 512, -511, 511 - 100_000]);
        assert_eq!(
            l,
            [
                u64::from(n) << 32 | u64::from(n * (n - 1) / 2),
                u64::from(n - 1) << 33
            ]
        );
        assert_eq!(f[0], 256.0);
    }
}

#[test]
fn each_block_has_static_shared_memory_of_its_own() {
    for (seed, workers) in [(0, 1), (4, 1), (0, 2), (7, 2)] {
        let mut bad = 0u32;
        let config = LaunchConfig {
            seed,
            workers,
            ..shape(6, 40)
        };
        run("static_shared", args![&raw mut bad], &config).unwrap();
        assert_eq!(bad, 0, "seed {seed}, {workers} workers");
    }
}

#[test]
fn an_exited_thread_counts_as_arrived_at_a_barrier() {
    for seed in 0..4 {
        let mut out = vec![0u32; 70];
        run(
            "leaving",
            args![out.as_mut_ptr()],
            &LaunchConfig {
                seed,
                ..shape(1, 70)
            },
        )
        .unwrap();
        let expected: Vec<u32> = (0..70).map(|round| 70 - round).collect();
        assert_eq!(out, expected, "seed {seed}");
    }
}

#[test]
fn barriers_count_and_combine_predicates() {
    for seed in 0..4 {
        let mut out = vec![0u32; 100];
        run(
            "block_votes",
            args![out.as_mut_ptr()],
            &LaunchConfig {
                seed,
                ..shape(1, 100)
            },
        )
        .unwrap();
        assert_eq!(out, vec![34 << 4 | 0b1100; 100], "seed {seed}");
    }
}

#[test]
fn coordinates_cover_grid_and_block_once_and_shared_memory_starts_as_a5() {
    for workers in [1, 2] {
        let (grid, block) = (Dim3::from((3, 2, 4)), Dim3::from((5, 3, 3)));
        let (mut seen, mut wrong) = (vec![0u32; 24 * 45], 0u32);
        let config = LaunchConfig {
            grid,
            block,
            shared_bytes: 333,
            workers,
            ..LaunchConfig::default()
        };
        let stats = run(
            "coordinates",
            args![seen.as_mut_ptr(), &raw mut wrong, 333i32],
            &config,
        )
        .unwrap();
        assert!(seen.iter().all(|&times| times == 1));
        assert_eq!(wrong, 0);
        assert_eq!(stats.threads, 24 * 45);
    }
}

#[test]
fn a_hundred_seeds_of_a_ticket_lock_lose_no_entry() {
    let mut orders = std::collections::HashSet::new();
    for seed in 0..100 {
        let log = ticket_log(seed);
        let mut sorted = log.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..96).collect::<Vec<_>>(), "seed {seed}");
        orders.insert(log);
    }
    assert!(
        orders.len() > 90,
        "only {} orders from 100 seeds",
        orders.len()
    );
    assert_eq!(
        ticket_log(42),
        ticket_log(42),
        "the same seed gives the same schedule"
    );
}

fn ticket_log(seed: u64) -> Vec<u32> {
    let (mut log, mut lock) = (vec![0u32; 97], [0u32; 2]);
    let config = LaunchConfig {
        seed,
        ..shape(3, 32)
    };
    run(
        "ticket_log",
        args![log.as_mut_ptr(), lock.as_mut_ptr()],
        &config,
    )
    .unwrap();
    assert_eq!(log[0], 96, "seed {seed}");
    log.split_off(1)
}

#[test]
#[cfg_attr(
    feature = "tsan",
    ignore = "the checker: a clock of 33,000 entries per thread"
)]
fn thirty_three_thousand_threads_run_at_once_and_block_after_block() {
    // Reduction: blocks do not wait for each other, so a few seats serve all of them.
    let x = vec![1f32; 132 * 256];
    let mut out = vec![0f32; 132];
    let config = LaunchConfig {
        shared_bytes: 32,
        ..shape(132, 256)
    };
    let stats = run(
        "block_reduce",
        args![x.as_ptr(), out.as_mut_ptr(), 33_792i32, 1i32],
        &config,
    )
    .unwrap();
    assert_eq!(out, vec![256.0; 132]);
    assert_eq!(stats.threads, 33_792);
    assert!(stats.seats <= 4, "{stats:?}");
    // A cooperative grid: all must sit.
    let (mut words, mut bad) = (vec![0u32; 132], 0u32);
    let config = LaunchConfig {
        cooperative: true,
        ..shape(132, 256)
    };
    let stats = run(
        "grid_rounds",
        args![words.as_mut_ptr(), &raw mut bad, 1i32],
        &config,
    )
    .unwrap();
    assert_eq!((bad, stats.seats), (0, 132));
}

#[test]
fn launches_from_several_host_threads_are_independent() {
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            scope.spawn(move || {
                for _ in 0..5 {
                    assert_eq!(ticket_log(seed), ticket_log(seed));
                    let mut v = 0u32;
                    let error = run("failing", args![0i32, &raw mut v], &shape(2, 96)).unwrap_err();
                    assert!(error.to_string().contains("planted"), "{error}");
                }
            });
        }
    });
}

#[test]
fn a_host_thread_can_release_a_kernel() {
    let (flag, looks) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            until("the kernel looks", || looks.load(Relaxed) > 20);
            flag.store(1, Relaxed);
        });
        let stats = run(
            "poll_flag",
            args![flag.as_ptr(), looks.as_ptr()],
            &shape(2, 64),
        )
        .unwrap();
        assert!(stats.sleeps > 10, "{stats:?}, {looks:?} looks");
    });
}

#[test]
fn an_mmio_store_is_followed_by_the_kick_hook() {
    static KICKS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn kick() {
        KICKS.fetch_add(1, Relaxed);
    }
    simt::set_kick_hook(kick);
    let (mut register, mut now) = (0u64, [0u64; 2]);
    let started = Instant::now();
    run(
        "doorbell",
        args![&raw mut register, now.as_mut_ptr()],
        &shape(1, 1),
    )
    .unwrap();
    assert_eq!(register, 0x1122_3344_5566_7788);
    assert_eq!(KICKS.load(Relaxed), 1);
    let elapsed_ns = u64::try_from(started.elapsed().as_nanos()).unwrap();
    assert!(now[0] > 0 && now[1] >= now[0] && now[1] - now[0] <= elapsed_ns);
}

#[test]
fn a_store_to_an_unmapped_register_ends_the_launch_and_stores_nothing() {
    static MAPPED: AtomicU64 = AtomicU64::new(0);
    let (mut registers, mut now) = ([0u64; 2], [0u64; 2]);
    let addr = |at: usize| registers.as_ptr().wrapping_add(at).expose_provenance() as u64;
    let (mapped, other) = (addr(0), addr(1));
    MAPPED.store(mapped, Relaxed);
    let config = LaunchConfig {
        registers: Some(|addr| addr == MAPPED.load(Relaxed)),
        ..shape(1, 1)
    };
    let start = registers.as_mut_ptr();
    let mut ring = |at: usize| {
        run(
            "doorbell",
            args![start.wrapping_add(at), now.as_mut_ptr()],
            &config,
        )
    };
    ring(0).unwrap();
    let error = ring(1).unwrap_err().to_string();
    let expected =
        format!("block (0,0,0) warp 0 lane 0: stored to a device register at {other:#x}");
    assert!(error.starts_with(&expected), "{error}");
    assert_eq!(registers, [0x1122_3344_5566_7788, 0]);
}
