//! Ranks as threads of one process: one or several software HCAs for each, a store that all share, and a place where they meet.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use softhca::{Hca, HcaConfig};
use warpverbs::team::{JoinOptions, MemoryStore, Store, Team, TeamConfig, TeamError};
use warpverbs::verbs::{Context, DeviceSelector};

use crate::device::test_gpu;
use crate::hca::hca_with;

/// How long ranks wait for each other. It is long, because one of them may get no core for long.
const PATIENCE: Duration = Duration::from_secs(300);

/// The bound of joins, and of waits of kernels, that are to succeed. The checker of memory order has one lock for all kernels and HCAs of
/// the process, which four tests at a time share.
pub const DEADLINE: Duration = Duration::from_secs(if simt::check::ENABLED { 150 } else { 20 });

/// Returns `count` HCAs with the same configuration.
pub fn hcas(count: usize, config: &HcaConfig) -> Vec<Arc<Hca>> {
    let one = |_| Arc::new(hca_with(config.clone()));
    (0..count).map(one).collect()
}

/// Checks that the HCAs have no finding, and that everything that was made on them is gone.
#[track_caller]
pub fn check<'a>(hcas: impl IntoIterator<Item = &'a Arc<Hca>>) {
    for hca in hcas {
        assert_eq!(hca.findings(), [""; 0], "{}", hca.name());
        let live = hca.live_objects();
        assert_eq!(live.total(), 0, "{}: {live:?}", hca.name());
    }
}

/// Runs `body` on a thread for each rank, with a store that all share. Returns the results by rank.
pub fn on_threads<T: Send>(ranks: u32, body: impl Fn(u32, Arc<dyn Store>) -> T + Sync) -> Vec<T> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
    thread::scope(|scope| {
        let start = |rank: u32| {
            let (body, store) = (&body, Arc::clone(&store));
            scope.spawn(move || body(rank, store))
        };
        let threads: Vec<_> = (0..ranks).map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        joined.collect()
    })
}

/// Opens the devices of a rank.
pub fn contexts<'a>(
    hcas: impl IntoIterator<Item = &'a Hca>,
) -> Result<Vec<Arc<Context>>, TeamError> {
    let open = |hca: &Hca| Context::open(&DeviceSelector::Name(hca.name().to_owned()));
    Ok(hcas.into_iter().map(open).collect::<Result<_, _>>()?)
}

/// Joins as `config.rank`, with a rail on each of `hcas` and the device on which kernels of tests run.
pub fn join<'a>(
    config: TeamConfig,
    hcas: impl IntoIterator<Item = &'a Hca>,
    store: Arc<dyn Store>,
) -> Result<Arc<Team>, TeamError> {
    JoinOptions::new(config)
        .with_contexts(&contexts(hcas)?)
        .with_gpu(&test_gpu())
        .with_store(store)
        .join()
}

/// A place where the ranks of a test wait for each other. A rank that fails releases the others.
#[derive(Debug)]
pub struct Meeting {
    ranks: u32,
    /// The number of arrivals so far, and whether a rank has failed.
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Meeting {
    /// Returns a place for `ranks` ranks.
    pub const fn new(ranks: u32) -> Self {
        Self {
            ranks,
            state: Mutex::new((0, false)),
            changed: Condvar::new(),
        }
    }

    /// Returns a guard that a rank holds while it runs. If the rank panics, the guard releases the others.
    pub fn attend(&self) -> Attendance<'_> {
        Attendance(self)
    }

    /// Waits until all ranks have come here as often as this rank.
    pub fn wait(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        let all = state.0.next_multiple_of(self.ranks);
        self.changed.notify_all();
        while state.0 < all && !state.1 {
            let (next, waited) = self.changed.wait_timeout(state, PATIENCE).unwrap();
            state = next;
            assert!(!waited.timed_out(), "a rank did not come");
        }
        let failed = state.1;
        drop(state);
        assert!(!failed, "another rank failed");
    }
}

/// The guard of a rank that runs, see [`Meeting::attend`].
#[derive(Debug)]
pub struct Attendance<'a>(&'a Meeting);

impl Drop for Attendance<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let lock = self.0.state.lock();
            lock.unwrap_or_else(PoisonError::into_inner).1 = true;
            self.0.changed.notify_all();
        }
    }
}
