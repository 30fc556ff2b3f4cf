//! What a group asks of its store: calls, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rendezvous::{Changed, Count, LeaseId, MemoryStore, Store, StoreError};

use super::world::World;
use super::{LONG, PATIENT};
use crate::membership::GroupConfig;

const TTL: Duration = Duration::from_secs(2);
const CONFIG: GroupConfig = PATIENT.with_lease_ttl(TTL);

/// Most calls of each rank for a death and a join together: five times the record rings, and each time a rank looks, waits again, and
/// writes its row or its promise.
const CHANGES: u64 = 40;

/// A store that counts its calls.
#[derive(Debug)]
struct Counting {
    store: Arc<dyn Store>,
    calls: Arc<AtomicU64>,
    renewals: Arc<AtomicU64>,
}

impl Counting {
    fn counted(&self) -> &dyn Store {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.store.as_ref()
    }
}

impl Store for Counting {
    fn bounded(&self, bound: Duration) -> Arc<dyn Store> {
        Arc::new(Self {
            store: self.store.bounded(bound),
            calls: Arc::clone(&self.calls),
            renewals: Arc::clone(&self.renewals),
        })
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.counted().put(key, value)
    }

    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.counted().try_get(key)
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Option<&[u8]>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        self.counted().compare_and_set(key, expected, value)
    }

    fn remove(&self, key: &str) -> Result<bool, StoreError> {
        self.counted().remove(key)
    }

    fn list(&self, key: &str) -> Result<Vec<String>, StoreError> {
        self.counted().list(key)
    }

    fn remove_below(&self, key: &str) -> Result<u64, StoreError> {
        self.counted().remove_below(key)
    }

    fn changed_since(
        &self,
        keys: &[&str],
        below: Option<&str>,
        since: u64,
    ) -> Result<Changed, StoreError> {
        self.counted().changed_since(keys, below, since)
    }

    fn count(&self, key: &str) -> Result<Count, StoreError> {
        self.counted().count(key)
    }

    fn take_lease(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
    ) -> Result<Option<LeaseId>, StoreError> {
        self.counted().take_lease(key, value, ttl)
    }

    fn put_leased(&self, key: &str, value: &[u8], id: LeaseId) -> Result<bool, StoreError> {
        self.counted().put_leased(key, value, id)
    }

    fn renew_lease(&self, key: &str, id: LeaseId) -> Result<bool, StoreError> {
        self.renewals.fetch_add(1, Ordering::Relaxed);
        self.store.renew_lease(key, id)
    }

    fn end_lease(&self, key: &str, id: LeaseId) -> Result<(), StoreError> {
        self.counted().end_lease(key, id)
    }

    fn wait_for_change(&self, timeout: Duration) {
        self.store.wait_for_change(timeout);
    }

    fn wait_for_key(&self, key: &str, since: u64, timeout: Duration) -> Result<bool, StoreError> {
        self.counted().wait_for_key(key, since, timeout)
    }
}

/// A group of `ranks`, and the calls and renewals that its store counts.
fn counted(ranks: u32) -> (World, [Arc<AtomicU64>; 2]) {
    let (calls, renewals) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let store = Counting {
        store: Arc::new(MemoryStore::new()),
        calls: Arc::clone(&calls),
        renewals: Arc::clone(&renewals),
    };
    let mut world = World::new(Arc::new(store), ranks, ranks, CONFIG);
    world.until_whole(1, "begin");
    (world, [calls, renewals])
}

/// Most calls besides renewals that `ranks` make in peace in `time`: four looks in each time to live, one renewal of the watch in ten
/// seconds, and one that was begun before.
fn in_peace(ranks: u32, time: Duration) -> u64 {
    let looks = 4.0 * time.as_secs_f64() / TTL.as_secs_f64();
    let watches = 2.0 * time.as_secs_f64() / 10.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small positive number"
    )]
    let each = (looks + watches).ceil() as u64 + 1;
    u64::from(ranks) * each
}

#[test]
fn in_peace_a_rank_looks_four_times_in_a_lease_whatever_the_number_of_ranks() {
    for ranks in [4, 32] {
        let (world, [calls, renewals]) = counted(ranks);
        // They make no calls, in which one that is late on a busy machine would be suspected for a moment.
        for rank in world.ranks.values() {
            rank.layer.frozen.store(true, Ordering::Relaxed);
        }
        // What the begin has left to do is done some time.
        let begun = Instant::now();
        loop {
            let before = [&calls, &renewals].map(|of| of.load(Ordering::Relaxed));
            let start = Instant::now();
            std::thread::sleep(2 * TTL);
            let [made, renewed] = [(&calls, before[0]), (&renewals, before[1])]
                .map(|(of, before)| of.load(Ordering::Relaxed) - before);
            let time = start.elapsed();
            let rate = |count: u64| count as f64 / f64::from(ranks) / time.as_secs_f64();
            eprintln!(
                "{ranks} ranks, lease {TTL:?}: {:.2} calls and {:.2} renewals a second and rank",
                rate(made),
                rate(renewed)
            );
            let most = in_peace(ranks, time);
            if made <= most {
                break;
            }
            let left = LONG.checked_sub(begun.elapsed());
            assert!(
                left.is_some(),
                "{ranks} ranks: {made} calls in {time:.1?}, at most {most}"
            );
        }
        drop(world);
    }
}

#[test]
fn a_death_and_a_join_cost_calls_by_the_number_of_ranks() {
    for ranks in [4, 16] {
        let (mut world, [calls, renewals]) = counted(ranks);
        std::thread::sleep(TTL);
        let before = calls.load(Ordering::Relaxed) + renewals.load(Ordering::Relaxed);
        let start = Instant::now();
        drop(world.kill(1));
        world.until_members("without the dead one");
        world.join(1);
        world.until_members("with another");
        let time = start.elapsed();
        let made = calls.load(Ordering::Relaxed) + renewals.load(Ordering::Relaxed) - before;
        // Whoever waits for its turn, or for a device, looks again; a slow machine gives it more time for that.
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap();
        let renewed = u64::from(ranks) * (3 * ms(time) / ms(TTL) + 1);
        let polled = ms(time) / 2 * 3;
        let most = CHANGES * u64::from(ranks) + in_peace(ranks, time) + renewed + polled;
        eprintln!("{ranks} ranks, a death and a join: {made} calls in {time:.1?}");
        assert!(
            made <= most,
            "{ranks} ranks: {made} calls in {time:.1?}, at most {most}"
        );
    }
}

impl World {
    /// Waits until all living ranks serve in one view of exactly them.
    fn until_members(&self, what: &str) {
        let start = Instant::now();
        while !self.is_whole(0) {
            let stories = || {
                let stories: Vec<String> = self.ranks.values().map(super::Rank::story).collect();
                stories.join("\n")
            };
            assert!(start.elapsed() < LONG, "{what}: {}", stories());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
