//! A worker: one thread with lanes and the reaper of their completions. It pulls slices for its lanes, posts chains, rings, and
//! finishes what completes, in turns. Without work it spins for a short time, then sleeps.

use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::account::Close;
use super::flow::Flow;
use super::host::lock;
use super::link::Link;
use super::queue::{Item, RunQueue};
use super::rails::{Crossing, NO_RAIL};
use super::slots::TransferId;
use super::transfers::{Lost, Pulled, Transfers};
use crate::error::{OwnThread, ThreadPanicked};
use crate::provider::{
    Cause, Chain, Completed, Completion, Lane, Provider, ProviderError, Reaper, Stop, Tag,
};

/// Turns without work before it sleeps.
const SPINS: u32 = 200;

/// Turns between two looks at the clock while the worker has work.
const TURNS: u32 = 32;

/// A worker that waits for a fence does not look more often.
const LEAST_GRACE: Duration = Duration::from_millis(1);

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

/// What others give a worker.
struct Inbox<P: Provider> {
    /// The worker's.
    number: u32,
    queue: Arc<RunQueue>,
    lanes: Mutex<Vec<Held<P::Lane>>>,
    stops: AtomicBool,
}

/// The workers of all NICs.
pub(super) struct Pool<P: Provider> {
    inboxes: Vec<Arc<Inbox<P>>>,
    /// The first that has panicked.
    panicked: Arc<OnceLock<ThreadPanicked>>,
    threads: Mutex<Vec<OwnThread>>,
}

impl<P: Provider> Pool<P> {
    /// Starts a worker for each reaper.
    pub(super) fn start(
        transfers: &Arc<Transfers>,
        reapers: Vec<P::Reaper>,
        pace: Pace,
    ) -> Result<Self, ProviderError> {
        let (mut inboxes, mut threads) = (Vec::new(), Vec::new());
        let panicked = Arc::new(OnceLock::new());
        for (number, reaper) in (0..).zip(reapers) {
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
    pub(super) fn wakes(&self) -> u64 {
        let wakes = self.inboxes.iter().map(|inbox| inbox.queue.wake.wakes());
        wakes.sum()
    }

    /// Whether no worker has panicked.
    pub(super) fn check(&self) -> Result<(), ThreadPanicked> {
        self.panicked.get().map_or(Ok(()), |it| Err(it.clone()))
    }

    /// Gives a lane of a link to a worker.
    pub(super) fn add(&self, worker: u32, lane: Held<P::Lane>) {
        let inbox = &self.inboxes[worker as usize];
        lock(&inbox.lanes).push(lane);
        inbox.queue.push(Item::Look);
    }

    /// Ends the threads. Their links have broken before, or have no HCA.
    pub(super) fn stop(&self) {
        for inbox in &self.inboxes {
            inbox.stops.store(true, Ordering::SeqCst);
            inbox.queue.push(Item::Look);
        }
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            thread.join();
        }
    }
}

/// One life of a lane.
#[derive(Debug)]
pub(super) struct Held<L> {
    link: Arc<Link>,
    /// Which lane of its link it is.
    number: usize,
    crossing: Crossing,
    life: u32,
    lane: L,
    /// It takes nothing more.
    has_failed: bool,
    /// It has failed by a WQE that was wrong itself.
    is_refused: bool,
}

impl<L: Lane> Held<L> {
    /// A receive WQE is accounted for.
    ///
    /// A flushed receive WQE says that the QP is in error, but not why. This end learns the cause from its sends, or from the
    /// other end, whose request was refused and which must hear of that first.
    fn receive(&mut self, completion: &Completion, immediate: Option<u32>) {
        self.lane.receive(completion);
        if let (None, Some(immediate)) = (completion.cause, immediate) {
            self.link.count(immediate);
        }
    }

    /// Says what is in flight.
    fn flow(&self, say: impl FnOnce(&Flow, u32)) {
        if let Some(flow) = self.link.flow(self.number) {
            say(flow, self.lane.in_flight());
        }
    }

    /// Whether the HCA has nothing of it, and all that has come from the peer is counted.
    fn is_dry(&self) -> bool {
        self.lane.in_flight() == 0 && self.lane.receives() == 0
    }
}

impl<L> Held<L> {
    pub(super) fn new(link: &Arc<Link>, number: usize, life: u32, lane: L) -> Self {
        Self {
            link: Arc::clone(link),
            number,
            crossing: link.crossing(number),
            life,
            lane,
            has_failed: false,
            is_refused: false,
        }
    }

    fn fail(&mut self) {
        if !self.has_failed {
            self.has_failed = true;
            self.link.fail_lane(self.number);
        }
    }

    fn end(&mut self) {
        if !self.has_failed {
            self.has_failed = true;
            self.link.end_lane(self.number);
        }
    }

    /// Drops it as it is.
    fn leave(self) {
        if let Some(flow) = self.link.flow(self.number) {
            flow.end();
        }
        drop(self.lane);
        self.link.lane_is_gone(self.number);
    }
}

/// A link at one worker.
struct LinkWork<L> {
    link: Arc<Link>,
    lanes: Vec<Held<L>>,
    /// Transfers of which slices may be left, in their order.
    queue: VecDeque<(TransferId, Option<Instant>)>,
}

impl<L> LinkWork<L> {
    /// Whether this worker has nothing more to do for the link. The link may end at any moment: transfers that are in the queue then
    /// are closed by the next turn.
    fn is_over(&self) -> bool {
        !self.link.is_open() && self.lanes.is_empty() && self.queue.is_empty()
    }
}

/// What a worker does with a transfer at a moment, unless it is concluded by then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Its deadline closes it.
    Deadline,
    /// QPs that still hold slices of it go to the error state.
    Grace,
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

    /// Whether it waits here for a lane. One that workers give each other would stand in their queues ever more often.
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

    /// Takes completions, and finishes the slices that they account for. Returns whether any came.
    fn reap(&mut self) -> bool {
        let mut found = std::mem::take(&mut self.found);
        self.reaper.reap(&mut found, self.pace.reap);
        let has_copied = self.copy(&mut found);
        let mut has_failed = false;
        let is_flushed = self.flush_counted(&found);
        for completion in &found {
            // What completes of a lane that is gone is of no one.
            let Some((at, nth)) = self.places.get(&completion.lane).copied() else {
                continue;
            };
            let work = &mut self.links[at];
            let (held, finished) = (&mut work.lanes[nth], &mut self.finished);
            if let Completed::Receive(immediate) = completion.what {
                held.receive(completion, immediate.filter(|_| is_flushed));
                if immediate.is_some() && !is_flushed {
                    held.link.break_off();
                }
                continue;
            }
            held.lane
                .retire(completion, |tag, cause| finished.push((tag, cause)));
            held.flow(|flow, in_flight| flow.complete(in_flight, self.now));
            if let Some(cause) = completion.cause {
                has_failed = true;
                held.is_refused |= !held.has_failed && cause.is_of_the_request();
                match cause.is_of_the_request() || cause.is_flush() {
                    // The peer has answered, or this QP was put into error: the pair is good for more.
                    true => held.end(),
                    false => held.fail(),
                }
                if cause.errno() == Some(libc::ESRCH) {
                    held.link.break_off();
                }
            }
            let sends = !held.lane.copies();
            let lost = Lost {
                lane: sends.then_some(held.number),
                life: held.life,
                qp: sends.then_some(completion.lane),
                is_refused: held.is_refused,
            };
            self.finish(lost);
        }
        let has_found = has_copied || !found.is_empty();
        found.clear();
        self.found = found;
        if has_failed || has_found && self.drains {
            self.drop_lanes();
        }
        has_found
    }

    /// The bytes of what is about to be counted have come to the GPUs that are to be flushed for that. `false`: not for sure.
    fn flush_counted(&self, found: &[Completion]) -> bool {
        let counts = |it: &Completion| matches!(it.what, Completed::Receive(Some(_)));
        let flushes = self.transfers.flushes();
        if !flushes.is_needed() || !found.iter().any(counts) {
            return true;
        }
        let flushed = flushes.flush();
        flushed
            .inspect_err(|error| tracing::error!("WRITEs of peers are not counted: {error}"))
            .is_ok()
    }

    /// Does a part of the work of each lane that copies. Returns whether any had work.
    fn copy(&mut self, found: &mut Vec<Completion>) -> bool {
        let mut has_copied = false;
        for (at, nth) in &self.copying {
            let lane = &mut self.links[*at].lanes[*nth].lane;
            if lane.in_flight() > 0 {
                has_copied = true;
                found.extend(lane.advance());
            }
        }
        has_copied
    }

    /// Finishes slices, those of one transfer that follow each other by one step.
    fn finish(&mut self, lost: Lost) {
        let failed = self.finished.iter().filter(|(_, cause)| cause.is_some());
        let failed = failed.count();
        let completed = self.finished.len() - failed;
        let tally = self.inbox.queue.tally(lost.lane.is_none());
        tally.finish(completed as u64, failed as u64);
        let (mut slot, mut count) = (0, 0);
        for (tag, cause) in self.finished.drain(..) {
            if count > 0 && (tag.slot != slot || cause.is_some()) {
                self.transfers.done(slot, count);
                count = 0;
            }
            match cause {
                None => (slot, count) = (tag.slot, count + 1),
                Some(cause) => self.transfers.flushed(tag, lost, cause),
            }
        }
        if count > 0 {
            self.transfers.done(slot, count);
        }
    }

    /// Posts for each link what its lanes have room for. Whether anything was posted.
    fn post(&mut self) -> bool {
        let (mut has_posted, mut stalls) = (false, false);
        for at in 0..self.links.len() {
            if self.links[at].queue.is_empty() {
                continue;
            }
            if !self.links[at].link.is_open() {
                self.close_queue(at);
                continue;
            }
            let is_usable = |held: &&Held<P::Lane>| !held.has_failed;
            let lanes = self.links[at].lanes.iter().filter(is_usable);
            let copies = lanes.clone().any(|held| held.lane.copies());
            if lanes.count() == 0 {
                has_posted |= self.hand_on(at);
                continue;
            }
            let mut has_begun = self.post_by(at, copies, false);
            // While one copies, the QPs beside it have only what it leaves: what is for the NIC alone, and slices whose copies have
            // failed.
            if copies && !has_begun && !self.is_copying(at) {
                has_begun = self.post_by(at, false, false);
            } else if copies && self.links[at].link.has_transfers_for_nic() {
                has_begun |= self.post_by(at, false, true);
            }
            has_posted |= has_begun;
            stalls |= !copies && self.is_full(at);
        }
        self.inbox.queue.nic.set_stalled(stalls);
        has_posted
    }

    /// Posts by the lanes of a link that copy, or by its QPs: all, or what is for the NIC alone. Whether anything was posted.
    fn post_by(&mut self, at: usize, copies: bool, for_nic: bool) -> bool {
        let mut has_posted = false;
        for nth in 0..self.links[at].lanes.len() {
            if self.links[at].lanes[nth].lane.copies() == copies {
                has_posted |= self.post_on(at, nth, for_nic);
            }
        }
        has_posted
    }

    /// Whether a copy for this link is under way.
    fn is_copying(&self, at: usize) -> bool {
        let mut lanes = self.links[at].lanes.iter();
        lanes.any(|held| held.lane.copies() && held.lane.in_flight() > 0)
    }

    /// Whether slices of a link are left, and none of its QPs here has room.
    fn is_full(&self, at: usize) -> bool {
        let LinkWork { lanes, queue, .. } = &self.links[at];
        let has_room =
            |held: &Held<P::Lane>| !held.has_failed && held.lane.room(self.pace.gather) > 0;
        !queue.is_empty() && !lanes.iter().any(has_room)
    }

    fn post_on(&mut self, at: usize, nth: usize, for_nic: bool) -> bool {
        let work = &mut self.links[at];
        let held = &mut work.lanes[nth];
        if held.has_failed {
            return false;
        }
        let lane = &mut held.lane;
        let most = self.pace.chain.min(lane.room(self.pace.gather));
        self.chain.clear();
        let mut next = 0;
        while let Some((id, _)) = work.queue.get(next).copied() {
            let left = most - u32::try_from(self.chain.len()).unwrap_or(most).min(most);
            if left == 0 {
                break;
            }
            if for_nic && !self.transfers.is_for_nic(id) {
                next += 1;
                continue;
            }
            let how = (left, held.crossing);
            match self.transfers.pull(id, how, &mut self.chain) {
                Pulled::Some => {}
                Pulled::Nothing => {
                    work.queue.remove(next);
                }
                Pulled::Elsewhere(lanes) => {
                    let others = work.link.workers_of(lanes);
                    // Of this worker another lane takes it, or one that is about to come.
                    if others.is_empty() || others.contains(&self.inbox.number) {
                        next += 1;
                    } else if let Some((id, deadline)) = work.queue.remove(next) {
                        self.transfers.give(id, (&work.link, deadline), &others);
                    }
                }
            }
        }
        if self.chain.is_empty() {
            return false;
        }
        let posted = lane.post(&self.chain, 0);
        lane.ring();
        held.flow(|flow, in_flight| flow.post(in_flight, self.now));
        let lane = &held.lane;
        let qp = lane.number();
        let rail = held.crossing.own;
        let taken = self.chain.from(0).take(posted.count);
        let ranges = taken.flat_map(|(_, ranges)| ranges);
        let bytes = ranges.map(|it| u64::from(it.bytes)).sum();
        let tally = self.inbox.queue.tally(rail == NO_RAIL);
        tally.post(self.chain.len() as u64, bytes);
        if posted.stop == Some(Stop::Failed) {
            held.fail();
        }
        // Room was asked for before, so what is left was refused for good.
        if posted.count < self.chain.len() {
            tally.finish(0, (self.chain.len() - posted.count) as u64);
        }
        for (refused, _) in self.chain.from(posted.count) {
            self.transfers.refused(refused.tag, (qp, rail));
        }
        true
    }

    /// This worker has no QP for them just now: others get them. Without such, or if one is about to come, they wait for the next
    /// lane. Whether they went.
    fn hand_on(&mut self, at: usize) -> bool {
        let LinkWork { link, queue, .. } = &mut self.links[at];
        let workers = link.open_workers();
        if workers.is_empty() || workers.contains(&self.inbox.number) {
            return false;
        }
        for (id, deadline) in queue.drain(..) {
            self.transfers.give(id, (link, deadline), &workers);
        }
        true
    }

    /// No QP is left for them: nothing more is handed out.
    fn close_queue(&mut self, at: usize) {
        while let Some((id, _)) = self.links[at].queue.pop_front() {
            self.transfers.close(id, Close::Failed);
        }
    }

    fn set_alarm(&mut self, when: Instant, what: Alarm, id: TransferId) {
        if self.alarms.len() > 4 * self.transfers.slots() {
            let transfers = &self.transfers;
            self.alarms
                .retain(|Reverse((_, _, id))| transfers.link_of(*id).is_some());
        }
        self.alarms.push(Reverse((when, what, id)));
    }

    fn begin_grace(&mut self, id: TransferId) {
        let grace = self.pace.grace.max(LEAST_GRACE);
        if let Some(end) = Instant::now().checked_add(grace) {
            self.set_alarm(end, Alarm::Grace, id);
        }
    }

    /// Sees to all transfers whose moment has come.
    fn ring_alarms(&mut self) {
        if self.alarms.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((what, id)) = self.next_due(now) {
            match what {
                Alarm::Deadline => self.transfers.close(id, Close::TimedOut),
                Alarm::Grace => self.end_lanes_of(id),
            }
            // As long as a QP may hold slices of it: some may be posted that were handed out before.
            if self.transfers.link_of(id).is_some() {
                self.begin_grace(id);
            }
        }
    }

    fn next_due(&mut self, now: Instant) -> Option<(Alarm, TransferId)> {
        let next = self.alarms.peek_mut()?;
        let Reverse((when, what, id)) = *next;
        (when <= now).then(|| {
            PeekMut::pop(next);
            (what, id)
        })
    }

    /// QPs that hold slices of the transfer go to the error state, if it is not concluded.
    fn end_lanes_of(&mut self, id: TransferId) {
        let Some(link) = self.transfers.link_of(id) else {
            return;
        };
        for work in &mut self.links {
            if work.link.number != link {
                continue;
            }
            for held in &mut work.lanes {
                let slot = id.slot();
                if held.lane.holds(slot) && !held.lane.flush(Some(slot)) {
                    held.end();
                }
            }
        }
    }

    fn next_alarm(&self) -> Option<Duration> {
        let Reverse((next, ..)) = self.alarms.peek()?;
        Some(next.saturating_duration_since(Instant::now()))
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
                held.has_failed |= !is_open || !link.is_lane_open(held.number);
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
        // One that had lost its lanes before moves those behind it.
        if has_dropped || self.links.len() != links {
            self.number_lanes();
        }
    }

    /// Whether the HCA has WQEs of this worker that are not accounted for, or a failed lane runs dry.
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

    /// Behind a panic: its connections end, and what it has for others goes back to them, until the engine ends. The control thread of
    /// each connection finishes what this worker held, once the QPs are reset.
    fn end_of_panic(&mut self, own: u32, panic: &ThreadPanicked) {
        self.inbox.queue.nic.set_stalled(false);
        for work in std::mem::take(&mut self.links) {
            work.link.lose_worker(panic);
            work.lanes.into_iter().for_each(Held::leave);
        }
        for link in self.transfers.links_of(own) {
            if let Some(fence) = link.lose_worker(panic) {
                self.transfers.write_off(&link, panic, fence);
            }
        }
        // The other workers drop their lanes of these.
        self.transfers.look();
        while !self.inbox.stops.load(Ordering::SeqCst) {
            self.give_back(panic);
            let wake = &self.inbox.queue.wake;
            wake.begin();
            if !self.inbox.queue.has_items()
                && let Err(error) = wake.sleep(None, None)
            {
                tracing::error!("a worker that has panicked cannot sleep: {error}");
            }
            wake.end();
        }
    }

    /// Takes no lane and no transfer any more.
    fn give_back(&mut self, panic: &ThreadPanicked) {
        self.inbox.queue.take(&mut self.items);
        for held in std::mem::take(&mut *lock(&self.inbox.lanes)) {
            held.link.lose_worker(panic);
            held.leave();
        }
        while let Some(item) = self.items.pop_front() {
            match item {
                Item::Transfer { id, .. } => self.transfers.close(id, Close::Failed),
                Item::Settle(id) => self.transfers.settle(id),
                Item::Closed(_) | Item::Look => {}
                #[cfg(test)]
                Item::Panic => {}
            }
        }
    }

    /// The engine ends: fails all that is left, so that no thread waits for it.
    fn give_up(&mut self) {
        self.inbox.queue.nic.set_stalled(false);
        for at in 0..self.links.len() {
            self.links[at].link.break_off();
        }
        self.drop_lanes();
        let links = std::mem::take(&mut self.links);
        let lanes = links.into_iter().flat_map(|work| work.lanes);
        lanes.for_each(Held::leave);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::super::account::Outcome;
    use super::super::config::{check, pace};
    use super::super::plan::{Kind, Operation};
    use super::super::rails::RailKeys;
    use super::super::slots::{Slots, Status};
    use super::super::table::one_region_each;
    use super::super::transfers::Options;
    use super::*;
    use crate::config::EngineConfig;
    use crate::provider::sink::SinkLane;
    use crate::provider::{ProviderError, Verb, Wake};

    /// Says how long it may sleep.
    struct Deaf(Sender<Option<Duration>>);

    enum Fake {}

    impl Provider for Fake {
        type Lane = SinkLane;
        type Reaper = Deaf;
    }

    impl Reaper for Deaf {
        fn reap(&mut self, _: &mut Vec<Completion>, _: usize) {}

        fn sleep(&mut self, _: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
            self.0.send(most).unwrap();
            Ok(())
        }
    }

    /// Worker 0 of two, and where it says how long it may sleep.
    fn worker() -> (Worker<Fake>, Receiver<Option<Duration>>) {
        let config = EngineConfig::new("a");
        let how = (check(&config).unwrap(), config.gather);
        let transfers = Arc::new(Transfers::new(0, 4, how, 2, config.retry).unwrap());
        let inbox = Arc::new(Inbox {
            number: 0,
            queue: Arc::clone(transfers.queue(0)),
            lanes: Mutex::default(),
            stops: AtomicBool::new(false),
        });
        let (tell, told) = channel();
        let worker = Worker::<Fake>::new(&transfers, &inbox, Deaf(tell), pace(&config));
        (worker, told)
    }

    /// Gives a lane of the link to the worker.
    fn add(worker: &mut Worker<Fake>, link: &Arc<Link>, lane: usize) {
        let number = u32::try_from(lane).unwrap();
        let held = Held::new(link, lane, 1, SinkLane::new(number, 8));
        lock(&worker.inbox.lanes).push(held);
        worker.take_items();
    }

    /// A transfer of one slice to memory near these rails of the peer, which no worker has yet.
    fn submit(worker: &Worker<Fake>, link: &Arc<Link>, near: u8) -> TransferId {
        let tables = one_region_each(RailKeys::from_iter([1, 2]).with_near(near));
        let one = Operation {
            kind: Kind::Write,
            local: 0,
            remote: 0,
            bytes: 8,
        };
        let how = (&Options::default(), None);
        let id = worker
            .transfers
            .submit(link, tables, (&[one], false), how)
            .unwrap();
        taken(worker, 0);
        taken(worker, 1);
        id
    }

    /// Which transfers a run queue has, which it has no more.
    fn taken(worker: &Worker<Fake>, queue: u32) -> Vec<TransferId> {
        let mut items = VecDeque::new();
        worker.transfers.queue(queue).take(&mut items);
        let ids = items.into_iter().filter_map(|item| match item {
            Item::Transfer { id, .. } => Some(id),
            _ => None,
        });
        ids.collect()
    }

    /// A link whose lanes belong to these workers. All leave by one rail, and each enters by one of its own.
    fn entering_apart(lanes: &[u32]) -> Arc<Link> {
        let crossings: Vec<Crossing> = (0..lanes.len())
            .map(|theirs| Crossing { own: 0, theirs })
            .collect();
        let link = Link::new((1, 1), lanes, None);
        let turns = lanes.to_vec();
        Arc::new(link.with_crossings(&crossings, turns).with_near(true))
    }

    #[test]
    fn what_is_for_a_lane_of_another_worker_is_given_to_that_worker() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 1]);
        add(&mut worker, &link, 0);
        // The near lane is worker 1's. It was away when this worker got the transfer, and has come back.
        let id = submit(&worker, &link, 0b10);
        worker.enqueue(id, &link, None);
        worker.post();
        assert_eq!(taken(&worker, 1), [id], "worker 1 has the near lane");
        assert!(worker.links[0].queue.is_empty());
        assert_eq!(worker.transfers.poll(id), Ok(Status::Pending));
    }

    #[test]
    fn what_is_for_another_lane_of_the_same_worker_stays_there() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 0]);
        add(&mut worker, &link, 0);
        let id = submit(&worker, &link, 0b10);
        worker.enqueue(id, &link, None);
        // The near lane is open, and about to come: nothing goes round meanwhile.
        worker.post();
        assert!(taken(&worker, 0).is_empty());
        assert_eq!(worker.links[0].queue.len(), 1);
        add(&mut worker, &link, 1);
        worker.post();
        let in_flight: Vec<u32> = (worker.links[0].lanes.iter())
            .map(|held| held.lane.in_flight())
            .collect();
        assert_eq!(in_flight, [0, 1]);
    }

    #[test]
    fn a_worker_whose_only_lane_is_about_to_come_keeps_its_transfers() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 1]);
        add(&mut worker, &link, 0);
        worker.links[0].lanes.clear();
        let id = submit(&worker, &link, 0);
        worker.enqueue(id, &link, None);
        worker.post();
        let given = taken(&worker, 0);
        assert!(given.is_empty(), "it would give itself the same again");
        assert_eq!(worker.links[0].queue.len(), 1);
    }

    #[test]
    fn a_worker_that_has_had_no_lane_of_an_open_link_closes_nothing() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 1]);
        // As where the QP of its lane has failed before it could send.
        link.end_lane(0);
        let id = submit(&worker, &link, 0);
        worker.enqueue(id, &link, None);
        assert_eq!(worker.transfers.poll(id), Ok(Status::Pending));
        worker.post();
        assert_eq!(taken(&worker, 1), [id], "worker 1 has a lane");
        link.break_off();
        let id = submit(&worker, &link, 0);
        worker.enqueue(id, &link, None);
        worker.drop_lanes();
        let failed = Status::Concluded(Outcome::Failed);
        assert_eq!(worker.transfers.poll(id), Ok(failed));
        assert!(worker.links.is_empty());
    }

    #[test]
    fn a_transfer_that_is_just_being_closed_holds_up_none_behind_it() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0]);
        add(&mut worker, &link, 0);
        let closed = submit(&worker, &link, 0);
        worker.enqueue(closed, &link, None);
        worker.post();
        let lost = Lost {
            lane: Some(0),
            life: 1,
            qp: None,
            is_refused: false,
        };
        let tag = Tag { slot: 0, slice: 0 };
        worker.transfers.flushed(tag, lost, Cause::FLUSHED);
        worker.take_items();
        // The other thread has not come to the slices that wait to be posted again. When it has, no event is left for this worker.
        worker.transfers.begin_cancel(closed);
        let behind = submit(&worker, &link, 0);
        worker.enqueue(behind, &link, None);
        worker.post();
        assert_eq!(worker.links[0].lanes[0].lane.in_flight(), 2);
    }

    #[test]
    fn a_transfer_that_comes_back_to_a_worker_stands_in_its_queue_once() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 1]);
        add(&mut worker, &link, 0);
        let id = submit(&worker, &link, 0);
        let queue = Arc::clone(worker.transfers.queue(0));
        for _ in 0..3 {
            worker.transfers.give(id, (&link, None), &[0]);
        }
        assert!(queue.has_items());
        worker.take_items();
        assert_eq!(worker.links[0].queue.len(), 1);
    }

    #[test]
    fn a_worker_looks_again_in_time_while_something_is_in_flight() {
        let (mut worker, told) = worker();
        let link = Arc::new(Link::new((1, 1), &[0], None));
        let mut lane = SinkLane::new(1, 8);
        let mut chain = Chain::default();
        chain.push((Verb::Write, Tag::default()), (0, 0), []);
        assert_eq!(lane.post(&chain, 0).count, 1);
        worker.links.push(LinkWork {
            link: Arc::clone(&link),
            lanes: vec![Held::new(&link, 0, 1, lane)],
            queue: VecDeque::new(),
        });
        worker.sleep();
        assert_eq!(told.recv().unwrap(), Some(LOOK_AGAIN));
        let done = Completion {
            lane: 1,
            what: Completed::Sends,
            index: 0,
            cause: None,
        };
        worker.links[0].lanes[0].lane.retire(&done, |_, _| {});
        worker.sleep();
        assert_eq!(told.recv().unwrap(), None);
        // A WRITE of the peer may be counted.
        worker.links[0].lanes[0].lane = SinkLane::new(1, 8).with_receives(1);
        worker.sleep();
        assert_eq!(told.recv().unwrap(), Some(LOOK_AGAIN));
        worker.links[0].lanes[0].lane = SinkLane::new(1, 8);
        // A failed lane runs dry.
        worker.drains = true;
        worker.sleep();
        assert_eq!(told.recv().unwrap(), Some(LOOK_AGAIN));
    }

    #[test]
    fn a_link_that_ends_is_kept_until_its_queue_is_closed() {
        let link = Arc::new(Link::new((1, 1), &[0], None));
        let id = Slots::new(1, 1).unwrap().take().unwrap();
        let mut work = LinkWork::<()> {
            link: Arc::clone(&link),
            lanes: Vec::new(),
            queue: VecDeque::from([(id, None)]),
        };
        assert!(!work.is_over(), "it is open");
        link.break_off();
        assert!(!work.is_over(), "a transfer waits to be closed");
        work.queue.clear();
        assert!(work.is_over());
    }
}
