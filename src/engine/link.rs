//! What the two ends of a connection agree on, as workers and its control thread share it: whether it is open, who has lanes, and
//! whether the pairs of QPs are fenced.
//!
//! When one QP fails and others are left, its pair is reset at both ends and used again: a new life of the lane. When none is left
//! the link breaks: all its QPs go to the error state, workers drop their lanes as these run dry, and both ends reset the pairs
//! and tell each other. Only behind such a reset no packet can land any more: a transfer of which a slice has failed is concluded
//! behind the fences of those lanes or of the link, or, where the other end does not answer, with a report that says so.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::EngineError;
use super::slots::TransferId;
use crate::error::ThreadPanicked;
use crate::provider::Wake;

/// Most QPs of a connection.
pub(super) const MOST_QPS: usize = 8;

/// A life of each lane, counted from 1 on; 0: none.
pub(super) type Lives = [u32; MOST_QPS];

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    /// No other link of the engine has it.
    pub(super) number: u64,
    /// The life of the engine at the other end.
    pub(super) incarnation: u64,
    is_broken: AtomicBool,
    /// This side has wanted its end.
    is_wished: AtomicBool,
    /// Workers that have a lane, in their order.
    workers: Vec<u32>,
    turn: AtomicU32,
    /// A bit for each lane that takes slices. Changes under the lock.
    open: AtomicU32,
    resets: AtomicU64,
    /// Transfers that are not concluded.
    running: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
    /// Wakes the control thread; none where no HCA stands behind.
    wake: Option<Wake>,
}

#[derive(Debug, Default)]
struct State {
    lanes: Vec<LaneState>,
    /// Transfers that wait for the fence of a lane, or of all.
    waiting: Vec<TransferId>,
    fence: Option<Fence>,
    /// The first worker with a lane that has panicked.
    panicked: Option<ThreadPanicked>,
    /// The control thread has.
    control: Option<ThreadPanicked>,
    #[cfg(test)]
    planted: Option<Planted>,
}

/// Where a test lets the control thread panic, once.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Planted {
    /// While it watches the connection.
    Watch,
    /// While it takes the connection down.
    End,
}

#[derive(Debug)]
struct LaneState {
    worker: u32,
    life: u32,
    /// Both ends have reset the pair behind this life.
    fenced: u32,
    /// The worker has not dropped it.
    is_held: bool,
}

/// What a link leaves to its control thread when it has ended.
#[derive(Debug)]
pub(super) struct Left {
    /// Transfers that have waited for the fence.
    pub(super) waiting: Vec<TransferId>,
    /// The thread that has panicked: nobody finishes what a worker held, and nobody sees to QPs for the control thread.
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

impl LaneState {
    fn first(worker: u32) -> Self {
        Self {
            worker,
            life: 1,
            fenced: 0,
            is_held: true,
        }
    }
}

impl Link {
    /// A link of so many lanes, at most [`MOST_QPS`], of which each belongs to the worker that is named.
    pub(super) fn new(
        (number, incarnation): (u64, u64),
        lanes: &[u32],
        wake: Option<Wake>,
    ) -> Self {
        let mut workers = lanes.to_vec();
        workers.sort_unstable();
        workers.dedup();
        Self {
            number,
            incarnation,
            is_broken: AtomicBool::new(false),
            is_wished: AtomicBool::new(false),
            workers,
            turn: AtomicU32::new(0),
            open: AtomicU32::new((1 << lanes.len()) - 1),
            resets: AtomicU64::new(0),
            running: AtomicU32::new(0),
            state: Mutex::new(State {
                lanes: lanes.iter().copied().map(LaneState::first).collect(),
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

    /// Ends it, because the program wants that.
    pub(super) fn end_by_wish(&self) {
        if self.is_open() {
            self.is_wished.store(true, Ordering::SeqCst);
        }
        self.break_off();
    }

    pub(super) fn is_wished(&self) -> bool {
        self.is_wished.load(Ordering::SeqCst)
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

    /// Ends it, because its control thread has panicked. What is not concluded is written off when the lanes are gone.
    pub(super) fn lose_control(&self, panicked: &ThreadPanicked) {
        let mut state = self.state();
        state.control.get_or_insert_with(|| panicked.clone());
        drop(state);
        self.break_off();
    }

    pub(super) fn panicked(&self) -> Option<ThreadPanicked> {
        self.state().panicked.clone()
    }

    /// Lets the control thread panic.
    #[cfg(test)]
    pub(super) fn plant(&self, planted: Planted) {
        self.state().planted = Some(planted);
        if let Some(wake) = &self.wake {
            wake.wake();
        }
    }

    #[cfg(test)]
    pub(super) fn panic_if_planted(&self, at: Planted) {
        let planted = self.state().planted.take_if(|planted| *planted == at);
        assert_eq!(planted, None, "planted");
    }

    pub(super) fn wake(&self) -> Option<&Wake> {
        self.wake.as_ref()
    }

    /// Whether the lane takes slices.
    pub(super) fn is_lane_open(&self, lane: usize) -> bool {
        self.open.load(Ordering::Acquire) & 1 << lane != 0
    }

    /// Whether its worker has the lane, or is about to get it.
    pub(super) fn is_lane_held(&self, lane: usize) -> bool {
        self.state().lanes.get(lane).is_some_and(|it| it.is_held)
    }

    pub(super) fn worker_of(&self, lane: usize) -> u32 {
        self.state().lanes.get(lane).map_or(0, |it| it.worker)
    }

    /// Workers with a lane that takes slices.
    pub(super) fn open_workers(&self) -> Vec<u32> {
        let state = self.state();
        if !self.is_open() {
            return Vec::new();
        }
        let lanes = state.lanes.iter().enumerate();
        let open = lanes.filter(|(lane, _)| self.is_lane_open(*lane));
        let mut workers: Vec<u32> = open.map(|(_, it)| it.worker).collect();
        workers.sort_unstable();
        workers.dedup();
        workers
    }

    /// The HCA has failed the QP of the lane. The link breaks with the last.
    pub(super) fn fail_lane(&self, lane: usize) {
        if self.close_lane(lane) == 1 << lane {
            self.break_off();
        }
    }

    /// The QP of the lane is to be reset, because this side wants it or the other end has said so.
    pub(super) fn end_lane(&self, lane: usize) {
        self.close_lane(lane);
    }

    /// Which lanes were open before.
    fn close_lane(&self, lane: usize) -> u32 {
        let state = self.state();
        let before = self.open.fetch_and(!(1 << lane), Ordering::SeqCst);
        drop(state);
        if let Some(wake) = &self.wake {
            wake.wake();
        }
        before
    }

    /// The pair is connected anew, and its worker gets the lane: the number of this life.
    pub(super) fn open_lane(&self, lane: usize) -> u32 {
        let mut state = self.state();
        self.open.fetch_or(1 << lane, Ordering::SeqCst);
        self.resets.fetch_add(1, Ordering::Relaxed);
        let Some(it) = state.lanes.get_mut(lane) else {
            return 0;
        };
        it.life += 1;
        it.is_held = true;
        it.life
    }

    /// How often a lane was opened again.
    pub(super) fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    /// A worker has dropped the lane.
    pub(super) fn lane_is_gone(&self, lane: usize) {
        if let Some(it) = self.state().lanes.get_mut(lane) {
            it.is_held = false;
        }
        self.changed.notify_all();
        if let Some(wake) = &self.wake {
            wake.wake();
        }
    }

    /// Both ends have reset the pair behind the present life of the lane: the transfers that may have waited for it.
    pub(super) fn fence_lane(&self, lane: usize) -> Vec<TransferId> {
        let mut state = self.state();
        if let Some(it) = state.lanes.get_mut(lane) {
            it.fenced = it.life;
        }
        std::mem::take(&mut state.waiting)
    }

    /// Waits until no lane is left. `false`: the time is over.
    pub(super) fn wait_for_lanes(&self, most: Duration) -> bool {
        let end = Instant::now() + most;
        let mut state = self.state();
        while state.lanes.iter().any(|lane| lane.is_held) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// The fence behind the lives that a transfer has lost, if it stands. Else the transfer waits for it.
    pub(super) fn behind_fence(&self, id: TransferId, lost: &Lives) -> Option<Fence> {
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
            panicked: state.panicked.clone().or_else(|| state.control.clone()),
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
