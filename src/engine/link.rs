//! What the two ends of a connection agree on, as workers and its control thread share it: whether it is open, who has lanes, and
//! whether the pairs of QPs are fenced.
//!
//! When one QP fails the link breaks: all its QPs go to the error state, workers drop their lanes as these run dry, and both ends
//! reset the pairs and tell each other. Only then no packet can land any more: a transfer of which a slice has failed is
//! concluded behind that fence, or, where the other end does not answer, with a report that says so.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::EngineError;
use super::slots::TransferId;
use crate::error::ThreadPanicked;
use crate::provider::Wake;

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    /// No other link of the engine has it.
    pub(super) number: u64,
    is_broken: AtomicBool,
    /// Workers that have a lane, in their order.
    workers: Vec<u32>,
    turn: AtomicU32,
    /// Transfers that are not concluded.
    running: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the control thread; none where no HCA stands behind.
    wake: Option<Wake>,
}

#[derive(Debug, Default)]
struct State {
    /// Lanes that workers have not dropped.
    lanes: usize,
    /// Transfers that wait for the fence.
    waiting: Vec<TransferId>,
    fence: Option<Fence>,
    /// The first worker with a lane that has panicked.
    panicked: Option<ThreadPanicked>,
}

/// What a link leaves to its control thread when it has ended.
#[derive(Debug)]
pub(super) struct Left {
    /// Transfers that have waited for the fence.
    pub(super) waiting: Vec<TransferId>,
    /// The worker that has panicked: nobody finishes what it held.
    pub(super) panicked: Option<ThreadPanicked>,
}

/// What is known of the other end once this one is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fence {
    /// It is reset too: nothing lands there.
    Whole,
    /// It did not answer.
    RemoteUnknown,
}

impl Link {
    /// A link of so many lanes, of which each belongs to the worker that is named.
    pub(super) fn new(number: u64, lanes: &[u32], wake: Option<Wake>) -> Self {
        let mut workers = lanes.to_vec();
        workers.sort_unstable();
        workers.dedup();
        Self {
            number,
            is_broken: AtomicBool::new(false),
            workers,
            turn: AtomicU32::new(0),
            running: AtomicU32::new(0),
            state: Mutex::new(State {
                lanes: lanes.len(),
                ..State::default()
            }),
            changed: Condvar::new(),
            wake,
        }
    }

    /// Whether it takes transfers.
    pub(super) fn is_open(&self) -> bool {
        !self.is_broken.load(Ordering::Acquire)
    }

    /// Whether it takes transfers to `peer`.
    pub(super) fn check(&self, peer: &str) -> Result<(), EngineError> {
        if self.is_open() {
            return Ok(());
        }
        let gone = || EngineError::PeerGone {
            peer: peer.to_owned(),
        };
        let panicked = self.panicked();
        Err(panicked.map_or_else(gone, EngineError::WorkerPanicked))
    }

    pub(super) fn has_lanes_of(&self, worker: u32) -> bool {
        self.workers.contains(&worker)
    }

    /// Whose run queues get a transfer: of all workers with a lane, or of one of them in turn.
    pub(super) fn workers(&self, is_small: bool) -> &[u32] {
        if !is_small {
            return &self.workers;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        match self.workers.len() {
            0 => &[],
            count => &self.workers[turn % count..=turn % count],
        }
    }

    /// Ends it, from any thread. `true`: it was open.
    pub(super) fn break_off(&self) -> bool {
        let was_open = !self.is_broken.swap(true, Ordering::SeqCst);
        if let Some(wake) = &self.wake {
            wake.wake();
        }
        was_open
    }

    /// Ends it, because a worker with a lane has panicked. The fence, if it stands already: then the worker itself writes off.
    pub(super) fn lose_worker(&self, panicked: &ThreadPanicked) -> Option<Fence> {
        let mut state = self.state();
        state.panicked.get_or_insert_with(|| panicked.clone());
        let fence = state.fence;
        drop(state);
        self.break_off();
        fence
    }

    pub(super) fn panicked(&self) -> Option<ThreadPanicked> {
        self.state().panicked.clone()
    }

    pub(super) fn wake(&self) -> Option<&Wake> {
        self.wake.as_ref()
    }

    /// A worker has dropped a lane.
    pub(super) fn lane_is_gone(&self) {
        self.state().lanes -= 1;
        self.changed.notify_all();
    }

    /// Waits until no lane is left. `false`: the time is over.
    pub(super) fn wait_for_lanes(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut state = self.state();
        while state.lanes > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The fence, if it stands. Else the transfer waits for it.
    pub(super) fn behind_fence(&self, id: TransferId) -> Option<Fence> {
        let mut state = self.state();
        if state.fence.is_none() {
            state.waiting.push(id);
        }
        state.fence
    }

    /// Whether it has ended, and all that has waited for its end goes on.
    pub(super) fn is_over(&self) -> bool {
        self.state().fence.is_some()
    }

    /// The fence stands.
    pub(super) fn fence(&self, fence: Fence) -> Left {
        let mut state = self.state();
        state.fence = Some(fence);
        Left {
            waiting: std::mem::take(&mut state.waiting),
            panicked: state.panicked.clone(),
        }
    }

    pub(super) fn begin_transfer(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end_transfer(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            drop(self.state());
            self.changed.notify_all();
        }
    }

    /// Waits until no transfer runs. How many do when the time is over.
    pub(super) fn drain(&self, most: Duration) -> u32 {
        let end = Instant::now() + most;
        let mut state = self.state();
        loop {
            let running = self.running.load(Ordering::Acquire);
            let left = end.saturating_duration_since(Instant::now());
            if running == 0 || left.is_zero() {
                return running;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
