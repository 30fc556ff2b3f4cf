//! A worker: one thread with lanes and the reaper of their completions. It pulls slices for its lanes, posts chains, rings, and
//! finishes what completes, in turns. Without work it spins for a short time, then sleeps.

mod alarms;
mod end;
mod held;
mod pool;
mod post;
mod reap;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use alarms::Alarm;

use crate::engine::ids::TransferId;
use crate::engine::ledger::account::Close;
use crate::engine::lock::lock;
use crate::engine::route::link::Link;
use crate::engine::transfers::Transfers;
use crate::engine::transfers::queue::Item;
use crate::provider::{Cause, Chain, Completion, Lane, Provider, Reaper, Tag};

pub(super) use held::Held;
use pool::Inbox;

pub(super) use pool::Pool;

/// Turns without work before it sleeps.
const SPINS: u32 = 200;

/// Turns between two looks at the clock while the worker has work.
const TURNS: u32 = 32;

/// Longest sleep while the HCA has WQEs of the worker. Drivers lose interrupts: a completion whose event is lost waits so long, and no
/// transfer waits for ever.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How a worker posts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Most WQEs behind one doorbell.
    pub(super) chain: u32,
    /// Most completions of one turn.
    pub(super) reap: usize,
    /// Most local ranges of a WQE.
    pub(super) gather: u32,
    /// How long what was closed may take to end by itself.
    pub(super) grace: Duration,
}

struct Worker<P: Provider> {
    transfers: Arc<Transfers>,
    inbox: Arc<Inbox<P>>,
    reaper: P::Reaper,
    pace: Pace,
    links: Vec<LinkWork<P::Lane>>,
    /// Link and lane of a lane's number.
    places: HashMap<u32, (usize, usize)>,
    /// Link and lane of those whose work this thread does.
    copying: Vec<(usize, usize)>,
    /// Some lane has failed and is not dry: any completion may be its last.
    drains: bool,
    /// Not long ago.
    now: Instant,
    /// The next first. Some are of transfers that are concluded.
    alarms: BinaryHeap<Reverse<(Instant, Alarm, TransferId)>>,
    /// Kept for their memory.
    items: VecDeque<Item>,
    found: Vec<Completion>,
    finished: Vec<(Tag, Option<Cause>)>,
    chain: Chain,
}

/// A link at one worker.
struct LinkWork<L> {
    link: Arc<Link>,
    lanes: Vec<Held<L>>,
    /// Transfers of which slices may be left, in their order.
    queue: VecDeque<(TransferId, Option<Instant>)>,
}

impl<L> LinkWork<L> {
    /// Returns whether this worker has nothing more to do for the link. The link may end at any moment, and only a turn that begins
    /// after that ends the transfers that are in the queue then.
    fn is_over(&self) -> bool {
        !self.link.is_open() && self.lanes.is_empty() && self.queue.is_empty()
    }
}

impl<P: Provider> Worker<P> {
    fn new(
        transfers: &Arc<Transfers>,
        inbox: &Arc<Inbox<P>>,
        reaper: P::Reaper,
        pace: Pace,
    ) -> Self {
        Self {
            transfers: Arc::clone(transfers),
            inbox: Arc::clone(inbox),
            reaper,
            pace,
            links: Vec::new(),
            places: HashMap::new(),
            copying: Vec::new(),
            drains: false,
            now: Instant::now(),
            alarms: BinaryHeap::with_capacity(64),
            items: VecDeque::with_capacity(64),
            found: Vec::with_capacity(pace.reap),
            finished: Vec::with_capacity(1 << 10),
            chain: Chain::default(),
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
            let has_reaped = self.reap();
            let has_posted = self.post();
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
        self.take_lanes();
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Transfer {
                    id,
                    link,
                    deadline,
                    is_new,
                } => {
                    if is_new || !self.has(id, &link) {
                        self.enqueue(id, &link, deadline);
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

    /// Returns whether the transfer waits here for a lane. One that workers give each other would stand in their queues ever more often.
    fn has(&self, id: TransferId, link: &Link) -> bool {
        let mut of_link = self.links.iter().filter(|it| it.link.number == link.number);
        of_link.any(|work| work.queue.iter().any(|(known, _)| *known == id))
    }

    fn enqueue(&mut self, id: TransferId, link: &Arc<Link>, deadline: Option<Instant>) {
        let known = self.place_of(link);
        if known.is_none() && !link.is_open() {
            // It has ended, and its lanes are gone.
            return self.transfers.close(id, Close::Failed);
        }
        // Without a lane so far the next turn hands it on.
        let at = known.unwrap_or_else(|| self.begin_link(link));
        self.links[at].queue.push_back((id, deadline));
        if let Some(deadline) = deadline {
            self.set_alarm(deadline, Alarm::Deadline, id);
        }
    }

    fn place_of(&self, link: &Link) -> Option<usize> {
        let mut links = self.links.iter();
        links.position(|work| work.link.number == link.number)
    }

    fn begin_link(&mut self, link: &Arc<Link>) -> usize {
        self.links.push(LinkWork {
            link: Arc::clone(link),
            lanes: Vec::new(),
            queue: VecDeque::with_capacity(64),
        });
        self.links.len() - 1
    }

    fn take_lanes(&mut self) {
        let lanes = std::mem::take(&mut *lock(&self.inbox.lanes));
        if lanes.is_empty() {
            return;
        }
        for mut lane in lanes {
            lane.lane.open();
            let known = self.place_of(&lane.link);
            let at = known.unwrap_or_else(|| self.begin_link(&lane.link));
            self.links[at].lanes.push(lane);
        }
        self.number_lanes();
    }

    fn number_lanes(&mut self) {
        self.places.clear();
        self.copying.clear();
        for (at, work) in self.links.iter().enumerate() {
            for (nth, lane) in work.lanes.iter().enumerate() {
                self.places.insert(lane.lane.number(), (at, nth));
                if lane.lane.copies() {
                    self.copying.push((at, nth));
                }
            }
        }
    }

    /// Drops lanes that have failed and have nothing under way, and links that have ended and have no lanes.
    fn drop_lanes(&mut self) {
        let mut has_dropped = false;
        self.drains = false;
        for at in 0..self.links.len() {
            let is_open = self.links[at].link.is_open();
            if !is_open {
                self.close_queue(at);
            }
            let LinkWork { link, lanes, .. } = &mut self.links[at];
            for held in &mut *lanes {
                // The other end may have failed, or all of the link.
                held.has_failed |= !is_open || !link.lanes().is_open(held.number);
                if held.has_failed {
                    held.lane.flush(None);
                }
            }
            let is_dry = |held: &mut Held<P::Lane>| held.has_failed && held.is_dry();
            for held in lanes.extract_if(.., is_dry) {
                held.leave();
                has_dropped = true;
            }
            self.drains |= lanes.iter().any(|held| held.has_failed);
        }
        let links = self.links.len();
        self.links.retain(|work| !work.is_over());
        // One that had lost its lanes before moves those after it.
        if has_dropped || self.links.len() != links {
            self.number_lanes();
        }
    }

    /// Returns whether the HCA has WQEs of this worker that are not accounted for, or a failed lane runs dry.
    fn awaits_completions(&self) -> bool {
        let has_some = |held: &Held<P::Lane>| !held.is_dry();
        self.drains
            || self
                .links
                .iter()
                .any(|work| work.lanes.iter().any(has_some))
    }

    fn sleep(&mut self) {
        let mut most = self.next_alarm();
        if self.awaits_completions() {
            most = Some(most.map_or(LOOK_AGAIN, |most| most.min(LOOK_AGAIN)));
        }
        let wake = &self.inbox.queue.wake;
        wake.begin();
        if !self.inbox.queue.has_items()
            && let Err(error) = self.reaper.sleep(wake, most)
        {
            tracing::error!("a worker cannot sleep: {error}");
        }
        wake.end();
        self.now = Instant::now();
    }
}
