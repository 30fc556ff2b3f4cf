//! The threads of all workers.

use std::sync::{Arc, Mutex, OnceLock};

use super::held::Held;
use super::inbox::{Inbox, Pace};
use super::worker::Worker;
use crate::config::CpuList;
use crate::engine::lock::lock;
use crate::engine::places::cpus;
use crate::engine::transfers::Transfers;
use crate::error::{OwnThread, ThreadPanicked};
use crate::provider::{Provider, ProviderError};

/// The parts with which a worker is started.
#[derive(Debug)]
pub(in crate::engine) struct Seat<R> {
    pub(in crate::engine) reaper: R,
    /// The CPUs on which the worker runs. None: any.
    pub(in crate::engine) cpus: Option<CpuList>,
}

/// What an engine does with its workers, whatever they post to.
pub(in crate::engine) trait Workers: Send + Sync {
    /// Returns how often workers have woken.
    fn wakes(&self) -> u64;

    /// Ends the threads. Their links are broken already.
    fn stop(&self);
}

/// The workers of all NICs.
pub(in crate::engine) struct Pool<P: Provider> {
    inboxes: Vec<Arc<Inbox<P>>>,
    /// The panic of the first worker that has panicked.
    panicked: Arc<OnceLock<ThreadPanicked>>,
    threads: Mutex<Vec<OwnThread>>,
}

impl<P: Provider> Pool<P> {
    /// Starts a worker for each seat.
    pub(in crate::engine) fn start(
        transfers: &Arc<Transfers>,
        seats: Vec<Seat<P::Reaper>>,
        pace: Pace,
    ) -> Result<Self, ProviderError> {
        let (mut inboxes, mut threads) = (Vec::new(), Vec::new());
        let panicked = Arc::new(OnceLock::new());
        for (number, Seat { reaper, cpus }) in (0..).zip(seats) {
            let inbox = Arc::new(Inbox::new(number, transfers.queues().of(number)));
            let mut worker = Worker::<P>::new(transfers, &inbox, reaper, pace);
            let name = format!("wv-engine-{number}");
            let (own_name, told) = (name.clone(), Arc::clone(&panicked));
            let body = move || {
                cpus.iter().for_each(cpus::pin);
                if let Err(panic) = ThreadPanicked::catch(&own_name, || worker.run()) {
                    tracing::error!("{panic}");
                    let _ = told.set(panic.clone());
                    worker.end_of_panic(&panic);
                }
            };
            threads.push(OwnThread::spawn(&name, body, |_| {})?);
            inboxes.push(inbox);
        }
        Ok(Self {
            inboxes,
            panicked,
            threads: Mutex::new(threads),
        })
    }

    /// Returns the panic of a worker as an error, if one has panicked.
    pub(in crate::engine) fn check(&self) -> Result<(), ThreadPanicked> {
        self.panicked.get().map_or(Ok(()), |it| Err(it.clone()))
    }

    /// Gives a lane of a link to a worker.
    pub(in crate::engine) fn add(&self, worker: u32, lane: Held<P::Lane>) {
        self.inboxes[worker as usize].give(lane);
    }
}

impl<P: Provider> Workers for Pool<P> {
    fn wakes(&self) -> u64 {
        let wakes = self
            .inboxes
            .iter()
            .map(|inbox| inbox.queue().wake().wakes());
        wakes.sum()
    }

    fn stop(&self) {
        for inbox in &self.inboxes {
            inbox.stop();
        }
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            thread.join();
        }
    }
}
