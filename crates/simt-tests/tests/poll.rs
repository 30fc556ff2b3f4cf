//! A launch whose threads all poll gives its core away, and notices soon when something happens.

// UNSAFETY: launches kernels; reads the CPU clock of this OS thread.
#![expect(unsafe_code, reason = "launching a kernel is unsafe; clock_gettime")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::Release};
use std::thread;
use std::time::{Duration, Instant};

use common::{run, shape};
use simt::LaunchConfig;

/// CPU time of the calling OS thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes a local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(
        time.tv_sec.try_into().unwrap(),
        time.tv_nsec.try_into().unwrap(),
    )
}

#[test]
fn a_polling_launch_uses_less_than_a_third_of_a_core() {
    for (kernel, seed) in [
        ("poll_flag", 0),
        ("poll_flag", 1),
        ("poll_flag", 2),
        ("warp_poll_flag", 0),
        ("warp_poll_flag", 1),
    ] {
        let (flag, mut looks) = (AtomicU32::new(0), 0u32);
        let (cpu, wall) = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(300));
                flag.store(1, Release);
            });
            let (cpu, started) = (cpu_time(), Instant::now());
            run(
                kernel,
                args![flag.as_ptr(), &raw mut looks],
                &LaunchConfig {
                    seed,
                    ..shape(2, 128)
                },
            )
            .unwrap();
            (cpu_time() - cpu, started.elapsed())
        });
        assert!(
            cpu < wall * 3 / 10,
            "{kernel} seed {seed}: {cpu:?} of {wall:?}, {looks} looks"
        );
        assert!(
            looks > 50,
            "{kernel} seed {seed}: only {looks} looks in {wall:?}"
        );
    }
}

#[test]
fn polling_workers_of_one_launch_sleep_together_and_wake_each_other() {
    let (mut flags, mut data, mut bad) = ([0u32; 2], 0u32, 0u32);
    let config = LaunchConfig {
        workers: 2,
        ..shape(2, 32)
    };
    let stats = run(
        "ping_pong",
        args![flags.as_mut_ptr(), &raw mut data, &raw mut bad, 500i32],
        &config,
    )
    .unwrap();
    assert_eq!((bad, flags), (0, [500; 2]), "{stats:?}");
    assert!(stats.elapsed < Duration::from_secs(5), "{stats:?}");
}

#[test]
fn two_workers_whose_threads_all_poll_both_sleep() {
    let (flag, mut looks) = (AtomicU32::new(0), 0u32);
    let stats = thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            flag.store(1, Release);
        });
        let config = LaunchConfig {
            workers: 2,
            ..shape(2, 64)
        };
        run("poll_flag", args![flag.as_ptr(), &raw mut looks], &config).unwrap()
    });
    // At most 200 µs each, plus what a busy machine adds.
    assert!(stats.sleeps > 50, "{stats:?}");
}

#[test]
fn the_wake_word_ends_a_sleep() {
    static WORD: AtomicU32 = AtomicU32::new(0);
    simt::set_wake_word(&WORD);
    // A device that bumps the word all the time, as one with much traffic does: polls never sleep for long.
    let (flag, stop, mut looks) = (AtomicU32::new(0), AtomicBool::new(false), 0u32);
    let stats = thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(100) {
                WORD.fetch_add(1, Release);
                // SAFETY: a futex word that lives for ever.
                unsafe {
                    libc::syscall(
                        libc::SYS_futex,
                        WORD.as_ptr(),
                        libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                        i32::MAX,
                    )
                };
            }
            flag.store(1, Release);
            stop.store(true, Relaxed);
        });
        run(
            "poll_flag",
            args![flag.as_ptr(), &raw mut looks],
            &shape(1, 1),
        )
        .unwrap()
    });
    assert!(stop.load(Relaxed));
    // Without the word, 100 ms hold at most about 500 sleeps of 200 µs with one look each.
    assert!(looks > 1_500, "{looks} looks, {stats:?}");
}
