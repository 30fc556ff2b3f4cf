//! Counts the calls that a group makes to its store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rendezvous::{MemoryStore, Store};

use super::worlds::{LONG, PATIENT, full, world_of};
use crate::membership::layer::Layer;
use crate::membership::sim::{Asked, Counted, Rank, World, WorldConfig};
use crate::membership::{GroupConfig, GroupEventKind};

const TTL: Duration = Duration::from_secs(2);
/// Time to live of a lease in a group of a thousand ranks, which share the cores of this machine.
const LONG_TTL: Duration = Duration::from_secs(4);
const CONFIG: GroupConfig = PATIENT.with_lease_ttl(TTL);

/// The largest number of calls for a death and a join together, divided by the number of ranks. The calls of the rank that acts and of the
/// newcomer count too. Renewals and the calls made in peace do not count.
const CHANGES: u64 = 22;
/// The largest number of bytes read for a death and a join together, divided by the number of ranks.
const READ: u64 = 4096;

/// Returns a group of `ranks`, and the counts of its store.
fn counted(ranks: u32) -> (World, Arc<Asked>) {
    let store = Counted::new(Arc::new(MemoryStore::new()));
    let asked = store.asked();
    let mut world = world_of(Arc::new(store), ranks, ranks, CONFIG);
    world.until_whole(1, "begin");
    // The ranks make no more calls: on a busy machine a late rank would be suspected for a moment, and its row would be written.
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

/// Returns, for each kind of call, how many calls each of `ranks` has made since `before`.
fn since(asked: &Asked, before: &BTreeMap<&'static str, u64>, ranks: u32) -> String {
    let calls = asked.by_kind();
    let each = calls.iter().map(|(kind, count)| {
        let made = count - before.get(kind).copied().unwrap_or(0);
        format!("{kind} {:.1}", made as f64 / f64::from(ranks))
    });
    each.collect::<Vec<String>>().join(", ")
}

/// Returns a group of `ranks` that make no calls, with leases of `ttl`, and the counts of its store.
fn idle(ranks: u32, ttl: Duration) -> (World, Arc<Asked>) {
    let store = Counted::new(Arc::new(MemoryStore::new()));
    let asked = store.asked();
    let config = WorldConfig {
        calls: false,
        watch: Duration::from_millis(200),
        ..WorldConfig::new(ranks, PATIENT.with_lease_ttl(ttl))
    };
    let world = World::new(Arc::new(store), config).unwrap();
    world.until_members("begin");
    std::thread::sleep(ttl);
    (world, asked)
}

/// Returns the largest number of calls, besides renewals, that `ranks` make in peace in `time`. Each rank makes four looks in each time to
/// live `ttl`, one renewal of the watch in ten seconds, and one call that began before.
fn in_peace(ranks: u32, time: Duration, ttl: Duration) -> u64 {
    let looks = 4.0 * time.as_secs_f64() / ttl.as_secs_f64();
    let watches = 2.0 * time.as_secs_f64() / 10.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a small positive number"
    )]
    let each = (looks + watches).ceil() as u64 + 1;
    u64::from(ranks) * each
}

/// Waits until the ranks whose store counts `asked` make no more calls than in peace.
fn count_peace(asked: &Asked, ranks: u32, ttl: Duration) {
    // What is left to do after the start of the group ends at some time.
    let begun = Instant::now();
    loop {
        let before = [asked.calls(), asked.renewals()];
        let start = Instant::now();
        std::thread::sleep(2 * ttl);
        let [made, renewed] = [asked.calls() - before[0], asked.renewals() - before[1]];
        let time = start.elapsed();
        let rate = |count: u64| count as f64 / f64::from(ranks) / time.as_secs_f64();
        eprintln!(
            "{ranks} ranks, lease {ttl:?}: {:.2} calls and {:.2} renewals a second and rank",
            rate(made),
            rate(renewed)
        );
        let most = in_peace(ranks, time, ttl);
        if made <= most {
            break;
        }
        let left = LONG.checked_sub(begun.elapsed());
        assert!(
            left.is_some(),
            "{ranks} ranks: {made} calls in {time:.1?}, at most {most}"
        );
    }
}

#[test]
fn a_rank_in_peace_looks_four_times_per_lease_for_any_number_of_ranks() {
    for ranks in [4, 32] {
        let (_world, asked) = counted(ranks);
        count_peace(&asked, ranks, TTL);
    }
}

#[test]
fn a_thousand_ranks_ask_as_much_as_few_in_peace_and_in_changes() {
    let (ranks, ttl) = if full() { (1024, LONG_TTL) } else { (64, TTL) };
    let (world, asked) = idle(ranks, ttl);
    count_peace(&asked, ranks, ttl);
    count_changes(world, &asked, (ranks, ttl));
}

/// Checks what a death and a join together cost `ranks`, which make no calls meanwhile.
fn count_changes(mut world: World, asked: &Asked, (ranks, ttl): (u32, Duration)) {
    std::thread::sleep(ttl);
    let before = (asked.calls(), asked.read(), asked.by_kind());
    let start = Instant::now();
    drop(world.kill(1));
    world.until_members("without the dead one");
    let death = start.elapsed();
    world.join(1).unwrap();
    world.until_members("with another");
    let changed = start.elapsed();
    // This waits until the lease of the dead rank has run out, and the ranks have written their last rows about it.
    std::thread::sleep((2 * ttl).saturating_sub(changed));
    let time = start.elapsed();
    let (made, read) = (asked.calls() - before.0, asked.read() - before.1);
    let of = |kind: &str, calls: &BTreeMap<&str, u64>| calls.get(kind).copied().unwrap_or(0);
    let since_then = |kind: &str| of(kind, &asked.by_kind()) - of(kind, &before.2);
    eprintln!(
        "{ranks} ranks: dropped in {death:.1?}, taken in again in {:.1?}: {:.1} calls and {} bytes read, for each of them; {}",
        changed.saturating_sub(death),
        made as f64 / f64::from(ranks),
        read / u64::from(ranks),
        since(asked, &before.2, ranks),
    );
    // The newcomer takes its lease. If the machine stands still for longer than leases last, late ranks take their leases again and write
    // that in their rows. Each of them may cost as much as the death.
    let disturbed = since_then("take").max(1);
    let most = disturbed * CHANGES * u64::from(ranks) + in_peace(ranks, time, ttl);
    // Renewals go on at their pace whatever happens, so they are not part of the cost of a change.
    let made = made - since_then("renew");
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
        count_changes(world, &asked, (ranks, TTL));
    }
}

#[test]
fn a_record_that_cannot_be_read_is_reported_and_seldom_asked_for() {
    without_a_record("'group/record'", |store| {
        store.put("group/record", b"{").unwrap();
    });
}

/// Checks what a group asks while its record is lost and a rank dies. `lose` loses the record, and an event with `words` reports the loss.
fn without_a_record(words: &str, lose: impl FnOnce(&dyn Store)) {
    let (mut world, asked) = counted(4);
    lose(world.store.as_ref());
    drop(world.kill(1));
    // The rank whose turn it is finds the loss first and reports it.
    let told = |world: &World| {
        let events = world.ranks.values().flat_map(|rank| rank.group().events());
        let gone = |what: &GroupEventKind| matches!(what, GroupEventKind::Failed { error } if error.contains(words));
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
    // In each quarter of a lease a rank looks, proposes, finds no record, and waits again. It writes its row once.
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
                let stories: Vec<String> = self.ranks.values().map(Rank::story).collect();
                stories.join("\n")
            };
            assert!(start.elapsed() < LONG, "{what}: {}", stories());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
