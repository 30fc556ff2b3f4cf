//! A worker: one thread with lanes and the reaper of their completions. In turns it pulls slices for its lanes, posts chains, rings
//! doorbells, and finishes slices that complete. Without work it spins for a short time, then sleeps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::alarms::{Alarm, Alarms, Due};
use super::end::Ending;
use super::inbox::{Inbox, Pace};
use super::links::Links;
use super::post::Poster;
use super::reap::Reaping;
use crate::engine::ids::TransferId;
use crate::engine::ledger::account::Close;
use crate::engine::route::link::Link;
use crate::engine::transfers::Transfers;
use crate::engine::transfers::queue::{Item, Task};
use crate::error::ThreadPanicked;
use crate::provider::Provider;

/// The number of turns without work before the worker sleeps.
const SPINS: u32 = 200;

/// The number of turns between two looks at the clock while the worker has work.
const TURNS: u32 = 32;

/// Longest sleep while the HCA has WQEs of the worker. Drivers lose interrupts. With this bound a completion whose event is lost is found
/// after that time, and no transfer waits for ever.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// A worker, which its thread runs.
pub(super) struct Worker<P: Provider> {
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
    pub(super) fn new(
        transfers: &Arc<Transfers>,
        inbox: &Arc<Inbox<P>>,
        reaper: P::Reaper,
        pace: Pace,
    ) -> Self {
        let queue = inbox.queue();
        Self {
            transfers: Arc::clone(transfers),
            inbox: Arc::clone(inbox),
            links: Links::new(),
            poster: Poster::new(transfers, queue, inbox.number(), pace),
            reaping: Reaping::new(transfers, queue, reaper, pace.reap),
            alarms: Alarms::new(),
            grace: pace.grace,
            now: Instant::now(),
            items: VecDeque::with_capacity(64),
        }
    }

    /// Takes turns until the engine ends.
    pub(super) fn run(&mut self) {
        let (mut idle, mut turns) = (0, 0u32);
        loop {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(TURNS) {
                self.now = Instant::now();
                self.ring_alarms();
            }
            if self.inbox.queue().has_items() {
                self.take_items();
                if self.inbox.stops() {
                    self.ending().give_up();
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

    /// Ends the connections of the worker, which has panicked. Returns when the engine ends.
    pub(super) fn end_of_panic(&mut self, panic: &ThreadPanicked) {
        self.ending().after_panic(panic);
    }

    fn ending(&mut self) -> Ending<'_, P> {
        Ending::new(
            &self.transfers,
            &self.inbox,
            &mut self.links,
            &mut self.items,
        )
    }

    fn take_items(&mut self) {
        self.inbox.queue().take(&mut self.items);
        self.links.take_lanes(self.inbox.take_lanes());
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
        let slept = self.inbox.sleep_if_empty(|| self.reaping.sleep(most));
        if let Err(error) = slept {
            tracing::error!("a worker cannot sleep: {error}");
        }
        self.now = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    //! Tests of a worker without an HCA: which transfers it keeps, gives away and closes, and how long it sleeps.

    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;
    use crate::config::EngineConfig;
    use crate::engine::config::{pace, sizes};
    use crate::engine::kind::Kind;
    use crate::engine::ledger::account::Outcome;
    use crate::engine::ledger::plan::Operation;
    use crate::engine::ledger::slots::{Slots, Status};
    use crate::engine::memory::table::one_region_each;
    use crate::engine::route::crossing::Crossing;
    use crate::engine::route::rails::RailKeys;
    use crate::engine::transfers::{How, Lost, Moves, Sizes};
    use crate::engine::worker::held::Held;
    use crate::engine::worker::links::LinkWork;
    use crate::provider::sink::SinkLane;
    use crate::provider::{
        Cause, Chain, Completed, Completion, Lane, ProviderError, Reaper, Tag, Verb, Wake,
    };

    /// A reaper that reports how long it may sleep.
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

    /// Returns worker 0 of two, and the channel on which it reports how long it may sleep.
    fn worker() -> (Worker<Fake>, Receiver<Option<Duration>>) {
        let config = EngineConfig::new("a");
        let sizes = Sizes {
            slots: 4,
            workers: 2,
            ..sizes(&config).unwrap()
        };
        let transfers = Arc::new(Transfers::new(0, &sizes).unwrap());
        let inbox = Arc::new(Inbox::new(0, transfers.queues().of(0)));
        let (tell, told) = channel();
        let worker = Worker::<Fake>::new(&transfers, &inbox, Deaf(tell), pace(&config));
        (worker, told)
    }

    /// Gives a lane of the link to the worker.
    fn add(worker: &mut Worker<Fake>, link: &Arc<Link>, lane: usize) {
        let number = u32::try_from(lane).unwrap();
        let held = Held::new(link, lane, 1, SinkLane::new(number, 8));
        worker.inbox.give(held);
        worker.take_items();
    }

    /// Submits a transfer of one slice to memory near these rails of the peer. No worker has the transfer yet.
    fn submit(worker: &Worker<Fake>, link: &Arc<Link>, near: u8) -> TransferId {
        let tables = one_region_each(RailKeys::from_iter([1, 2]).with_near(near));
        let one = Operation {
            kind: Kind::Write,
            local: 0,
            remote: 0,
            bytes: 8,
        };
        let moves = Moves {
            operations: &[one],
            overlaps: false,
        };
        let begun = worker.transfers.submit(link, tables, moves, How::default());
        let id = begun.unwrap();
        taken(worker, 0);
        taken(worker, 1);
        id
    }

    fn task(id: TransferId) -> Task {
        Task { id, deadline: None }
    }

    fn post(worker: &mut Worker<Fake>) {
        worker.poster.post(&mut worker.links, worker.now);
    }

    /// Takes all items of a run queue, and returns the transfers among them.
    fn taken(worker: &Worker<Fake>, queue: u32) -> Vec<TransferId> {
        let mut items = VecDeque::new();
        worker.transfers.queues().of(queue).take(&mut items);
        let ids = items.into_iter().filter_map(|item| match item {
            Item::Transfer { task, .. } => Some(task.id),
            _ => None,
        });
        ids.collect()
    }

    /// Returns a link whose lanes belong to these workers. All lanes leave by one rail, and each enters by a rail of its own.
    fn entering_apart(lanes: &[u32]) -> Arc<Link> {
        let crossings: Vec<Crossing> = (0..lanes.len())
            .map(|theirs| Crossing { own: 0, theirs })
            .collect();
        let link = Link::new(1, 1, lanes, None);
        let turns = lanes.to_vec();
        Arc::new(link.with_crossings(&crossings, turns).with_near(true))
    }

    #[test]
    fn what_is_for_a_lane_of_another_worker_is_given_to_that_worker() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 1]);
        add(&mut worker, &link, 0);
        // The near lane is worker 1's. The lane was away when this worker got the transfer, and has come back.
        let id = submit(&worker, &link, 0b10);
        worker.enqueue(task(id), &link);
        post(&mut worker);
        assert_eq!(taken(&worker, 1), [id], "worker 1 has the near lane");
        assert!(worker.links.all()[0].queue.is_empty());
        assert_eq!(worker.transfers.poll(id), Ok(Status::Pending));
    }

    #[test]
    fn what_is_for_another_lane_of_the_same_worker_stays_there() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 0]);
        add(&mut worker, &link, 0);
        let id = submit(&worker, &link, 0b10);
        worker.enqueue(task(id), &link);
        // The near lane is open, and about to come: no transfer goes round between workers meanwhile.
        post(&mut worker);
        assert!(taken(&worker, 0).is_empty());
        assert_eq!(worker.links.all()[0].queue.len(), 1);
        add(&mut worker, &link, 1);
        post(&mut worker);
        let in_flight: Vec<u32> = (worker.links.all()[0].lanes.iter())
            .map(|held| held.lane().in_flight())
            .collect();
        assert_eq!(in_flight, [0, 1]);
    }

    #[test]
    fn a_worker_whose_only_lane_is_about_to_come_keeps_its_transfers() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 1]);
        add(&mut worker, &link, 0);
        worker.links.all_mut()[0].lanes.clear();
        let id = submit(&worker, &link, 0);
        worker.enqueue(task(id), &link);
        post(&mut worker);
        let given = taken(&worker, 0);
        assert!(given.is_empty(), "it would give itself the same again");
        assert_eq!(worker.links.all()[0].queue.len(), 1);
    }

    #[test]
    fn a_worker_that_has_had_no_lane_of_an_open_link_closes_nothing() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 1]);
        // The QP of worker 0's lane may have failed before it could send.
        link.end_lane(0);
        let id = submit(&worker, &link, 0);
        worker.enqueue(task(id), &link);
        assert_eq!(worker.transfers.poll(id), Ok(Status::Pending));
        post(&mut worker);
        assert_eq!(taken(&worker, 1), [id], "worker 1 has a lane");
        link.break_off();
        let id = submit(&worker, &link, 0);
        worker.enqueue(task(id), &link);
        worker.drop_lanes();
        let failed = Status::Concluded(Outcome::Failed);
        assert_eq!(worker.transfers.poll(id), Ok(failed));
        assert!(worker.links.all().is_empty());
    }

    #[test]
    fn a_transfer_that_is_just_being_closed_holds_up_none_behind_it() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0]);
        add(&mut worker, &link, 0);
        let closed = submit(&worker, &link, 0);
        worker.enqueue(task(closed), &link);
        post(&mut worker);
        let lost = Lost {
            lane: Some(0),
            life: 1,
            qp: None,
            is_refused: false,
        };
        let tag = Tag { slot: 0, slice: 0 };
        worker.transfers.flushed(tag, lost, Cause::FLUSHED);
        worker.take_items();
        // The canceller has not yet given up the slices that wait to be posted again. Once it has, no event comes to this worker.
        worker.transfers.begin_cancel(closed);
        let after = submit(&worker, &link, 0);
        worker.enqueue(task(after), &link);
        post(&mut worker);
        assert_eq!(worker.links.all()[0].lanes[0].lane().in_flight(), 2);
    }

    #[test]
    fn a_transfer_that_comes_back_to_a_worker_stands_in_its_queue_once() {
        let (mut worker, _told) = worker();
        let link = entering_apart(&[0, 1]);
        add(&mut worker, &link, 0);
        let id = submit(&worker, &link, 0);
        let queue = Arc::clone(worker.transfers.queues().of(0));
        for _ in 0..3 {
            worker.transfers.queues().give(task(id), &link, &[0]);
        }
        assert!(queue.has_items());
        worker.take_items();
        assert_eq!(worker.links.all()[0].queue.len(), 1);
    }

    #[test]
    fn a_worker_looks_again_in_time_while_something_is_in_flight() {
        let (mut worker, told) = worker();
        let link = Arc::new(Link::new(1, 1, &[0], None));
        let mut lane = SinkLane::new(1, 8);
        let mut chain = Chain::default();
        chain.push(Verb::Write, Tag::default(), 0, 0, []);
        assert_eq!(lane.post(&chain, 0..1).count, 1);
        let held = Held::new(&link, 0, 1, lane);
        worker.links.begin(&link).lanes.push(held);
        worker.sleep();
        assert_eq!(told.recv().unwrap(), Some(LOOK_AGAIN));
        let done = Completion {
            lane: 1,
            what: Completed::Sends,
            index: 0,
            cause: None,
        };
        worker.links.all_mut()[0].lanes[0]
            .lane_mut()
            .retire(&done, |_, _| {});
        worker.sleep();
        assert_eq!(told.recv().unwrap(), None);
        // This worker may have to count a WRITE of the peer.
        *worker.links.all_mut()[0].lanes[0].lane_mut() = SinkLane::new(1, 8).with_receives(1);
        worker.sleep();
        assert_eq!(told.recv().unwrap(), Some(LOOK_AGAIN));
        *worker.links.all_mut()[0].lanes[0].lane_mut() = SinkLane::new(1, 8);
        // A failed lane runs dry.
        worker.links.drain();
        worker.sleep();
        assert_eq!(told.recv().unwrap(), Some(LOOK_AGAIN));
    }

    #[test]
    fn a_link_that_ends_is_kept_until_its_queue_is_closed() {
        let link = Arc::new(Link::new(1, 1, &[0], None));
        let id = Slots::new(1, 1).unwrap().take().unwrap();
        let mut work = LinkWork::<()> {
            link: Arc::clone(&link),
            lanes: Vec::new(),
            queue: VecDeque::from([task(id)]),
        };
        assert!(!work.is_over(), "it is open");
        link.break_off();
        assert!(!work.is_over(), "a transfer waits to be closed");
        work.queue.clear();
        assert!(work.is_over());
    }
}
