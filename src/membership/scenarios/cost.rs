//! What a group asks of its store: calls, counted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rendezvous::MemoryStore;

use super::{LONG, PATIENT, world_of};
use crate::membership::layer::Layer;
use crate::membership::sim::{Asked, Counted, World, WorldConfig};
use crate::membership::{GroupConfig, GroupEventKind};

const TTL: Duration = Duration::from_secs(2);
const CONFIG: GroupConfig = PATIENT.with_lease_ttl(TTL);

/// Most calls by the number of ranks for a death and a join together, those of the one that acts and of the one that comes among
/// them; renewals, and what is made in peace, not counted.
const CHANGES: u64 = 20;
/// Most bytes that are read in that, by the number of ranks.
const READ: u64 = 4096;

/// A group of `ranks`, and what its store counts.
fn counted(ranks: u32) -> (World, Arc<Asked>) {
    let store = Counted::new(Arc::new(MemoryStore::new()));
    let asked = store.asked();
    let mut world = world_of(Arc::new(store), ranks, ranks, CONFIG);
    world.until_whole(1, "begin");
    // They make no more calls: one that is late on a busy machine would be suspected for a moment, and its row be written.
    let started = world.ranks.values().map(|rank| rank.layer.started());
    let last = started.max().unwrap_or(0) + 1;
    for rank in world.ranks.values() {
        rank.layer.last.store(last, Ordering::Relaxed);
    }
    let start = Instant::now();
    while world
        .ranks
        .values()
        .any(|rank| rank.layer.finished() < last)
    {
        assert!(start.elapsed() < LONG, "they do not make call {last}");
        std::thread::sleep(Duration::from_millis(1));
    }
    (world, asked)
}

/// For each kind of call those of each of `ranks` since `before`.
fn since(asked: &Asked, before: &BTreeMap<&'static str, u64>, ranks: u32) -> String {
    let calls = asked.by_kind();
    let each = calls.iter().map(|(kind, count)| {
        let made = count - before.get(kind).copied().unwrap_or(0);
        format!("{kind} {:.1}", made as f64 / f64::from(ranks))
    });
    each.collect::<Vec<String>>().join(", ")
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
        let (world, asked) = counted(ranks);
        // What the begin has left to do is done some time.
        let begun = Instant::now();
        loop {
            let before = [asked.calls(), asked.renewals()];
            let start = Instant::now();
            std::thread::sleep(2 * TTL);
            let [made, renewed] = [asked.calls() - before[0], asked.renewals() - before[1]];
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

/// What a death and a join together cost `ranks`, which make no calls meanwhile.
fn count_changes(mut world: World, asked: &Asked, ranks: u32) {
    std::thread::sleep(TTL);
    let before = (asked.calls(), asked.read(), asked.by_kind());
    let start = Instant::now();
    drop(world.kill(1));
    world.until_members("without the dead one");
    let death = start.elapsed();
    world.join(1).unwrap();
    world.until_members("with another");
    let changed = start.elapsed();
    // Till the lease of the dead one has run out, and what is left to be told was told.
    std::thread::sleep((2 * TTL).saturating_sub(changed));
    let time = start.elapsed();
    let (made, read) = (asked.calls() - before.0, asked.read() - before.1);
    eprintln!(
        "{ranks} ranks: dropped in {death:.1?}, taken in again in {:.1?}: {:.1} calls and {} bytes read, for each of them; {}",
        changed.saturating_sub(death),
        made as f64 / f64::from(ranks),
        read / u64::from(ranks),
        since(asked, &before.2, ranks),
    );
    // The newcomer takes its lease. Where the machine stands still for longer than leases last, ranks that come late take theirs again
    // and tell it, and each of them may cost as much as the death.
    let taken = |calls: &BTreeMap<&str, u64>| calls.get("take").copied().unwrap_or(0);
    let disturbed = (taken(&asked.by_kind()) - taken(&before.2)).max(1);
    let most = disturbed * CHANGES * u64::from(ranks) + in_peace(ranks, time);
    assert!(
        made <= most,
        "{ranks} ranks: {made} calls in {time:.1?}, at most {most}"
    );
    let most = disturbed * READ * u64::from(ranks);
    assert!(
        read <= most,
        "{ranks} ranks: {read} bytes read in {time:.1?}, at most {most}"
    );
}

#[test]
fn a_death_and_a_join_cost_calls_by_the_number_of_ranks() {
    for ranks in [4, 16] {
        let (world, asked) = counted(ranks);
        count_changes(world, &asked, ranks);
    }
}

#[test]
fn a_death_and_a_join_of_many_ranks_cost_calls_by_their_number() {
    let ranks = 64;
    let store = Counted::new(Arc::new(MemoryStore::new()));
    let asked = store.asked();
    let config = WorldConfig {
        calls: false,
        watch: Duration::from_millis(200),
        ..WorldConfig::new(ranks, CONFIG)
    };
    let world = World::new(Arc::new(store), config).unwrap();
    world.until_members("begin");
    std::thread::sleep(TTL);
    count_changes(world, &asked, ranks);
}

#[test]
fn a_record_that_is_gone_is_told_and_the_store_is_not_asked_for_it_without_end() {
    let (mut world, asked) = counted(4);
    world.store.remove("group/record").unwrap();
    drop(world.kill(1));
    // Whoever finds it first tells it; it is the one whose turn it is.
    let told = |world: &World| {
        let events = world.ranks.values().flat_map(|rank| rank.group().events());
        let gone = |what: &GroupEventKind| matches!(what, GroupEventKind::Failed { error } if error.contains("record is gone"));
        events.into_iter().any(|event| gone(&event.what))
    };
    let start = Instant::now();
    while !told(&world) {
        assert!(start.elapsed() < LONG, "it is not told");
        std::thread::sleep(Duration::from_millis(1));
    }
    let made = || asked.calls() + asked.renewals();
    let (before, start) = (made(), Instant::now());
    std::thread::sleep(TTL);
    let (made, time) = (made() - before, start.elapsed());
    // In each quarter of a lease a rank looks, proposes, finds nothing, and waits again; once it writes its row.
    let quarters = time.as_millis().div_ceil((TTL / 4).as_millis()) + 1;
    eprintln!("4 ranks, no record: {made} calls in {time:.1?}");
    assert!(
        u128::from(made) <= 3 * (10 * quarters + 10),
        "{made} calls in {time:.1?}"
    );
    for rank in world.ranks.values() {
        assert_eq!(rank.group().view().map(|view| view.epoch), Some(1));
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
