//! A launch whose threads all poll gives its core away, and notices soon when something happens.

// UNSAFETY: launches kernels; reads the CPU clock of this OS thread.
#![expect(unsafe_code, reason = "launching a kernel is unsafe; clock_gettime")]

mod common;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::{run, shape, until};
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

/// Each test holds this lock. All launches of a process sleep on one wake word, so a launch of another test would wake those of
/// this one.
fn alone() -> MutexGuard<'static, ()> {
    static LAUNCHES: Mutex<()> = Mutex::new(());
    LAUNCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Rounds in which all threads poll in vain before the first sleep, each time that something has happened.
const SPIN_ROUNDS: u32 = 4;
/// Sleeps double from 1 µs up to this.
const LONGEST_SLEEP: Duration = Duration::from_micros(200);
/// Sleeps until they are that long.
const DOUBLINGS: u64 = 8;

#[test]
fn a_polling_launch_sleeps_after_each_round_of_looks() {
    let _alone = alone();
    for (kernel, seed) in [
        ("poll_flag", 0),
        ("poll_flag", 1),
        ("poll_flag", 2),
        ("warp_poll_flag", 0),
        ("warp_poll_flag", 1),
    ] {
        let (flag, looks) = (AtomicU32::new(0), AtomicU32::new(0));
        let (stats, cpu, wall) = thread::scope(|scope| {
            scope.spawn(|| {
                until("2000 looks", || looks.load(Relaxed) >= 2000);
                flag.store(1, Release);
            });
            let (cpu, started) = (cpu_time(), Instant::now());
            let stats = run(
                kernel,
                args![flag.as_ptr(), looks.as_ptr()],
                &LaunchConfig {
                    seed,
                    ..shape(2, 128)
                },
            )
            .unwrap();
            (stats, cpu_time() - cpu, started.elapsed())
        });
        let looks = looks.into_inner();
        println!("{kernel} seed {seed}: {looks} looks, {cpu:?} of {wall:?}, {stats:?}");
        // In plain order all threads look once in a round; in random order one may look a few times before all have.
        let each = if seed == 0 { 1 } else { 8 };
        // The first and the last rounds have no sleep.
        assert!(
            stats.sleeps * each + 100 >= looks.into(),
            "{kernel} seed {seed}: {looks} looks, {stats:?}"
        );
        // A sleep is never shorter than asked for.
        let least = LONGEST_SLEEP * u32::try_from(stats.sleeps.saturating_sub(DOUBLINGS)).unwrap();
        assert!(wall >= least, "{kernel} seed {seed}: {wall:?}, {stats:?}");
    }
}

#[test]
fn polling_workers_of_one_launch_wake_each_other() {
    let _alone = alone();
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
    println!("500 rounds: {stats:?}");
    assert_eq!((bad, flags), (0, [500; 2]), "{stats:?}");
}

#[test]
fn two_workers_whose_threads_all_poll_both_sleep() {
    let _alone = alone();
    let (flag, looks) = (AtomicU32::new(0), [const { AtomicU32::new(0) }; 2]);
    let stats = thread::scope(|scope| {
        scope.spawn(|| {
            until("300 looks of each block", || {
                looks.iter().all(|looks| looks.load(Relaxed) >= 300)
            });
            flag.store(1, Release);
        });
        let config = LaunchConfig {
            workers: 2,
            ..shape(2, 64)
        };
        run(
            "poll_flag_each",
            args![flag.as_ptr(), looks.as_ptr()],
            &config,
        )
        .unwrap()
    });
    // A worker takes more rounds without a sleep when it sees that the other one has begun or ended.
    let looks: u32 = looks.iter().map(|looks| looks.load(Relaxed)).sum();
    assert!(
        stats.sleeps + 100 >= looks.into(),
        "{looks} looks, {stats:?}"
    );
}

#[test]
fn the_wake_word_makes_a_launch_look_often_again() {
    let _alone = alone();
    const BUMPS: u32 = 20;
    static WORD: AtomicU32 = AtomicU32::new(0);
    simt::set_wake_word(&WORD);
    let (flag, looks) = (AtomicU32::new(0), AtomicU32::new(0));
    let stats = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..BUMPS {
                // By then the launch has gone over to its longest sleeps.
                let then = looks.load(Relaxed) + 50;
                until("50 looks", || looks.load(Relaxed) >= then);
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
            let then = looks.load(Relaxed) + 50;
            until("50 looks", || looks.load(Relaxed) >= then);
            flag.store(1, Release);
        });
        run(
            "poll_flag",
            args![flag.as_ptr(), looks.as_ptr()],
            &shape(1, 1),
        )
        .unwrap()
    });
    // After each bump it looks some times without a sleep between.
    let looks = looks.into_inner();
    assert!(
        u64::from(looks) >= stats.sleeps + u64::from(BUMPS * SPIN_ROUNDS),
        "{looks} looks, {stats:?}"
    );
}
