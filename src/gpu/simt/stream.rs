//! The stream of the simt backend: one thread that runs launches in order.
//!
//! A failed kernel poisons the stream: whatever was queued behind it does not run, and new launches are refused, until somebody
//! has waited for the failed one and seen why.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::gpu::launch::Completion;
use crate::gpu::{Event, GpuError};

/// What a launch does; the error is the report of the failure.
pub(super) type Work = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// Runs work in order on a thread of its own; dropping it waits for what was queued.
pub(super) struct Stream {
    queue: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    poison: Arc<Poison>,
}

/// The failed kernel that nobody has seen yet.
type Poison = Mutex<Option<Arc<Done>>>;

struct Job {
    work: Work,
    done: Arc<Done>,
}

/// How one launch ended.
#[derive(Debug)]
struct Done {
    kernel: String,
    result: Mutex<Option<Result<(), GpuError>>>,
    changed: Condvar,
}

/// What an event holds: the end of its own launch, and the poison that seeing it lifts.
#[derive(Debug)]
struct Pending {
    done: Arc<Done>,
    poison: Arc<Poison>,
}

impl Stream {
    pub(super) fn start() -> Result<Self, GpuError> {
        let (queue, jobs) = channel();
        let poison = Arc::new(Poison::default());
        let thread = std::thread::Builder::new()
            .name("simt-stream".to_owned())
            .spawn({
                let poison = Arc::clone(&poison);
                move || run(&jobs, &poison)
            })
            .map_err(|error| GpuError::OutOfMemory {
                kind: "host",
                bytes: 0,
                detail: format!("a thread: {error}"),
            })?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            poison,
        })
    }

    /// Queues `work`, which is a launch of `kernel`.
    pub(super) fn submit(&self, kernel: &str, work: Work) -> Result<Event, GpuError> {
        let gone = || GpuError::Kernel {
            kernel: kernel.to_owned(),
            report: "the stream's thread has ended".to_owned(),
        };
        if let Some(failed) = lock(&self.poison).as_ref() {
            return Err(poisoned(kernel, failed));
        }
        let done = Arc::new(Done {
            kernel: kernel.to_owned(),
            result: Mutex::new(None),
            changed: Condvar::new(),
        });
        let job = Job {
            work,
            done: Arc::clone(&done),
        };
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(job).map_err(|_| gone())?;
        let poison = Arc::clone(&self.poison);
        Ok(Event::new(Arc::new(Pending { done, poison })))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the simt stream's thread panicked");
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("poison", &self.poison)
            .finish_non_exhaustive()
    }
}

fn run(jobs: &Receiver<Job>, poison: &Poison) {
    for Job { work, done } in jobs {
        let failed = lock(poison).clone();
        let result = match failed {
            Some(failed) => Err(poisoned(&done.kernel, &failed)),
            None => work().map_err(|report| GpuError::Kernel {
                kernel: done.kernel.clone(),
                report,
            }),
        };
        if matches!(result, Err(GpuError::Kernel { .. })) {
            *lock(poison) = Some(Arc::clone(&done));
        }
        *lock(&done.result) = Some(result);
        done.changed.notify_all();
    }
}

fn poisoned(kernel: &str, failed: &Done) -> GpuError {
    GpuError::Poisoned {
        kernel: kernel.to_owned(),
        failed: failed.kernel.clone(),
    }
}

impl Completion for Pending {
    fn wait(&self, timeout: Duration) -> Result<(), GpuError> {
        let deadline = Instant::now().checked_add(timeout);
        let mut result = lock(&self.done.result);
        loop {
            if let Some(result) = result.as_ref() {
                self.observe(result);
                return result.clone();
            }
            // A timeout beyond the clock's range waits in slices of an hour.
            let left = deadline.map_or(Duration::from_secs(3600), |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return Err(GpuError::Timeout {
                    kernel: self.done.kernel.clone(),
                    waited: timeout,
                });
            }
            let waited = self.done.changed.wait_timeout(result, left);
            result = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn is_done(&self) -> bool {
        lock(&self.done.result).is_some()
    }
}

impl Pending {
    /// Whoever has been told of the failure may go on.
    fn observe(&self, result: &Result<(), GpuError>) {
        if !matches!(result, Err(GpuError::Kernel { .. })) {
            return;
        }
        let mut poison = lock(&self.poison);
        if poison
            .as_ref()
            .is_some_and(|failed| Arc::ptr_eq(failed, &self.done))
        {
            *poison = None;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::sync_channel;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn work_runs_in_order_and_launching_does_not_wait() {
        let stream = Stream::start().unwrap();
        let (gate, open) = sync_channel::<()>(0);
        let log = Arc::new(Mutex::new(Vec::new()));
        let first = stream.submit("first", {
            let log = Arc::clone(&log);
            Box::new(move || {
                open.recv().unwrap();
                lock(&log).push(1);
                Ok(())
            })
        });
        let second = stream.submit("second", {
            let log = Arc::clone(&log);
            Box::new(move || {
                lock(&log).push(2);
                Ok(())
            })
        });
        let (first, second) = (first.unwrap(), second.unwrap());
        assert!(!first.is_done() && !second.is_done());
        let error = first.wait(Duration::from_millis(5)).unwrap_err();
        assert!(matches!(error, GpuError::Timeout { .. }), "{error}");
        gate.send(()).unwrap();
        second.wait(LONG).unwrap();
        assert!(first.is_done());
        first.wait(Duration::ZERO).unwrap();
        assert_eq!(*lock(&log), [1, 2]);
    }

    #[test]
    fn a_failure_stops_the_stream_until_it_has_been_seen() {
        let stream = Stream::start().unwrap();
        let bad = stream
            .submit("bad", Box::new(|| Err("deadlock: block 3".to_owned())))
            .unwrap();
        let behind = {
            // Depending on timing it is refused at the launch or queued in vain.
            match stream.submit("behind", Box::new(|| Ok(()))) {
                Ok(event) => event.wait(LONG).unwrap_err(),
                Err(error) => error,
            }
        };
        assert_eq!(
            behind.to_string(),
            "kernel behind did not run: bad failed before it on the same stream"
        );
        // The stream is poisoned a moment before the event is done. Asking whether it is done observes nothing.
        let deadline = Instant::now() + LONG;
        while !bad.is_done() {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        assert!(stream.submit("again", Box::new(|| Ok(()))).is_err());
        for _ in 0..2 {
            let error = bad.wait(LONG).unwrap_err().to_string();
            assert_eq!(error, "kernel bad failed: deadlock: block 3");
        }
        stream
            .submit("good", Box::new(|| Ok(())))
            .unwrap()
            .wait(LONG)
            .unwrap();
    }

    #[test]
    fn dropping_the_stream_runs_what_was_queued() {
        let stream = Stream::start().unwrap();
        let event = stream.submit("last", Box::new(|| Ok(()))).unwrap();
        drop(stream);
        event.wait(Duration::ZERO).unwrap();
    }
}
