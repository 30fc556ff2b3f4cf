//! A worker: one thread with lanes and the reaper of their completions. In turns it pulls slices for its lanes, posts chains, rings
//! doorbells, and finishes slices that complete. Without work it spins for a short time, then sleeps.

mod alarms;
mod end;
mod held;
mod inbox;
mod links;
mod pool;
mod post;
mod reap;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use self::alarms::{Alarm, Alarms, Due};
use self::inbox::Inbox;
use self::links::Links;
use self::post::Poster;
use self::reap::Reaping;
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::Close;
use crate::engine::lock::lock;
use crate::engine::route::link::Link;
use crate::engine::transfers::Transfers;
use crate::engine::transfers::queue::{Item, Task};
use crate::provider::Provider;

pub(super) use self::held::Held;
pub(super) use self::inbox::Pace;
pub(super) use self::pool::{Pool, Seat, Workers};

/// The number of turns without work before the worker sleeps.
const SPINS: u32 = 200;

/// The number of turns between two looks at the clock while the worker has work.
const TURNS: u32 = 32;

/// Longest sleep while the HCA has WQEs of the worker. Drivers lose interrupts. With this bound a completion whose event is lost is found
/// after that time, and no transfer waits for ever.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

struct Worker<P: Provider> {
    transfers: Arc<Transfers>,
    inbox: Arc<Inbox<P>>,
    links: Links<P::Lane>,
    poster: Poster,
    reaping: Reaping<P>,
    alarms: Alarms,
    grace: Duration,
    /// The time of at most a few turns ago.
    now: Instant,
    /// A list that is kept for its memory.
    items: VecDeque<Item>,
}

impl<P: Provider> Worker<P> {
    fn new(
        transfers: &Arc<Transfers>,
        inbox: &Arc<Inbox<P>>,
        reaper: P::Reaper,
        pace: Pace,
    ) -> Self {
        let queue = &inbox.queue;
        Self {
            transfers: Arc::clone(transfers),
            inbox: Arc::clone(inbox),
            links: Links::new(),
            poster: Poster::new(transfers, queue, inbox.number, pace),
            reaping: Reaping::new(transfers, queue, reaper, pace.reap),
            alarms: Alarms::new(),
            grace: pace.grace,
            now: Instant::now(),
            items: VecDeque::with_capacity(64),
        }
    }

    fn run(&mut self) {
        let (mut idle, mut turns) = (0, 0u32);
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS) {
                self.now = Instant::now();
                self.ring_alarms();
            }
            if self.inbox.queue.has_items() {
                self.take_items();
                if self.inbox.stops.load(Ordering::SeqCst) {
                    self.give_up();
                    return;
                }
            }
            let has_reaped = self.reaping.reap(&mut self.links, self.now);
            let has_posted = self.poster.post(&mut self.links, self.now);
            if has_reaped || has_posted {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle < SPINS {
                std::hint::spin_loop();
            } else {
                self.ring_alarms();
                self.sleep();
                idle = 0;
            }
        }
    }

    fn take_items(&mut self) {
        self.inbox.queue.take(&mut self.items);
        let lanes = std::mem::take(&mut *lock(&self.inbox.lanes));
        self.links.take_lanes(lanes);
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Transfer { task, link, is_new } => {
                    if is_new || !self.has(task.id, &link) {
                        self.enqueue(task, &link);
                    }
                }
                Item::Closed(id) => self.begin_grace(id),
                Item::Settle(id) => self.transfers.settle(id),
                Item::Look => {}
                #[cfg(test)]
                Item::Panic => panic!("planted"),
            }
        }
        self.drop_lanes();
    }

    /// Returns whether the transfer waits in a queue of this worker. Without this check, a transfer that workers give each other would be
    /// in their queues ever more often.
    fn has(&mut self, id: TransferId, link: &Link) -> bool {
        let work = self.links.of(link);
        work.is_some_and(|work| work.queue.iter().any(|task| task.id == id))
    }

    fn enqueue(&mut self, task: Task, link: &Arc<Link>) {
        if self.links.of(link).is_none() && !link.is_open() {
            // The link has ended, and its lanes are gone.
            return self.transfers.close(task.id, Close::Failed);
        }
        // If the worker has no lane of the link, the next turn hands the transfer on.
        self.links.begin(link).queue.push_back(task);
        if let Some(deadline) = task.deadline {
            (self.alarms).set(deadline, Alarm::Deadline, task.id, &self.transfers);
        }
    }

    fn drop_lanes(&mut self) {
        self.links.drop_lanes(&self.transfers);
    }

    fn begin_grace(&mut self, id: TransferId) {
        self.alarms.begin_grace(self.grace, id, &self.transfers);
    }

    /// Handles all transfers whose alarms are due.
    fn ring_alarms(&mut self) {
        if self.alarms.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some(Due { what, id }) = self.alarms.take_due(now) {
            match what {
                Alarm::Deadline => self.transfers.close(id, Close::TimedOut),
                Alarm::Grace => {
                    if let Some(link) = self.transfers.link_of(id) {
                        self.links.end_lanes_of(id, &link);
                    }
                }
            }
            // The grace begins again as long as a QP may hold slices of the transfer. Slices that were handed out before may only now be
            // posted.
            if self.transfers.link_of(id).is_some() {
                self.begin_grace(id);
            }
        }
    }

    fn sleep(&mut self) {
        let mut most = self.alarms.next_in();
        if self.links.awaits_completions() {
            most = Some(most.map_or(LOOK_AGAIN, |most| most.min(LOOK_AGAIN)));
        }
        let wake = self.inbox.queue.wake();
        wake.begin();
        if !self.inbox.queue.has_items()
            && let Err(error) = self.reaping.sleep(most)
        {
            tracing::error!("a worker cannot sleep: {error}");
        }
        wake.end();
        self.now = Instant::now();
    }
}
