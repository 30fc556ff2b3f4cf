//! Prints what a switch, a meeting and a thread cost: `cargo test -p simt --test speed -- --ignored --nocapture`.

// UNSAFETY: launches kernels, calls the plain loop to compare with.
#![expect(unsafe_code, reason = "launching a kernel is unsafe")]
#![expect(
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "it is a table of measurements"
)]

mod common;

use std::ffi::c_void;

use common::{run, shape};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, Yielder};
use simt::LaunchConfig;

unsafe extern "C" {
    fn speed_plain(x: *const f32, a: f32, n: i32) -> f32;
}

/// CPU time of the calling OS thread in ns: a launch with one worker runs on it, and the machine may be busy.
fn cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The best of ten launches, in ns of CPU time per `count` of what the launch did.
fn measure(
    what: &str,
    unit: &str,
    kernel: &str,
    args: &mut [*mut c_void],
    config: &LaunchConfig,
    count: f64,
) {
    let once = |_| {
        let started = cpu_ns();
        run(kernel, args, config).unwrap();
        (cpu_ns() - started) / count
    };
    let best = (0..10).map(once).fold(f64::MAX, f64::min);
    println!("{what:<58} {best:9.1} ns/{unit}");
}

/// What a switch costs without simt: coroutines on stacks of 33 KiB that suspend themselves from a function.
fn bare_switch(count: usize) {
    #[inline(never)]
    fn suspend(yielder: &Yielder<(), ()>) {
        yielder.suspend(());
        std::hint::black_box(());
    }
    let stack = || DefaultStack::new(32 << 10).unwrap();
    let body = |yielder: &Yielder<(), ()>, ()| loop {
        suspend(yielder);
    };
    let mut coroutines: Vec<_> = (0..count)
        .map(|_| Coroutine::<(), (), ()>::with_stack(stack(), body))
        .collect();
    let rounds = 200_000 / count;
    let mut best = f64::MAX;
    for _ in 0..10 {
        let started = cpu_ns();
        for _ in 0..rounds {
            for coroutine in &mut coroutines {
                coroutine.resume(());
            }
        }
        best = best.min((cpu_ns() - started) / (rounds * count) as f64);
    }
    println!(
        "{:<58} {best:9.1} ns/switch",
        format!("bare corosensei, {count} coroutines")
    );
}

#[test]
#[ignore = "prints timings"]
fn what_things_cost() {
    let mut out = 0u32;
    [32, 256, 2048].into_iter().for_each(bare_switch);
    for (blocks, threads, n) in [(1, 32, 5_000), (1, 256, 500), (8, 256, 100), (2, 1024, 100)] {
        let switches = f64::from(blocks * threads) * f64::from(n);
        for seed in [0, 1, 2, 3] {
            let config = LaunchConfig {
                seed,
                ..shape(blocks, threads)
            };
            measure(
                &format!("poll {blocks}x{threads} seed {seed}"),
                "switch",
                "speed_polls",
                args![n],
                &config,
                switches,
            );
        }
        let config = shape(blocks, threads);
        measure(
            &format!("yield {blocks}x{threads}"),
            "call",
            "speed_yields",
            args![n],
            &config,
            switches,
        );
        let warps = switches / 32.0;
        measure(
            &format!("shuffle of a full warp, {blocks}x{threads}"),
            "warp",
            "speed_shuffles",
            args![n, &raw mut out],
            &config,
            warps,
        );
        let config = LaunchConfig { seed: 1, ..config };
        measure(
            &format!("shuffle of a full warp, {blocks}x{threads} seed 1"),
            "warp",
            "speed_shuffles",
            args![n, &raw mut out],
            &config,
            warps,
        );
        let config = shape(blocks, threads);
        measure(
            &format!("__syncthreads, {blocks}x{threads}"),
            "thread",
            "speed_barriers",
            args![n],
            &config,
            switches,
        );
    }
    for (blocks, threads) in [(1, 32), (1, 256), (132, 256)] {
        let config = shape(blocks, threads);
        measure(
            &format!("empty kernel {blocks}x{threads}"),
            "thread",
            "speed_nothing",
            args![0],
            &config,
            f64::from(blocks * threads),
        );
        let config = LaunchConfig { seed: 1, ..config };
        measure(
            &format!("empty kernel {blocks}x{threads}, all resident"),
            "thread",
            "speed_nothing",
            args![0],
            &config,
            f64::from(blocks * threads),
        );
    }
    let x = vec![0.5f32; 4096];
    let mut sums = vec![0f32; 256];
    let loops = 256.0 * 4096.0;
    measure(
        "loop without schedule points",
        "element",
        "speed_compute",
        args![x.as_ptr(), 2f32, 4096i32, sums.as_mut_ptr()],
        &shape(1, 256),
        loops,
    );
    let started = cpu_ns();
    let mut sum = 0.0;
    for _ in 0..256 {
        // SAFETY: 4096 elements, as said.
        sum += unsafe { speed_plain(x.as_ptr(), 2.0, 4096) };
    }
    println!(
        "{:<58} {:9.1} ns/element (sum {sum})",
        "the same as a plain function",
        (cpu_ns() - started) / loops
    );
}
