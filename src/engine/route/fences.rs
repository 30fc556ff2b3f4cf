//! The fences of a link. After a fence no packet of a slice that has failed can land any more.
//!
//! When one QP fails and others are left, both ends reset its pair and use it again: a new life of the lane. When the link ends,
//! both ends reset all pairs. Only after such a reset no packet can land any more. So a transfer of which a slice has failed is
//! concluded after the fences of the lanes on which it has failed, or after the fence of the link. If the other end does not answer,
//! the transfer is concluded with a report that says so.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::deadline::Looks;
use crate::engine::ids::TransferId;
use crate::engine::limits::MOST_QPS;
use crate::error::ThreadPanicked;

/// The number of a life of each lane, counted from 1 on. 0: no life.
pub(in crate::engine) type Lives = [u32; MOST_QPS];

/// What is known of the other end once this one is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Fence {
    /// The other end is reset too: nothing lands in its memory.
    Whole,
    /// The other end did not answer.
    RemoteUnknown,
}

/// What a link hands over to its control thread when it has ended.
#[derive(Debug)]
pub(in crate::engine) struct Left {
    /// Transfers that have waited for the fence.
    pub(in crate::engine) waiting: Vec<TransferId>,
    /// The thread that has panicked. No thread finishes the slices that a worker held, or serves the QPs for the control thread.
    pub(in crate::engine) panicked: Option<ThreadPanicked>,
}

/// The lives and fences of all lanes of a link, and the fence of the link itself.
#[derive(Debug)]
pub(in crate::engine) struct Fences {
    state: Mutex<State>,
    changed: Condvar,
    /// How often a lane has begun another life.
    resets: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    lanes: Vec<Life>,
    /// Transfers that wait for the fence of a lane or of the link.
    waiting: Vec<TransferId>,
    /// The fence of the link, once it stands.
    fence: Option<Fence>,
    /// The first worker with a lane that has panicked.
    worker: Option<ThreadPanicked>,
    /// The control thread, if it has panicked.
    control: Option<ThreadPanicked>,
    #[cfg(test)]
    planted: Option<Planted>,
}

/// The present life of a lane.
#[derive(Debug)]
struct Life {
    worker: u32,
    number: u32,
    /// The last life after which both ends have reset the pair.
    fenced: u32,
    /// True if the worker has the lane, or is about to get it.
    is_held: bool,
}

/// The place at which a test lets the control thread panic, once.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Planted {
    /// While it watches the connection.
    Watch,
    /// While it takes the connection down.
    End,
}

impl Fences {
    /// Begins the first life of each lane, at the worker that is named for it.
    pub(super) fn new(owners: &[u32]) -> Self {
        let first = |worker: &u32| Life {
            worker: *worker,
            number: 1,
            fenced: 0,
            is_held: true,
        };
        let state = State {
            lanes: owners.iter().map(first).collect(),
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            resets: AtomicU64::new(0),
        }
    }

    /// Makes a change of the lanes under the lock, so that a thread that asks for their workers sees it whole.
    pub(super) fn alone<T>(&self, change: impl FnOnce() -> T) -> T {
        let _state = self.state();
        change()
    }

    /// Begins the next life of a lane. `open` lets slices go by the lane. Returns the number of that life.
    pub(super) fn begin_life(&self, lane: usize, open: impl FnOnce()) -> u32 {
        let mut state = self.state();
        open();
        self.resets.fetch_add(1, Ordering::Relaxed);
        let Some(it) = state.lanes.get_mut(lane) else {
            return 0;
        };
        it.number += 1;
        it.is_held = true;
        it.number
    }

    /// Notes that the worker of the lane has dropped it.
    pub(super) fn end_life(&self, lane: usize) {
        if let Some(it) = self.state().lanes.get_mut(lane) {
            it.is_held = false;
        }
        self.changed.notify_all();
    }

    /// Returns how many times lanes have begun another life, over all lanes.
    pub(in crate::engine) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Returns whether the worker of the lane has it, or is about to get it.
    pub(in crate::engine) fn is_held(&self, lane: usize) -> bool {
        self.state().lanes.get(lane).is_some_and(|it| it.is_held)
    }

    /// Returns the worker of the lane.
    pub(in crate::engine) fn worker_of(&self, lane: usize) -> u32 {
        self.state().lanes.get(lane).map_or(0, |it| it.worker)
    }

    /// Returns the workers of the lanes that are wanted, each once, in their order.
    pub(super) fn workers_of(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<u32> {
        let state = self.state();
        let lanes = state.lanes.iter().enumerate();
        let wanted = lanes.filter(|(lane, _)| is_wanted(*lane));
        let mut workers: Vec<u32> = wanted.map(|(_, it)| it.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }

    /// Notes that both ends have reset the pair after the present life of the lane. Returns the transfers that may have waited for it.
    pub(in crate::engine) fn fence_lane(&self, lane: usize) -> Vec<TransferId> {
        let mut state = self.state();
        if let Some(it) = state.lanes.get_mut(lane) {
            it.fenced = it.number;
        }
        std::mem::take(&mut state.waiting)
    }

    /// Notes that the fence of the link stands.
    pub(in crate::engine) fn fence_all(&self, fence: Fence) -> Left {
        let mut state = self.state();
        state.fence = Some(fence);
        Left {
            waiting: std::mem::take(&mut state.waiting),
            panicked: state.worker.clone().or_else(|| state.control.clone()),
        }
    }

    /// Returns the fence after the lives that a transfer has lost, if that fence stands. If not, the transfer waits for it.
    pub(in crate::engine) fn after(&self, lost: &Lives, id: TransferId) -> Option<Fence> {
        let mut state = self.state();
        let mut lanes = state.lanes.iter().zip(lost);
        if lanes.all(|(lane, lost)| *lost <= lane.fenced) {
            return Some(Fence::Whole);
        }
        if state.fence.is_none() {
            state.waiting.push(id);
        }
        state.fence
    }

    /// Returns whether the fence of the link stands, so that no transfer waits for it any more.
    pub(in crate::engine) fn is_over(&self) -> bool {
        self.state().fence.is_some()
    }

    /// Waits until no worker has a lane. Returns false if the time is over first.
    pub(in crate::engine) fn wait_for_lanes(&self, most: Duration) -> bool {
        let mut looks = Looks::within(most);
        let mut state = self.state();
        while state.lanes.iter().any(|lane| lane.is_held) {
            let Some(left) = looks.next() else {
                return false;
            };
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Notes that a worker with a lane has panicked. Returns the fence of the link, if it stands already: then the worker itself writes
    /// off what it held.
    pub(super) fn lose_worker(&self, panicked: &ThreadPanicked) -> Option<Fence> {
        let mut state = self.state();
        state.worker.get_or_insert_with(|| panicked.clone());
        state.fence
    }

    /// Notes that the control thread has panicked.
    pub(super) fn lose_control(&self, panicked: &ThreadPanicked) {
        let mut state = self.state();
        state.control.get_or_insert_with(|| panicked.clone());
    }

    /// Returns the first worker with a lane that has panicked.
    pub(in crate::engine) fn panicked(&self) -> Option<ThreadPanicked> {
        self.state().worker.clone()
    }

    #[cfg(test)]
    pub(super) fn plant(&self, planted: Planted) {
        self.state().planted = Some(planted);
    }

    #[cfg(test)]
    pub(in crate::engine) fn panic_if_planted(&self, at: Planted) {
        let planted = self.state().planted.take_if(|planted| *planted == at);
        assert_eq!(planted, None, "planted");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
