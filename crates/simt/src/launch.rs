//! The call that runs a grid: it starts the workers and waits for them.

// UNSAFETY: the caller answers for the arguments of a kernel.
#![expect(unsafe_code, reason = "`launch` is an unsafe function")]

use std::ffi::c_void;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

#[cfg(feature = "tsan")]
use crate::check;
use crate::config::{LaunchConfig, Shape};
use crate::error::LaunchError;
use crate::kernel::{Call, Entry};
use crate::shared::Launch;
use crate::stats::LaunchStats;
use crate::thread::is_inside;
use crate::worker::Worker;

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
    if is_inside() {
        return Err(LaunchError::Nested);
    }
    let call = Call::new(entry, args.as_mut_ptr());
    let launch = Arc::new(Launch::begin(call, shape, config.deadline));
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
    stats.elapsed = launch.elapsed();
    stats.grid_syncs = u64::from(launch.grid().generation());
    #[cfg(feature = "tsan")]
    {
        let findings = check::end_launch(launch.number());
        if !findings.is_empty() && !launch.has_failed() {
            return Err(LaunchError::Findings { findings });
        }
    }
    match launch.take_failure() {
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
