//! The state of an engine, which its handles and those of its peers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::time::Instant;

use crate::config::EngineConfig;
use crate::engine::connection::core::{Core, Listening};
use crate::engine::connection::handshake::hello;
use crate::engine::connection::peers::Running;
use crate::engine::connection::publication::Publication;
use crate::engine::error::HostError;
use crate::engine::ids::RegionId;
use crate::engine::ledger::account::Outcome;
use crate::engine::lives::life::EngineLives;
use crate::engine::lock::lock;
use crate::engine::memory::gpus::Gpus;
use crate::engine::memory::regions::Descriptor;
use crate::engine::memory::registry::{Registry, Step};
use crate::engine::route::counter::Counters;
use crate::engine::route::local::Local;
use crate::engine::route::rails::Rails;
use crate::engine::transfers::Transfers;
use crate::engine::worker::{Pool, Workers};
use crate::error::OwnThread;
use crate::provider::Host;

/// The result of closing an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// Transfers that still ran when the time for them was over, and so have failed.
    pub cut_off: u32,
    /// Transfers that were done since the engine was made.
    pub done: u64,
    /// Transfers that failed since the engine was made.
    pub failed: u64,
    /// Transfers that were cancelled since the engine was made.
    pub cancelled: u64,
    /// Transfers that ran into their deadline since the engine was made.
    pub timed_out: u64,
}

/// What an engine is made of.
pub(super) struct NewEngine {
    pub(super) config: EngineConfig,
    pub(super) rails: Arc<Rails>,
    pub(super) transfers: Arc<Transfers>,
    /// The workers with lanes of the rails.
    pub(super) pool: Arc<Pool<Host>>,
    /// All workers: `pool`, or those of another provider.
    pub(super) workers: Arc<dyn Workers>,
}

pub(super) struct Inner {
    pub(super) regions: Mutex<Registry>,
    /// Notified when a region was taken away, or stays.
    pub(super) left: Condvar,
    pub(super) listeners: Mutex<Vec<(Arc<Listening>, OwnThread)>>,
    /// The name of the engine in stores.
    pub(super) published: Mutex<Vec<Publication>>,
    pub(super) gpus: Gpus,
    /// A submitter holds this from its look at `is_closing` until the transfer has begun.
    pub(super) submitting: RwLock<()>,
    /// The last field, so that it is dropped last: registrations stand on its rails.
    pub(super) core: Arc<Core>,
}

impl Inner {
    /// Returns the state of a new engine.
    ///
    /// # Errors
    /// [`HostError::Provider`]: the system has no memory that the engine shares with processes, or a port cannot be described.
    pub(super) fn new(made: NewEngine) -> Result<Self, HostError> {
        let NewEngine {
            config,
            rails,
            transfers,
            pool,
            workers,
        } = made;
        let incarnation = fastrand::u64(..);
        let local = Local::new(config.engine_path, incarnation)?;
        let counters = Arc::new(Counters::new(local.board.as_ref())?);
        let board = local.board.clone();
        let regions = Registry::new(transfers.engine(), board, transfers.flushes());
        let core = Core {
            hello: hello(&rails, &config, incarnation)?,
            known: Arc::new(EngineLives::new(config.peers, config.inbox)),
            config,
            transfers,
            pool,
            workers,
            local,
            counters,
            peers: Mutex::default(),
            arrived: Condvar::new(),
            links: AtomicU64::new(1),
            is_closing: AtomicBool::new(false),
            keys: Arc::default(),
            rails,
        };
        Ok(Self {
            regions: Mutex::new(regions),
            left: Condvar::new(),
            listeners: Mutex::default(),
            published: Mutex::default(),
            gpus: Gpus::default(),
            submitting: RwLock::default(),
            core: Arc::new(core),
        })
    }

    pub(super) fn descriptor(&self, region: RegionId) -> Result<Descriptor, HostError> {
        lock(&self.regions).descriptor(region, self.core.hello.incarnation)
    }

    /// Takes a region away. The lock is not held while peers of this machine end their copies.
    pub(super) fn deregister(&self, region: RegionId) -> Result<(), HostError> {
        let mut regions = lock(&self.regions);
        let leaving = loop {
            match regions.leave(region)? {
                Step::Done => return Ok(()),
                Step::Waits(leaving) => break leaving,
                Step::Taken => {
                    let waited = self.left.wait(regions);
                    regions = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        };
        drop(regions);
        let left = leaving.wait();
        let done = lock(&self.regions).finish(&leaving, left);
        self.left.notify_all();
        done
    }

    /// Ends all connections and threads. Only the first call does that. Every call returns the counts.
    pub(super) fn close(&self) -> CloseReport {
        let was_open = !self.core.is_closing.swap(true, Ordering::AcqRel);
        let mut cut_off = 0;
        if was_open {
            // A submitter that has not seen `is_closing` has begun its transfer before this line, and none begins later. So workers
            // end all transfers.
            drop(
                self.submitting
                    .write()
                    .unwrap_or_else(PoisonError::into_inner),
            );
            let published = std::mem::take(&mut *lock(&self.published));
            drop(published);
            for (listening, thread) in std::mem::take(&mut *lock(&self.listeners)) {
                listening.stops.store(true, Ordering::SeqCst);
                listening.wake.wake();
                thread.join();
            }
            cut_off = self.end_connections();
            self.core.workers.stop();
            self.core.counters.end_mirrors();
            self.core.keys.end_all();
            self.drop_regions();
            self.core.transfers.waiting().change();
        }
        let count = |outcome| self.core.transfers.count(outcome);
        CloseReport {
            cut_off,
            done: count(Outcome::Done),
            failed: count(Outcome::Failed),
            cancelled: count(Outcome::Cancelled),
            timed_out: count(Outcome::TimedOut),
        }
    }

    /// Ends all connections, and returns how many transfers still ran when the time for them was over.
    fn end_connections(&self) -> u32 {
        let running = lock(&self.core.peers).take_all();
        self.core.arrived.notify_all();
        self.core.counters.close();
        let end = Instant::now() + self.core.config.drain;
        let mut cut_off = 0;
        for Running { link, .. } in &running {
            let left = end.saturating_duration_since(Instant::now());
            cut_off += link.load().drain(left);
            link.end_by_wish();
        }
        for ended in running {
            ended.control.join();
        }
        cut_off
    }

    /// Drops the memory of all regions, unless a peer of this machine may still copy to or from it.
    fn drop_regions(&self) {
        let transfers = &self.core.transfers;
        let empty = Registry::new(transfers.engine(), None, transfers.flushes());
        let regions = std::mem::replace(&mut *lock(&self.regions), empty);
        if let Some(board) = &self.core.local.board
            && board.has_copiers()
        {
            tracing::error!(
                "the memory of an engine is kept: a peer of this machine stands still within a copy"
            );
            std::mem::forget(regions);
        }
    }
}
