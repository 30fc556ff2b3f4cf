//! The threads of all workers, and what others give them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::{Held, Pace, Worker};
use crate::config::CpuList;
use crate::engine::lock::lock;
use crate::engine::places::cpus;
use crate::engine::transfers::Transfers;
use crate::engine::transfers::queue::{Item, RunQueue};
use crate::error::{OwnThread, ThreadPanicked};
use crate::provider::{Provider, ProviderError};

/// What others give a worker.
pub(super) struct Inbox<P: Provider> {
    /// The worker's.
    pub(super) number: u32,
    pub(super) queue: Arc<RunQueue>,
    pub(super) lanes: Mutex<Vec<Held<P::Lane>>>,
    pub(super) stops: AtomicBool,
}

/// The workers of all NICs.
pub(in crate::engine) struct Pool<P: Provider> {
    inboxes: Vec<Arc<Inbox<P>>>,
    /// The first that has panicked.
    panicked: Arc<OnceLock<ThreadPanicked>>,
    threads: Mutex<Vec<OwnThread>>,
}

impl<P: Provider> Pool<P> {
    /// Starts a worker for each reaper, on these CPUs or on any.
    pub(in crate::engine) fn start(
        transfers: &Arc<Transfers>,
        reapers: Vec<(P::Reaper, Option<CpuList>)>,
        pace: Pace,
    ) -> Result<Self, ProviderError> {
        let (mut inboxes, mut threads) = (Vec::new(), Vec::new());
        let panicked = Arc::new(OnceLock::new());
        for (number, (reaper, cpus)) in (0..).zip(reapers) {
            let inbox = Arc::new(Inbox {
                number,
                queue: Arc::clone(transfers.queue(number)),
                lanes: Mutex::default(),
                stops: AtomicBool::new(false),
            });
            let mut worker = Worker::<P>::new(transfers, &inbox, reaper, pace);
            let name = format!("wv-engine-{number}");
            let (own_name, told) = (name.clone(), Arc::clone(&panicked));
            let body = move || {
                cpus.iter().for_each(cpus::pin);
                if let Err(panic) = ThreadPanicked::catch(&own_name, || worker.run()) {
                    tracing::error!("{panic}");
                    let _ = told.set(panic.clone());
                    worker.end_of_panic(number, &panic);
                }
            };
            let thread = OwnThread::spawn(&name, body, |_| {});
            threads.push(thread.map_err(|source| ProviderError::System {
                call: "spawn",
                source,
            })?);
            inboxes.push(inbox);
        }
        Ok(Self {
            inboxes,
            panicked,
            threads: Mutex::new(threads),
        })
    }

    /// How often workers have woken.
    pub(in crate::engine) fn wakes(&self) -> u64 {
        let wakes = self.inboxes.iter().map(|inbox| inbox.queue.wake.wakes());
        wakes.sum()
    }

    /// Returns the panic of a worker as an error, if one has panicked.
    pub(in crate::engine) fn check(&self) -> Result<(), ThreadPanicked> {
        self.panicked.get().map_or(Ok(()), |it| Err(it.clone()))
    }

    /// Gives a lane of a link to a worker.
    pub(in crate::engine) fn add(&self, worker: u32, lane: Held<P::Lane>) {
        let inbox = &self.inboxes[worker as usize];
        lock(&inbox.lanes).push(lane);
        inbox.queue.push(Item::Look);
    }

    /// Ends the threads. Their links have broken before, or have no HCA.
    pub(in crate::engine) fn stop(&self) {
        for inbox in &self.inboxes {
            inbox.stops.store(true, Ordering::SeqCst);
            inbox.queue.push(Item::Look);
        }
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            thread.join();
        }
    }
}
