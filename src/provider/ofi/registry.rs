//! The endpoints of a completion queue: which one a context is of, and which one the data of a peer's write names.
//!
//! A queue may hold completions of an endpoint that is closed. So its contexts and its tag stay until the queue was found empty after
//! that, and are no other endpoint's before.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use super::contexts::Pool;
use crate::provider::{Completed, Completion};

/// The most writes of a peer that wait until a worker has the lane.
const MOST_EARLY: usize = 1 << 16;

/// Where the first write of an endpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// It is not under way.
    None = 0,
    Posted = 1,
    Done = 2,
    Failed = 3,
}

/// What the queue and the endpoint both know.
#[derive(Debug, Default)]
pub(super) struct Ear {
    /// True if the worker has the lane.
    is_open: AtomicBool,
    /// True if the endpoint is closed, and the queue was found empty after that.
    is_drained: AtomicBool,
    /// The number of operations that are under way.
    under_way: AtomicU32,
    greeting: AtomicU8,
}

impl Ear {
    /// Notes that the worker has the lane, which counts writes of the peer from here on.
    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// Returns whether the worker has the lane, and may still find writes of the peer that count at it.
    pub(super) fn may_receive(&self) -> bool {
        self.is_open.load(Ordering::Acquire) && !self.is_drained.load(Ordering::Acquire)
    }

    /// Returns whether the endpoint is closed, and nothing of it is in the queue any more.
    pub(super) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    /// Notes that an operation is about to be posted.
    pub(super) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that an operation was refused, or has completed. Returns false if none is under way: the provider is faulty.
    pub(super) fn end(&self) -> bool {
        let take = |count: u32| count.checked_sub(1);
        let taken = (self.under_way).fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.is_ok()
    }

    pub(super) fn greeting(&self) -> Greeting {
        match self.greeting.load(Ordering::Acquire) {
            1 => Greeting::Posted,
            2 => Greeting::Done,
            3 => Greeting::Failed,
            _ => Greeting::None,
        }
    }

    pub(super) fn set_greeting(&self, greeting: Greeting) {
        self.greeting.store(greeting as u8, Ordering::Release);
    }
}

#[derive(Debug)]
struct Entry {
    pool: Arc<Pool>,
    lane: u32,
    tag: u16,
    ear: Arc<Ear>,
    /// Counters of writes that came before the worker had the lane.
    early: Vec<u32>,
    /// The number of its closing. None: it is open.
    closed: Option<u64>,
}

/// An operation of an endpoint.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The number of the lane.
    pub(super) lane: u32,
    /// The number of the context.
    pub(super) context: u16,
    /// True if it is the first write of the endpoint, which is no lane's.
    pub(super) is_greeting: bool,
    pub(super) ear: Arc<Ear>,
}

/// The endpoints of one queue.
#[derive(Debug, Default)]
pub(super) struct Registry {
    /// The endpoints by the address of their first context.
    entries: BTreeMap<usize, Entry>,
    tags: HashMap<u16, usize>,
    next_tag: u16,
    closings: u64,
}

impl Registry {
    /// Adds an endpoint. Returns its tag. None: all tags are taken.
    pub(super) fn add(&mut self, pool: &Arc<Pool>, lane: u32, ear: &Arc<Ear>) -> Option<u16> {
        let next = self.next_tag;
        let mut all = (0..=u16::MAX).map(|at| next.wrapping_add(at));
        let tag = all.find(|tag| !self.tags.contains_key(tag))?;
        self.next_tag = tag.wrapping_add(1);
        self.tags.insert(tag, pool.first());
        self.entries.insert(
            pool.first(),
            Entry {
                pool: Arc::clone(pool),
                lane,
                tag,
                ear: Arc::clone(ear),
                early: Vec::new(),
                closed: None,
            },
        );
        Some(tag)
    }

    /// Returns the operation whose context is at this address, if an endpoint has it.
    pub(super) fn find(&self, context: usize) -> Option<Found> {
        let (_, entry) = self.entries.range(..=context).next_back()?;
        let number = entry.pool.number_at(context)?;
        Some(Found {
            lane: entry.lane,
            context: number,
            is_greeting: number + 1 == entry.pool.count(),
            ear: Arc::clone(&entry.ear),
        })
    }

    /// Takes the write of a peer with this data. Returns the completion of the lane that it names. None: no lane has it, or no worker
    /// yet.
    pub(super) fn receive(&mut self, data: u64) -> Option<Completion> {
        let (tag, counter) = parted(data)?;
        let entry = self
            .tags
            .get(&tag)
            .and_then(|first| self.entries.get_mut(first));
        let Some(entry) = entry else {
            tracing::debug!("a write of a peer names lane tag {tag:#x}, which no lane has");
            return None;
        };
        if entry.ear.is_open.load(Ordering::Acquire) && entry.early.is_empty() {
            return Some(received(entry.lane, counter));
        }
        if entry.early.len() < MOST_EARLY {
            entry.early.push(counter);
        } else {
            tracing::error!(
                "lane {:#x}: more than {MOST_EARLY} early writes",
                entry.lane
            );
        }
        None
    }

    /// Moves completions of writes that came early to `found`, of lanes that workers have now. Returns whether any write still waits.
    pub(super) fn take_early(&mut self, found: &mut Vec<Completion>) -> bool {
        let mut is_left = false;
        for entry in self.entries.values_mut().filter(|it| !it.early.is_empty()) {
            if entry.ear.is_open.load(Ordering::Acquire) {
                let counters = std::mem::take(&mut entry.early).into_iter();
                found.extend(counters.map(|counter| received(entry.lane, counter)));
            } else {
                is_left |= entry.closed.is_none();
            }
        }
        is_left
    }

    /// Notes that the endpoint is closed whose first context is at this address.
    pub(super) fn close(&mut self, first: usize) {
        if let Some(entry) = self.entries.get_mut(&first) {
            self.closings += 1;
            entry.closed = Some(self.closings);
        }
    }

    /// Returns the number of the last closing.
    pub(super) fn closings(&self) -> u64 {
        self.closings
    }

    /// Drops the endpoints that were closed up to this closing, since the queue was found empty after it. Returns how many of their
    /// operations have never completed.
    pub(super) fn drain(&mut self, up_to: u64) -> u32 {
        let mut lost = 0;
        self.entries.retain(|_, entry| {
            let is_gone = entry.closed.is_some_and(|closing| closing <= up_to);
            if is_gone {
                self.tags.remove(&entry.tag);
                lost += entry.ear.under_way.swap(0, Ordering::Relaxed);
                entry.ear.is_drained.store(true, Ordering::Release);
            }
            !is_gone
        });
        lost
    }

    /// Returns whether an endpoint is closed and not dropped.
    pub(super) fn has_closed(&self) -> bool {
        self.entries.values().any(|entry| entry.closed.is_some())
    }
}

fn received(lane: u32, counter: u32) -> Completion {
    Completion {
        lane,
        what: Completed::Receive(Some(counter)),
        index: 0,
        cause: None,
    }
}

/// Returns the data of a write that counts at the lane with this tag. No counter has a number of more than 16 bits, and
/// `u16::MAX` is none.
pub(super) fn data_of(tag: u16, counter: u32) -> u64 {
    let counter = u16::try_from(counter).unwrap_or(u16::MAX);
    u64::from(tag) << 16 | u64::from(counter)
}

/// Returns the tag and the counter of such data.
fn parted(data: u64) -> Option<(u16, u32)> {
    let data = u32::try_from(data).ok()?;
    let [a, b, c, d] = data.to_be_bytes();
    Some((
        u16::from_be_bytes([a, b]),
        u16::from_be_bytes([c, d]).into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(registry: &mut Registry, lane: u32) -> (Arc<Pool>, Arc<Ear>, u16) {
        let (pool, ear) = (Arc::new(Pool::new(4)), Arc::new(Ear::default()));
        let tag = registry.add(&pool, lane, &ear).unwrap();
        (pool, ear, tag)
    }

    #[test]
    fn a_context_is_found_at_its_endpoint_and_no_other_address_is() {
        let mut registry = Registry::default();
        let pools: Vec<_> = (0..20).map(|lane| added(&mut registry, lane)).collect();
        for (lane, (pool, ..)) in (0..).zip(&pools) {
            for context in 0..4 {
                let found = registry.find(pool.context(context).addr()).unwrap();
                let expected = (lane, context, context == 3);
                assert_eq!((found.lane, found.context, found.is_greeting), expected);
            }
            assert!(registry.find(pool.first() + 8).is_none());
        }
        for _ in 0..20_000 {
            let address = fastrand::usize(..);
            let is_one = pools
                .iter()
                .any(|(pool, ..)| pool.number_at(address).is_some());
            assert_eq!(registry.find(address).is_some(), is_one);
        }
    }

    /// An endpoint that the registry has.
    struct Known {
        pool: Arc<Pool>,
        lane: u32,
        tag: u16,
        is_closed: bool,
    }

    /// Returns an address in one of these pools, beside one, or anywhere.
    fn any_address(random: &mut fastrand::Rng, pools: &[Arc<Pool>]) -> usize {
        match random.choice(pools) {
            Some(pool) if random.u32(0..4) > 0 => {
                let first = pool.first().wrapping_sub(128);
                let step = random.choice([1, 8, 64]).unwrap();
                first.wrapping_add(step * random.usize(0..10))
            }
            _ => random.usize(..),
        }
    }

    /// Completions with any context and any data come while endpoints come and go.
    #[test]
    fn a_completion_that_no_lane_has_finds_none() {
        let full = std::env::var_os("WV_TEST_FULL").is_some();
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let mut registry = Registry::default();
        let mut known: Vec<Known> = Vec::new();
        // Also those of endpoints that are gone.
        let mut pools: Vec<Arc<Pool>> = Vec::new();
        for step in 0..if full { 1_000_000 } else { 20_000 } {
            match random.u32(0..60) {
                0 if known.len() < 20 => {
                    let (pool, ear, tag) = added(&mut registry, step);
                    ear.open();
                    pools.push(Arc::clone(&pool));
                    known.push(Known {
                        pool,
                        lane: step,
                        tag,
                        is_closed: false,
                    });
                }
                1 if !known.is_empty() => {
                    let at = random.usize(..known.len());
                    registry.close(known[at].pool.first());
                    known[at].is_closed = true;
                }
                2 => {
                    registry.drain(registry.closings());
                    known.retain(|it| !it.is_closed);
                    let stays = pools.len().saturating_sub(40);
                    pools.drain(..stays);
                }
                _ => {}
            }
            let address = any_address(&mut random, &pools);
            let expected = known.iter().find_map(|it| {
                let number = it.pool.number_at(address)?;
                Some((it.lane, number))
            });
            let found = registry.find(address).map(|it| (it.lane, it.context));
            assert_eq!(found, expected, "seed {seed}");
            let tag = match random.choice(&known) {
                Some(it) if random.bool() => it.tag,
                _ => random.u16(..),
            };
            let data = data_of(tag, random.u32(..)) | u64::from(random.u32(0..10) == 0) << 40;
            let is_wide = data > u32::MAX.into();
            let expected = known.iter().find(|it| it.tag == tag && !is_wide);
            let found = registry.receive(data).map(|it| it.lane);
            assert_eq!(found, expected.map(|it| it.lane), "seed {seed}");
        }
    }

    #[test]
    fn a_closed_endpoint_keeps_contexts_and_tag_until_the_queue_was_empty() {
        let mut registry = Registry::default();
        let (pool, ear, tag) = added(&mut registry, 1);
        let (_other, _, others) = added(&mut registry, 2);
        (0..3).for_each(|_| ear.begin());
        assert!(ear.end());
        let before = registry.closings();
        registry.close(pool.first());
        assert_eq!(registry.drain(before), 0);
        assert!(registry.has_closed() && registry.find(pool.context(0).addr()).is_some());
        ear.open();
        let last = registry.receive(data_of(tag, 5));
        assert!(
            last.is_some() && ear.may_receive(),
            "it came before the close"
        );
        assert_eq!(registry.drain(registry.closings()), 2);
        assert!(ear.is_drained() && !ear.may_receive());
        assert_eq!(registry.receive(data_of(tag, 5)), None);
        assert!(!registry.has_closed() && registry.find(pool.context(0).addr()).is_none());
        registry.next_tag = tag;
        let (_, _, again) = added(&mut registry, 3);
        assert!(again == tag && again != others);
    }

    #[test]
    fn writes_that_come_before_the_worker_has_the_lane_are_counted_then() {
        let mut registry = Registry::default();
        let (_pool, ear, tag) = added(&mut registry, 9);
        let mut found = Vec::new();
        assert_eq!(registry.receive(data_of(tag, 3)), None);
        assert!(registry.take_early(&mut found) && found.is_empty());
        ear.open();
        // The order stays: a later write waits for the earlier ones.
        assert_eq!(registry.receive(data_of(tag, 4)), None);
        assert!(!registry.take_early(&mut found));
        let whats: Vec<Completed> = found.iter().map(|it| it.what).collect();
        let of = |counter| Completed::Receive(Some(counter));
        assert_eq!(whats, [of(3), of(4)]);
        let next = registry.receive(data_of(tag, 5)).unwrap();
        assert_eq!((next.lane, next.what), (9, of(5)));
    }

    #[test]
    fn data_has_a_tag_and_a_counter_and_anything_else_counts_nowhere() {
        assert_eq!(data_of(0x1234, 7), 0x1234_0007);
        assert_eq!(parted(0x1234_0007), Some((0x1234, 7)));
        assert_eq!(parted(data_of(1, 1 << 20)), Some((1, 0xffff)));
        assert_eq!(parted(1 << 32), None);
        let mut registry = Registry::default();
        let (_pool, ear, tag) = added(&mut registry, 1);
        ear.open();
        for _ in 0..20_000 {
            let data = fastrand::u64(..) >> fastrand::u32(0..64);
            let is_of_it = parted(data).is_some_and(|(named, _)| named == tag);
            assert_eq!(registry.receive(data).is_some(), is_of_it);
        }
    }
}
