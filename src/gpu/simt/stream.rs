//! A stream of the simt backend: one thread that runs launches in order.
//!
//! A failed kernel poisons its device. Whatever was submitted before the failure and has not begun does not run, in any stream.
//! New launches are refused, until a caller has waited for the failed one and seen why.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::capture::{self, Captured, Member};
use crate::error::{OwnThread, ThreadPanicked};
use crate::gpu::launch::Completion;
use crate::gpu::stream::{Graph, Queue};
use crate::gpu::{Event, GpuError};

/// The name of a stream's thread.
const THREAD: &str = "simt-stream";

/// What a launch does, given the number of the replay (0 outside of graphs); the error is the report of the failure.
pub(super) type Work = Arc<dyn Fn(u64) -> Result<(), String> + Send + Sync>;

/// What all streams of a device share.
#[derive(Debug, Default)]
pub(super) struct Health {
    state: Mutex<Poison>,
}

#[derive(Debug, Default)]
struct Poison {
    /// Kernels that have failed so far.
    failures: u64,
    /// The name of the last of them.
    last: String,
    /// The failed kernel that no caller has seen yet.
    unseen: Option<Arc<Done>>,
}

/// Runs work in order on a thread of its own; dropping it waits for what was queued.
pub(super) struct SimtStream {
    queue: Option<Sender<Job>>,
    thread: Option<OwnThread>,
    health: Arc<Health>,
    /// The capture that it is part of.
    member: Mutex<Option<Member>>,
}

struct Job {
    task: Task,
    done: Ending,
    /// Failures of the device when it was submitted.
    failures: u64,
}

enum Task {
    Run(Work),
    Wait(Arc<Done>),
}

/// How one launch ended.
#[derive(Debug)]
struct Done {
    kernel: String,
    result: Mutex<Option<Result<(), GpuError>>>,
    changed: Condvar,
}

/// The end of a launch, which comes also when the stream's thread panics before it.
struct Ending(Arc<Done>);

/// What an event holds: the end of its own launch, and the poison that seeing it lifts.
#[derive(Debug)]
struct Pending {
    done: Arc<Done>,
    health: Arc<Health>,
}

impl SimtStream {
    /// A stream of the device whose health this is.
    pub(super) fn start(health: &Arc<Health>) -> Result<Self, GpuError> {
        let (queue, jobs) = channel();
        let body = {
            let health = Arc::clone(health);
            move || run(&jobs, &health)
        };
        // The jobs that it leaves end by themselves.
        let thread = OwnThread::spawn(THREAD, body, |_| {}).map_err(|error| GpuError::Thread {
            what: "stream",
            reason: error.to_string(),
        })?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            health: Arc::clone(health),
            member: Mutex::new(None),
        })
    }

    /// Whether it belongs to the device whose health that is.
    pub(super) fn is_of(&self, health: &Arc<Health>) -> bool {
        Arc::ptr_eq(&self.health, health)
    }

    /// Queues `work`, which is a launch of `kernel`, or records it.
    pub(super) fn submit(&self, kernel: &str, work: Work) -> Result<Event, GpuError> {
        if let Some(member) = capture::current(&mut lock(&self.member)) {
            return Ok(Event::new(Arc::new(member.push(kernel, work))));
        }
        self.queue(kernel, Task::Run(work))
    }

    fn queue(&self, kernel: &str, task: Task) -> Result<Event, GpuError> {
        let gone = || match self.thread.as_ref().map(OwnThread::check) {
            Some(Err(panicked)) => panicked.into(),
            _ => GpuError::Kernel {
                kernel: kernel.to_owned(),
                report: "the stream's thread has ended".to_owned(),
            },
        };
        let failures = {
            let poison = lock(&self.health.state);
            if poison.unseen.is_some() {
                return Err(poison.error(kernel));
            }
            poison.failures
        };
        let done = Arc::new(Done {
            kernel: kernel.to_owned(),
            result: Mutex::new(None),
            changed: Condvar::new(),
        });
        let job = Job {
            task,
            done: Ending(Arc::clone(&done)),
            failures,
        };
        let queue = self.queue.as_ref().ok_or_else(gone)?;
        queue.send(job).map_err(|_| gone())?;
        let health = Arc::clone(&self.health);
        Ok(Event::new(Arc::new(Pending { done, health })))
    }
}

impl Queue for SimtStream {
    fn wait(&self, event: &Event) -> Result<(), GpuError> {
        let mut member = lock(&self.member);
        if let Some(captured) = event.downcast::<Captured>() {
            return captured.join(&mut member, &self.health);
        }
        let pending = event
            .downcast::<Pending>()
            .filter(|pending| self.is_of(&pending.health))
            .ok_or_else(|| GpuError::BadArgument {
                what: "event",
                value: "of another device".to_owned(),
                limit: "an event of the stream's device".to_owned(),
            })?;
        if capture::current(&mut member).is_some() {
            return Err(GpuError::Capture {
                detail: format!(
                    "a recorded launch cannot wait for {}, which is not recorded",
                    pending.done.kernel
                ),
            });
        }
        let earlier = Arc::clone(&pending.done);
        self.queue("a wait for an event", Task::Wait(earlier))
            .map(|_| ())
    }

    fn record(&self) -> Result<Event, GpuError> {
        if let Some(member) = capture::current(&mut lock(&self.member)) {
            return Ok(Event::new(Arc::new(member.end("a record"))));
        }
        self.queue("a record", Task::Run(Arc::new(|_| Ok(()))))
    }

    fn is_capturing(&self) -> Result<bool, GpuError> {
        Ok(capture::current(&mut lock(&self.member)).is_some())
    }

    fn begin_capture(&self) -> Result<(), GpuError> {
        let mut member = lock(&self.member);
        if capture::current(&mut member).is_some() {
            return Err(GpuError::Capture {
                detail: "the stream is in one already".to_owned(),
            });
        }
        *member = Some(Member::begin(&self.health));
        Ok(())
    }

    fn end_capture(&self) -> Result<Graph, GpuError> {
        capture::end(&mut lock(&self.member))
    }
}

impl Drop for SimtStream {
    fn drop(&mut self) {
        // A capture that no caller can end any more would hold the streams that joined it.
        drop(capture::end(&mut lock(&self.member)));
        drop(self.queue.take());
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl fmt::Debug for SimtStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimtStream")
            .field("health", &self.health)
            .field("member", &self.member)
            .finish_non_exhaustive()
    }
}

fn run(jobs: &Receiver<Job>, health: &Health) {
    for Job {
        task,
        done,
        failures,
    } in jobs
    {
        // Before the look at the device's health: the failure of what is waited for counts.
        if let Task::Wait(earlier) = &task {
            earlier.block();
        }
        let poisoned = {
            let poison = lock(&health.state);
            (poison.failures != failures).then(|| poison.error(&done.0.kernel))
        };
        let result = match (poisoned, task) {
            (Some(error), _) => Err(error),
            (None, Task::Wait(_)) => Ok(()),
            // A panic is of the library or of the kernel's host code: the device is poisoned as by any other failure.
            (None, Task::Run(work)) => match ThreadPanicked::catch(THREAD, || work(0)) {
                Ok(ended) => ended.map_err(|report| GpuError::Kernel {
                    kernel: done.0.kernel.clone(),
                    report,
                }),
                Err(panicked) => Err(panicked.into()),
            },
        };
        if has_failed(&result) {
            let mut poison = lock(&health.state);
            poison.failures += 1;
            poison.last.clone_from(&done.0.kernel);
            poison.unseen = Some(Arc::clone(&done.0));
        }
        done.set(result);
    }
}

/// Whether a launch ran and failed.
fn has_failed(result: &Result<(), GpuError>) -> bool {
    matches!(result, Err(GpuError::Kernel { .. } | GpuError::Panicked(_)))
}

impl Ending {
    /// The first end counts.
    fn set(&self, result: Result<(), GpuError>) {
        lock(&self.0.result).get_or_insert(result);
        self.0.changed.notify_all();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if lock(&self.0.result).is_some() {
            return;
        }
        let message = format!("before kernel {} ended", self.0.kernel);
        let thread = THREAD.to_owned();
        self.set(Err(ThreadPanicked { thread, message }.into()));
    }
}

impl Poison {
    fn error(&self, kernel: &str) -> GpuError {
        GpuError::Poisoned {
            kernel: kernel.to_owned(),
            failed: self.last.clone(),
        }
    }
}

impl Done {
    /// Waits for the end. Every launch has a deadline.
    fn block(&self) {
        let mut result = lock(&self.result);
        while result.is_none() {
            result = self
                .changed
                .wait(result)
                .unwrap_or_else(PoisonError::into_inner);
        }
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
    /// Lets a caller that has got the failure go on.
    fn observe(&self, result: &Result<(), GpuError>) {
        if !has_failed(result) {
            return;
        }
        let mut poison = lock(&self.health.state);
        if poison
            .unseen
            .as_ref()
            .is_some_and(|failed| Arc::ptr_eq(failed, &self.done))
        {
            poison.unseen = None;
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
// UNSAFETY: replays graphs whose work uses no addresses.
#[expect(unsafe_code, reason = "launching a graph is unsafe")]
mod tests;
