//! The transfers of a link: which workers get them, and how many run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::deadline::Looks;
use crate::engine::lock::lock;

/// The load of one link.
#[derive(Debug)]
pub(in crate::engine) struct Load {
    /// The workers that have a lane, in order.
    workers: Vec<u32>,
    /// The workers in the order in which they take small transfers. A worker is in it as often as the speed of its rail says.
    turns: Vec<u32>,
    turn: AtomicU32,
    /// The number of transfers that are not concluded.
    running: AtomicU32,
    /// The number of running transfers that copies cannot move.
    for_nic: AtomicU32,
    lock: Mutex<()>,
    drained: Condvar,
}

impl Load {
    /// Returns the load of a link whose lanes have these workers, which take small transfers in their order.
    pub(super) fn new(owners: &[u32]) -> Self {
        let mut workers = owners.to_vec();
        workers.sort_unstable();
        workers.dedup();
        Self {
            turns: workers.clone(),
            workers,
            turn: AtomicU32::new(0),
            running: AtomicU32::new(0),
            for_nic: AtomicU32::new(0),
            lock: Mutex::new(()),
            drained: Condvar::new(),
        }
    }

    /// Sets the order in which workers take small transfers.
    pub(super) fn set_turns(&mut self, turns: Vec<u32>) {
        self.turns = turns;
    }

    /// Returns the workers that have a lane, in order.
    pub(in crate::engine) fn workers(&self) -> &[u32] {
        &self.workers
    }

    /// Returns the worker whose turn it is to take a small transfer. The list is empty if no worker has a lane.
    pub(in crate::engine) fn next_worker(&self) -> &[u32] {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        match self.turns.len() {
            0 => &[],
            count => &self.turns[turn % count..=turn % count],
        }
    }

    /// Counts a transfer that begins. `is_for_nic`: copies cannot move it.
    pub(in crate::engine) fn begin(&self, is_for_nic: bool) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.for_nic.fetch_add(is_for_nic.into(), Ordering::Relaxed);
    }

    /// Counts the end of a transfer.
    pub(in crate::engine) fn end(&self, is_for_nic: bool) {
        self.for_nic.fetch_sub(is_for_nic.into(), Ordering::Relaxed);
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The lock makes sure that a thread in `drain` has not looked yet, or waits already.
            drop(lock(&self.lock));
            self.drained.notify_all();
        }
    }

    /// Returns whether transfers run that copies cannot move.
    pub(in crate::engine) fn has_some_for_nic(&self) -> bool {
        self.for_nic.load(Ordering::Relaxed) > 0
    }

    /// Waits until no transfer runs. Returns how many run at the end of the wait.
    pub(in crate::engine) fn drain(&self, most: Duration) -> u32 {
        let mut held = lock(&self.lock);
        let mut running = 0;
        for left in Looks::within(most) {
            running = self.running.load(Ordering::Acquire);
            if running == 0 {
                break;
            }
            let waited = self.drained.wait_timeout(held, left);
            held = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        running
    }
}
