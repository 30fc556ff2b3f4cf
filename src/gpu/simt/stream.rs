//! A stream of the simt backend: one thread that runs launches in order.
//!
//! A failed kernel poisons its device. Launches that were submitted before the failure and have not begun do not run, in any stream. New
//! launches are refused until a caller has waited for the failed one and seen why.

// UNSAFETY: a graph runs kernels on addresses that it recorded.
#![expect(unsafe_code, reason = "launching is unsafe, see `Graph::launch`")]

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::capture::{self, Captured, Member, Recorded, Work};
use super::health::{Done, Health, lock};
use crate::error::{OwnThread, ThreadPanicked};
use crate::gpu::event::Completion;
use crate::gpu::stream::{Graph, Queue, Replay};
use crate::gpu::{Event, GpuError, Stream};

/// The name of a stream's thread.
const THREAD: &str = "simt-stream";

/// A queue of work, run in order on a thread of its own. Its drop waits for what was queued.
pub(super) struct SimtStream {
    queue: Option<Sender<Job>>,
    thread: Option<OwnThread>,
    health: Arc<Health>,
    /// The stream's part in a capture.
    member: Mutex<Option<Member>>,
}

struct Job {
    task: Task,
    done: Ending,
    /// Number of failures of the device when the job was submitted.
    failures: u64,
}

enum Task {
    Run(Work),
    Wait(Arc<Done>),
}

/// The end of a launch. If the stream's thread panics first, the drop of this ends the launch.
struct Ending(Arc<Done>);

/// The content of an event: the end of a launch, and the health of the device from which a wait may lift the poison.
#[derive(Debug)]
struct Pending {
    done: Arc<Done>,
    health: Arc<Health>,
}

impl SimtStream {
    /// Starts a stream of the device with this health.
    pub(super) fn start(health: &Arc<Health>) -> Result<Self, GpuError> {
        let (queue, jobs) = channel();
        let body = {
            let health = Arc::clone(health);
            move || run(&jobs, &health)
        };
        // Jobs that the thread leaves end by themselves when they are dropped.
        let thread = OwnThread::spawn(THREAD, body, |_| {})?;
        Ok(Self {
            queue: Some(queue),
            thread: Some(thread),
            health: Arc::clone(health),
            member: Mutex::new(None),
        })
    }

    /// Returns whether the stream belongs to the device with that health.
    pub(super) fn is_of(&self, health: &Arc<Health>) -> bool {
        Arc::ptr_eq(&self.health, health)
    }

    /// Queues `work`, a launch of `kernel`, or records it.
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
        let failures = self.health.admit(kernel)?;
        let done = Done::new(kernel);
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
                    pending.done.kernel()
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
        let recorded = capture::end(&mut lock(&self.member))?;
        Ok(Graph::new(Box::new(SimtGraph(recorded))))
    }
}

/// A graph of recorded launches.
#[derive(Debug)]
struct SimtGraph(Recorded);

impl Replay for SimtGraph {
    unsafe fn launch(&self, stream: &Stream) -> Result<Event, GpuError> {
        let stream = stream
            .downcast::<SimtStream>()
            .filter(|stream| stream.is_of(self.0.health()))
            .ok_or_else(|| GpuError::BadArgument {
                what: "stream",
                value: "of another device".to_owned(),
                limit: "a stream of the graph's device".to_owned(),
            })?;
        stream.submit("a graph", self.0.replay())
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for SimtStream {
    fn drop(&mut self) {
        // If a capture is left that no caller can end any more, it would hold the streams that joined it.
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

impl Completion for Pending {
    fn wait(&self, timeout: Duration) -> Result<(), GpuError> {
        self.done.wait(timeout, &self.health)
    }

    fn is_done(&self) -> bool {
        self.done.is_set()
    }
}

fn run(jobs: &Receiver<Job>, health: &Health) {
    for Job {
        task,
        done,
        failures,
    } in jobs
    {
        // This waits before it looks at the device's health, so that a failure of the awaited launch counts.
        if let Task::Wait(earlier) = &task {
            earlier.block();
        }
        let done = &done.0;
        let result = health.check(done.kernel(), failures);
        let result = match task {
            // A panic comes from the library or from the kernel's host code. It poisons the device like any other failure.
            Task::Run(work) if result.is_ok() => match ThreadPanicked::catch(THREAD, || work(0)) {
                Ok(ended) => ended.map_err(|report| GpuError::Kernel {
                    kernel: done.kernel().to_owned(),
                    report,
                }),
                Err(panicked) => Err(panicked.into()),
            },
            _ => result,
        };
        health.note(done, &result);
        done.set(result);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.0.is_set() {
            return;
        }
        let message = format!("before kernel {} ended", self.0.kernel());
        let thread = THREAD.to_owned();
        self.0.set(Err(ThreadPanicked { thread, message }.into()));
    }
}

#[cfg(test)]
mod tests;
