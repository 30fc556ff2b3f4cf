//! The launch of a grid: the entry of a kernel, what the workers share, and the call that runs them.

// UNSAFETY: calls compiled kernels.
#![expect(
    unsafe_code,
    reason = "an entry is foreign code, its arguments are untyped pointers"
)]

use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(feature = "tsan")]
use crate::check;
use crate::config::{LaunchConfig, Shape};
use crate::error::LaunchError;
use crate::grid::GridBarrier;
use crate::idle;
use crate::thread::current;
use crate::worker::Worker;

/// The entry that `SIMT_EXPORT(kernel)` makes of a kernel. It is called once per CUDA thread with one pointer per parameter.
pub type Entry = unsafe extern "C-unwind" fn(*mut *mut c_void);

/// A kernel and its name, as [`build`](crate#building-kernels) lists them.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The name of the `__global__` function.
    pub name: &'static str,
    /// The function that a launch calls once for each thread.
    pub entry: Entry,
}

/// Makes the table that `simt::build` writes: `pub static KERNELS: &[simt::Kernel]`. It is a macro so that the lints of the crate that
/// includes the table do not look at generated code.
#[doc(hidden)]
#[macro_export]
macro_rules! kernel_table {
    ($($name:literal = $entry:ident,)*) => {
        /// The kernels of this package, compiled for the CPU by `simt::build`.
        pub static KERNELS: &[$crate::Kernel] = {
            unsafe extern "C-unwind" {
                $( fn $entry(args: *mut *mut ::core::ffi::c_void); )*
            }
            &[$( $crate::Kernel { name: $name, entry: $entry } ),*]
        };
    };
}

/// The counts of a launch.
#[derive(Clone, Debug, Default)]
pub struct LaunchStats {
    /// The number of CUDA threads that ran.
    pub threads: u64,
    /// The number of switches into a CUDA thread.
    pub switches: u64,
    /// The number of calls of warp operations and block barriers, counted per thread.
    pub meetings: u64,
    /// How often an OS thread slept because all runnable threads polled.
    pub sleeps: u64,
    /// The most blocks that were resident together, per worker, summed.
    pub seats: u64,
    /// The number of barriers of the whole grid.
    pub grid_syncs: u64,
    /// The number of fences wider than a block.
    pub fences: u64,
    /// The number of loads that kernels have counted (`simt_count_loads`). `load_rounds` is the number of rounds in which a thread issued
    /// them: it waits for memory once in a round.
    pub loads: u64,
    /// The number of rounds of loads, see `loads`.
    pub load_rounds: u64,
    /// The wall-clock time of the launch.
    pub elapsed: Duration,
}

/// The entry and the arguments of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    entry: Entry,
    args: *mut *mut c_void,
}

// SAFETY: the caller of `launch` promises that any number of OS threads may call the entry with these arguments.
unsafe impl Send for Call {}
// SAFETY: as for Send.
unsafe impl Sync for Call {}

impl Call {
    /// Runs the kernel as the current CUDA thread.
    ///
    /// # Safety
    /// Within the `launch` call that the arguments were given to, on the stack of a CUDA thread.
    pub(crate) unsafe fn run(self) {
        // SAFETY: entry and arguments belong together: the contract of `launch`.
        unsafe { (self.entry)(self.args) };
    }
}

/// A counter on a cache line of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Progress(AtomicU64);

/// The state that the workers of a launch share.
pub(crate) struct Launch {
    pub(crate) call: Call,
    pub(crate) shape: Shape,
    pub(crate) grid: GridBarrier,
    /// The number of the launch for the checker.
    #[cfg(feature = "tsan")]
    pub(crate) number: u64,
    started: Instant,
    deadline: Duration,
    failed: AtomicBool,
    failure: Mutex<Option<LaunchError>>,
    /// What each worker's threads have done so far, published once per turn. It is a hint: when it changes, a poll may succeed.
    progress: Box<[Progress]>,
    /// True if a worker sleeps. It is a hint too: a wake that is missed costs the sleeper at most 200 µs.
    sleeper: AtomicBool,
}

impl Launch {
    /// Ends the launch with an error. The first error stays.
    pub(crate) fn fail(&self, error: LaunchError) {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
        self.failed.store(true, Release);
        self.grid.wake();
        idle::wake_all(idle::wake_word());
    }

    /// Replaces the error by an error that explains it better.
    pub(crate) fn explain(&self, damage: LaunchError) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(damage);
    }

    /// Returns whether a worker has failed. Pairs with the store in `fail`.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Acquire)
    }

    /// Returns the configured time, once it has passed.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        (self.started.elapsed() >= self.deadline).then_some(self.deadline)
    }

    pub(crate) fn publish_progress(&self, worker: u32, progress: u64) {
        self.progress[worker as usize].0.store(progress, Relaxed);
    }

    /// Returns the sum of what the other workers have published.
    pub(crate) fn others_progress(&self, worker: u32) -> u64 {
        let others = self
            .progress
            .iter()
            .enumerate()
            .filter(|&(i, _)| i != worker as usize);
        others.fold(0u64, |sum, (_, progress)| {
            sum.wrapping_add(progress.0.load(Relaxed))
        })
    }

    /// Sleeps on the wake word while it is `seen`, at most for `timeout`.
    pub(crate) fn sleep(&self, word: &AtomicU32, seen: u32, timeout: Duration) {
        self.sleeper.store(true, Relaxed);
        idle::sleep(word, seen, timeout);
    }

    /// Wakes sleeping workers of this launch, since a thread of another worker did something.
    #[inline]
    pub(crate) fn wake_sleepers(&self) {
        if self.sleeper.load(Relaxed) && self.sleeper.swap(false, Relaxed) {
            idle::wake_all(idle::wake_word());
        }
    }
}

/// Runs a kernel on every thread of a grid. Returns when all have ended, or with the first error.
///
/// Launches from several OS threads are independent of each other.
///
/// # Errors
/// See [`LaunchError`]. After an error, the threads that had not ended are gone, but what they wrote stays written.
///
/// # Safety
/// `entry` must be a kernel's entry, and `args` hold a valid pointer to each of its parameters, in order. Whatever the kernel
/// accesses through them must be valid for the whole call, from `config.workers` OS threads at a time.
pub unsafe fn launch(
    entry: Entry,
    args: &mut [*mut c_void],
    config: &LaunchConfig,
) -> Result<LaunchStats, LaunchError> {
    let shape = Shape::check(config)?;
    if current().is_some() {
        return Err(LaunchError::Nested);
    }
    let launch = Arc::new(Launch {
        call: Call {
            entry,
            args: args.as_mut_ptr(),
        },
        shape,
        grid: GridBarrier::new(u64::from(shape.blocks) * u64::from(shape.threads)),
        #[cfg(feature = "tsan")]
        number: check::begin_launch(),
        started: Instant::now(),
        deadline: config.deadline,
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
        progress: (0..shape.workers).map(|_| Progress::default()).collect(),
        sleeper: AtomicBool::new(false),
    });
    let mut stats = thread::scope(|scope| {
        let run = |index: u32| {
            caught(index, || Worker::new(&launch, index).run()).unwrap_or_else(|error| {
                // The other workers end too.
                launch.fail(error);
                LaunchStats::default()
            })
        };
        let others: Vec<_> = (1..shape.workers)
            .map_while(|index| {
                let name = format!("simt-{index}");
                let spawned = thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, move || run(index));
                spawned
                    .map_err(|source| launch.fail(no_thread(source)))
                    .ok()
            })
            .collect();
        let mut stats = run(0);
        for other in others {
            // A panic of the worker is caught inside `run`.
            stats.add(&other.join().unwrap_or_default());
        }
        stats
    });
    stats.elapsed = launch.started.elapsed();
    stats.grid_syncs = u64::from(launch.grid.generation());
    #[cfg(feature = "tsan")]
    {
        let findings = check::end_launch(launch.number);
        if !findings.is_empty() && !launch.has_failed() {
            return Err(LaunchError::Findings { findings });
        }
    }
    match launch
        .failure
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take()
    {
        Some(error) => Err(error),
        None => Ok(stats),
    }
}

/// Returns what `run` returns, or the worker's panic as an error.
fn caught(worker: u32, run: impl FnOnce() -> LaunchStats) -> Result<LaunchStats, LaunchError> {
    // The launch fails as a whole, and nothing that the worker held is used again.
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        LaunchError::WorkerPanicked {
            worker,
            message: text.unwrap_or_else(|| "without a message".to_owned()),
        }
    })
}

fn no_thread(source: io::Error) -> LaunchError {
    LaunchError::Resources {
        what: "OS thread for a worker".to_owned(),
        source,
    }
}

impl LaunchStats {
    fn add(&mut self, other: &Self) {
        self.threads += other.threads;
        self.switches += other.switches;
        self.meetings += other.meetings;
        self.sleeps += other.sleeps;
        self.seats += other.seats;
        self.fences += other.fences;
        self.loads += other.loads;
        self.load_rounds += other.load_rounds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_panics_is_an_error_of_the_launch() {
        let error = caught(3, || panic!("planted {}", 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "worker 3 of the launch has panicked: planted 1. This is a defect of the library"
        );
        assert_eq!(caught(0, LaunchStats::default).unwrap().threads, 0);
    }
}
