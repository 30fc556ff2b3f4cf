//! Prints what a switch, a meeting and a thread cost: `cargo test -p simt-tests --test speed -- --ignored --nocapture`.

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

/// A launch to measure, with how many things of what kind it does.
struct Case<'a> {
    what: &'a str,
    kernel: &'a str,
    unit: &'a str,
    /// Units per thread of the launch.
    per_thread: f64,
}

impl Case<'_> {
    /// Prints the best of ten launches, in ns of CPU time per unit.
    fn measure(&self, args: &mut [*mut c_void], config: &LaunchConfig) {
        let threads = config.grid.x * config.block.x;
        let count = f64::from(threads) * self.per_thread;
        let once = |_| {
            let started = cpu_ns();
            run(self.kernel, args, config).unwrap();
            (cpu_ns() - started) / count
        };
        let best = (0..10).map(once).fold(f64::MAX, f64::min);
        let (grid, block, seed) = (config.grid.x, config.block.x, config.seed);
        let case = format!("{}, {grid} x {block} threads, seed {seed}", self.what);
        println!("{case:<58} {best:9.1} ns/{}", self.unit);
    }
}

#[test]
#[ignore = "prints timings"]
fn switches_and_meetings() {
    [32, 256, 2048].into_iter().for_each(bare_switch);
    let mut out = 0u32;
    for (blocks, threads, n) in [(1, 32, 5_000), (1, 256, 500), (8, 256, 100), (2, 1024, 100)] {
        let case = |what, kernel, unit, per_thread| Case {
            what,
            kernel,
            unit,
            per_thread,
        };
        for seed in [0, 1, 2] {
            let config = LaunchConfig {
                seed,
                ..shape(blocks, threads)
            };
            let each = f64::from(n);
            case("poll", "speed_polls", "switch", each).measure(args![n], &config);
            case("load", "speed_yields", "call", each).measure(args![n], &config);
            case("__shfl_xor_sync", "speed_shuffles", "warp", each / 32.0)
                .measure(args![n, &raw mut out], &config);
            case("__syncthreads", "speed_barriers", "thread", each).measure(args![n], &config);
        }
    }
}

#[test]
#[ignore = "prints timings"]
fn threads() {
    for (blocks, threads) in [(1, 32), (1, 256), (32, 256), (132, 256)] {
        let case = |what| Case {
            what,
            kernel: "speed_nothing",
            unit: "thread",
            per_thread: 1.0,
        };
        case("empty kernel").measure(args![0], &shape(blocks, threads));
        let config = LaunchConfig {
            seed: 1,
            ..shape(blocks, threads)
        };
        case("empty kernel").measure(args![0], &config);
        let kernel = "speed_grid_sync";
        let config = LaunchConfig {
            cooperative: true,
            ..shape(blocks, threads)
        };
        Case {
            kernel,
            ..case("one grid sync, all resident")
        }
        .measure(args![0], &config);
    }
}

#[test]
#[ignore = "prints timings"]
fn code_without_schedule_points() {
    let x = vec![0.5f32; 4096];
    let mut sums = vec![0f32; 256];
    let case = Case {
        what: "loop",
        kernel: "speed_compute",
        unit: "element",
        per_thread: 4096.0,
    };
    let args = (x.as_ptr(), sums.as_mut_ptr());
    case.measure(args![args.0, 2f32, 4096i32, args.1], &shape(1, 256));
    let started = cpu_ns();
    let mut sum = 0.0;
    for _ in 0..256 {
        // SAFETY: 4096 elements, as said.
        sum += unsafe { speed_plain(x.as_ptr(), 2.0, 4096) };
    }
    let best = (cpu_ns() - started) / (256.0 * 4096.0);
    println!(
        "{:<58} {best:9.1} ns/element (sum {sum})",
        "the same as a plain function"
    );
}
