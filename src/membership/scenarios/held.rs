//! A rank that is not itself disturbed stays a member, whatever happens to the store, to all ranks at once, or to the paths between them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rendezvous::{MemoryStore, Store};

use super::worlds::{LONG, PATIENT, full, world_of};
use crate::membership::layer::Layer;
use crate::membership::sim::{LOOK, Rank, World, lock};
use crate::membership::{GroupConfig, GroupEventKind, GroupState, read_group};

/// Time to live of a lease. A dead rank whose end no process sees is gone after two and a half of these.
pub(super) const TTL: Duration = Duration::from_secs(2);
pub(super) const CONFIG: GroupConfig = PATIENT
    .with_lease_ttl(TTL)
    .with_stall_bound(Some(Duration::from_secs(6)));

fn world(ranks: u32) -> World {
    world_over(Arc::new(MemoryStore::new()), ranks, ranks)
}

/// Returns a group of `founders` in a team of `slots` ranks. All founders serve.
pub(super) fn world_over(store: Arc<dyn Store>, slots: u32, founders: u32) -> World {
    let mut world = world_of(store, slots, founders, CONFIG);
    world.until_whole(3, "begin");
    world
}

impl World {
    fn epochs(&self) -> Vec<u32> {
        let view = |rank: &Rank| rank.group().view().map_or(0, |view| view.epoch);
        self.ranks.values().map(view).collect()
    }

    /// Returns how many calls each rank has made.
    fn calls(&self) -> Vec<usize> {
        let calls = |rank: &Rank| lock(&rank.layer.done).len();
        self.ranks.values().map(calls).collect()
    }

    /// Waits until each rank has made `more` calls. The calls need not be whole.
    pub(super) fn until_called(&self, more: usize, what: &str) {
        let (start, before) = (Instant::now(), self.calls());
        let made = |(now, before): (usize, &usize)| now >= before + more;
        while !self.calls().into_iter().zip(&before).all(made) {
            assert!(start.elapsed() < LONG, "{what}: calls stop");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn proposals(&self) -> usize {
        let events = self.ranks.values().map(|rank| rank.group().events());
        let proposed = |what: &GroupEventKind| matches!(what, GroupEventKind::Proposed { .. });
        let count = |events: Vec<super::super::GroupEvent>| {
            events.iter().filter(|event| proposed(&event.what)).count()
        };
        events.map(count).sum()
    }

    /// Checks for a while that no rank goes and that no view changes.
    pub(super) fn check_undisturbed(&mut self, what: &str) {
        let rest = Instant::now();
        while rest.elapsed() < 3 * TTL {
            for rank in self.ranks.values() {
                let state = rank.group().state();
                assert!(
                    !state.is_over(),
                    "{what}: {:?} is {state:?}\n{}",
                    rank.own,
                    rank.story()
                );
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let stories: Vec<String> = self.ranks.values().map(Rank::story).collect();
        assert!(
            self.epochs().iter().all(|epoch| *epoch == 1),
            "{what}: the view has changed\n{}",
            stories.join("\n")
        );
        self.until_whole(3, what);
        assert!(self.proposals() <= 2, "{what}");
    }
}

#[test]
fn etcd_stopped_for_longer_than_a_lease_costs_no_rank_its_place() {
    let mut world = world(4);
    world.held.store(true, Ordering::Relaxed);
    std::thread::sleep(TTL * 7 / 4);
    world.until_called(3, "while the store stands still");
    world.held.store(false, Ordering::Relaxed);
    world.check_undisturbed("the store stood still");
}

#[test]
fn a_store_that_is_slow_without_failing_drops_no_rank() {
    let mut world = world(4);
    let parts: &[u32] = if full() {
        &[10, 45, 100, 300]
    } else {
        &[45, 300]
    };
    for &part in parts {
        let delay = TTL * part / 100;
        world
            .delay
            .store(u64::try_from(delay.as_micros()).unwrap(), Ordering::Relaxed);
        std::thread::sleep(2 * TTL);
        world.until_called(3, "while the store is slow");
        world.delay.store(0, Ordering::Relaxed);
        world.check_undisturbed(&format!("calls that take {delay:?}"));
    }
}

#[test]
fn all_stand_still_and_go_on() {
    let mut world = world(4);
    let mut pauses = vec![TTL * 5 / 4, 3 * TTL];
    if full() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        // Random lengths from 0.1 s to 30 s: each length is as likely as its double.
        let pause = |_| Duration::from_millis(100).mul_f64(300f64.powf(random.f64()));
        pauses = (0..50).map(pause).collect();
    }
    for (round, time) in pauses.into_iter().enumerate() {
        let stands = |world: &World, stand: bool| {
            for rank in world.ranks.values() {
                rank.layer.stands.store(stand, Ordering::Relaxed);
                // The ranks go on one after the other. The first and the last are up to a quarter of a lease apart.
                let apart = TTL * u32::try_from(round % 4).unwrap() / 12;
                std::thread::sleep(if stand { Duration::ZERO } else { apart });
            }
        };
        stands(&world, true);
        std::thread::sleep(time);
        stands(&world, false);
        world.check_undisturbed(&format!("all stood still for {time:?}"));
    }
}

#[test]
fn an_observer_that_was_stopped_takes_nothing_for_gone() {
    let mut world = world(3);
    // This rank stands still for almost as long as the others' leases would last without renewals.
    let stopped = &world.ranks[&1].layer.stands;
    stopped.store(true, Ordering::Relaxed);
    std::thread::sleep(TTL * 9 / 10);
    stopped.store(false, Ordering::Relaxed);
    world.check_undisturbed("one stood still for less than a lease");
}

#[test]
fn a_rank_that_dies_while_the_store_is_away_is_dropped_when_it_is_back() {
    let mut world = world(4);
    world.away.store(true, Ordering::Relaxed);
    std::thread::sleep(TTL);
    drop(world.kill(2));
    world.until_called(3, "while the store is away");
    assert!(world.epochs().iter().all(|epoch| *epoch == 1));
    world.away.store(false, Ordering::Relaxed);
    world.until_whole(3, "without the dead one");
    world.check("a death while the store was away");
}

#[test]
fn a_dead_rank_whose_end_no_process_sees_is_gone_by_its_lease() {
    let mut world = world(4);
    lock(&world.wire.unseen).insert((3, 1));
    drop(world.kill(3));
    world.until_whole(3, "without it");
    world.check("a death that only a lease tells");
}

#[test]
fn no_call_is_held_for_the_promise_of_a_rank_that_died_with_another() {
    let mut world = world(5);
    // No process sees the end of rank 3, which dies at the same time as rank 4.
    lock(&world.wire.unseen).insert((3, 1));
    drop(world.kill(3));
    drop(world.kill(4));
    world.until_whole(3, "without both");
    for rank in world.ranks.values() {
        let story = rank.story();
        for event in rank.group().events() {
            let GroupEventKind::Proposed { members, .. } = &event.what else {
                continue;
            };
            let awaits = members.contains_key(3) && !members.contains_key(4);
            assert!(!awaits, "its promise never comes: {event:?}\n{story}");
        }
    }
    world.check("two deaths at once");
}

#[test]
fn a_rank_of_which_nothing_is_heard_delays_a_drop_and_does_not_stop_it() {
    let mut world = world(4);
    lock(&world.wire.uncounted).insert(2);
    drop(world.kill(3));
    world.until_whole(3, "without the dead one");
    world.check("a death beside a rank that is not heard");
}

/// Cuts the paths between these pairs of slots, or mends them.
pub(super) fn cut(world: &World, pairs: &[(u32, u32)], cut: bool) {
    let mut down = lock(&world.wire.paths_down);
    for pair in pairs {
        if cut {
            down.insert(*pair)
        } else {
            down.remove(pair)
        };
    }
}

pub(super) fn all_pairs(ranks: u32) -> Vec<(u32, u32)> {
    let pairs = |a| (a + 1..ranks).map(move |b| (a, b));
    (0..ranks).flat_map(pairs).collect()
}

#[test]
fn one_link_that_fails_parts_two_and_they_are_united_when_it_is_back() {
    let mut world = world(4);
    cut(&world, &[(1, 2)], true);
    let start = Instant::now();
    let parted = |world: &World| {
        let view = |rank: &Rank| rank.group().view().map(|view| view.parted);
        world
            .ranks
            .values()
            .all(|rank| view(rank) == Some(vec![(1, 2)]))
    };
    while !parted(&world) {
        assert!(start.elapsed() < LONG, "{}", world.ranks[&1].story());
        std::thread::sleep(Duration::from_millis(2));
    }
    // The pair stays cut for longer than the stall bound. Neither rank goes.
    world.until_called(3, "parted");
    std::thread::sleep(CONFIG.stall_bound.unwrap() + 2 * TTL);
    for rank in world.ranks.values() {
        assert!(!rank.group().state().is_over(), "{}", rank.story());
        assert_eq!(rank.group().view().unwrap().members.len(), 4);
    }
    let counted = |world: &World| {
        let of = |rank: &Rank| {
            let of = rank.group().counters();
            (of.parted, of.partings, of.unions)
        };
        world.ranks.values().map(of).collect::<Vec<_>>()
    };
    assert_eq!(counted(&world), [(1, 1, 0); 4]);
    let report = read_group(&world.store).unwrap().unwrap();
    assert_eq!(report.view.parted, [(1, 2)]);
    cut(&world, &[(1, 2)], false);
    world.until_whole(3, "united");
    for (parted, partings, unions) in counted(&world) {
        assert_eq!((parted, unions), (0, partings), "each parting has its end");
    }
    world.check("one path");
}

/// Cuts all paths for `time`. If the QPs do not `survive`, they carry nothing after that either.
fn all_ports_down(world: &mut World, time: Duration, survive: bool) {
    let what = format!("all paths down for {time:?}, QPs survive: {survive}");
    cut(world, &all_pairs(4), true);
    if !survive {
        for (a, b) in all_pairs(4) {
            world.fail_qps(a, b);
        }
    }
    std::thread::sleep(time);
    for rank in world.ranks.values() {
        assert!(!rank.group().state().is_over(), "{what}: {}", rank.story());
    }
    cut(world, &all_pairs(4), false);
    let back = Instant::now();
    world.until_whole(3, &what);
    println!("{what}: whole again {:.1?} after that", back.elapsed());
    for rank in world.ranks.values() {
        assert_eq!(rank.group().view().unwrap().members.len(), 4, "{what}");
    }
}

#[test]
fn all_ports_go_down_and_come_back() {
    let mut world = world(4);
    let long = CONFIG.stall_bound.unwrap() + 2 * TTL;
    let (rounds, times): (u32, &[Duration]) = if full() {
        (20, &[TTL / 20, TTL * 3 / 20, TTL / 2, 5 * TTL])
    } else {
        (1, &[TTL * 3 / 20, TTL, long])
    };
    for _ in 0..rounds {
        for time in times {
            all_ports_down(&mut world, *time, true);
            all_ports_down(&mut world, *time, false);
        }
    }
    world.check("all ports");
}

#[test]
fn two_ranks_never_drop_each_other_by_contact() {
    let mut world = world(2);
    cut(&world, &[(0, 1)], true);
    std::thread::sleep(CONFIG.stall_bound.unwrap() + 3 * TTL);
    for rank in world.ranks.values() {
        assert!(!rank.group().state().is_over(), "{}", rank.story());
    }
    cut(&world, &[(0, 1)], false);
    world.until_whole(3, "united");
    world.check("two");
}

#[test]
fn a_newcomer_that_dies_again_and_again_holds_no_call() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 4, 3, CONFIG);
    world.until_whole(3, "begin");
    for round in 0..12u64 {
        world.join(3).unwrap();
        std::thread::sleep(Duration::from_millis(7 * round));
        drop(world.kill(3));
        world.until_called(3, "while newcomers die");
    }
    world.until_whole(3, "without them");
    world.check("newcomers that die");
}

#[test]
fn garbage_in_any_key_stops_nothing() {
    let mut world = world(3);
    let kinds = [
        "row/1.1",
        "leaves/1.1",
        "over/x",
        "over/1.1",
        "member/1.1",
        "promise/9/1.1",
        "member/2.9",
        "taken/9.9",
        "new",
    ];
    for kind in kinds {
        for value in [&b""[..], b"{", b"\xff\xfe", &[b'7'; 70_000]] {
            world.store.put(&format!("group/{kind}"), value).unwrap();
        }
        world.until_called(2, kind);
    }
    // The holder of each key writes the key again.
    for kind in ["row/1.1", "member/1.1"] {
        let whole = || {
            let value = world.store.try_get(&format!("group/{kind}")).unwrap();
            value.is_some_and(|value| value.first() == Some(&b'{') && value.len() > 2)
        };
        let start = Instant::now();
        while !whole() {
            let waited = start.elapsed();
            assert!(waited < LONG, "{kind} is not written again");
            std::thread::sleep(LOOK);
        }
    }
    // After that a change still takes place.
    drop(world.kill(2));
    world.until_whole(3, "without the dead one");
    // If a record cannot be read, the last one that could be read stays in force.
    let record = world.store.try_get("group/record").unwrap().unwrap();
    world.store.put("group/record", b"{").unwrap();
    world.until_called(3, "the record cannot be read");
    let start = Instant::now();
    let mut told = Vec::new();
    while told.is_empty() {
        assert!(start.elapsed() < LONG, "it is not told");
        for event in world.ranks[&0].group().events() {
            if let GroupEventKind::Failed { error } = event.what
                && error.starts_with("'group/record' cannot be used: ")
            {
                told.push(error);
            }
        }
        std::thread::sleep(LOOK);
    }
    let mends = "Whoever runs the store puts back the last value";
    assert!(told.len() == 1 && told[0].contains(mends), "{told:?}");
    let epoch = world.ranks[&0].group().view().unwrap().epoch;
    assert_eq!(epoch, 2, "no view changes");
    world.store.put("group/record", &record).unwrap();
    world.join(2).unwrap();
    world.until_whole(3, "with another rank");
    world.check("garbage");
}

#[test]
fn an_ask_without_a_lease_is_nothing() {
    let mut world = world(3);
    // A writer without a lease puts a member key in which a later generation of a member asks.
    let member = world.store.try_get("group/member/1.1").unwrap().unwrap();
    let asks = String::from_utf8(member).unwrap().replace("false", "true");
    world
        .store
        .put("group/member/1.2", asks.as_bytes())
        .unwrap();
    world.check_undisturbed("a later generation asks");
}

#[test]
fn a_later_generation_says_that_it_waits_and_joins_after_the_earlier_one() {
    let mut world = world(3);
    let earlier = world.ranks.remove(&1).unwrap();
    world.join(1).unwrap();
    let later = world.ranks.insert(1, earlier).unwrap();
    world.check_undisturbed("a later generation asks");
    assert_eq!(later.group().state(), GroupState::Joining);
    let waits = GroupEventKind::Waits {
        rank: 1,
        generation: 1,
    };
    let events = later.group().events();
    let told = events.iter().filter(|event| event.what == waits);
    assert_eq!(told.count(), 1, "{events:#?}");
    drop(world.kill(1));
    world.ranks.insert(1, later);
    world.until_whole(3, "with the later one");
    world.check("two generations");
}

#[test]
fn a_store_that_is_slow_at_the_start_is_reported_with_both_times() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 3, 2, CONFIG);
    world.until_whole(1, "begin");
    let slow = TTL / 6 + Duration::from_millis(100);
    let took = u64::try_from(slow.as_micros()).unwrap();
    world.delay.store(took, Ordering::Relaxed);
    world.join(2).unwrap();
    world.delay.store(0, Ordering::Relaxed);
    let events = world.ranks[&2].group().events();
    let told = |event: &super::super::GroupEvent| match event.what {
        GroupEventKind::SlowStore { p99, lease_ttl } => p99 >= slow && lease_ttl == TTL,
        _ => false,
    };
    assert!(events.first().is_some_and(told), "{events:#?}");
    world.until_whole(3, "all the same");
}

#[test]
fn sixteen_ranks_at_100_ms_a_call() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 16, 16, CONFIG);
    world.until_whole(1, "begin");
    world.delay.store(100_000, Ordering::Relaxed);
    drop(world.kill(5));
    world.until_whole(1, "without the dead one");
    let epochs = world.epochs();
    assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
    world.delay.store(0, Ordering::Relaxed);
    world.check("a slow store");
}

/// A rank that makes no calls keeps the views in which its next calls run, and promises each further one.
#[test]
fn a_rank_that_is_behind_by_several_views_stays() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 7, 7, PATIENT);
    world.until_whole(3, "begin");
    let layer = Arc::clone(&world.ranks[&0].layer);
    layer.last.store(layer.started(), Ordering::Relaxed);
    for dead in [6, 5, 4, 3, 2] {
        let before = lock(&world.ranks[&1].layer.done).len();
        drop(world.kill(dead));
        let start = Instant::now();
        let without = |rank: &Rank| {
            let view = rank.group().view();
            view.is_some_and(|view| !view.members.contains_key(dead))
        };
        // Each view begins after calls that the frozen rank has still to make.
        while !without(&world.ranks[&1]) || lock(&world.ranks[&1].layer.done).len() < before + 2 {
            let story = world.ranks[&0].story();
            assert!(start.elapsed() < LONG, "no view without {dead}\n{story}");
            std::thread::sleep(LOOK);
        }
    }
    let state = world.ranks[&0].group().state();
    assert_eq!(state, GroupState::Serving, "{}", world.ranks[&0].story());
    layer.last.store(u32::MAX, Ordering::Relaxed);
    world.until_whole(3, "it goes on");
    world.check("behind by several views");
}

/// Returns the ranks to which `rank` has ended its QPs since its events were last read, with one list for each turn.
fn fences(rank: &Rank) -> Vec<Vec<u32>> {
    let events = rank.group().events();
    let fenced = events.into_iter().filter_map(|event| match event.what {
        GroupEventKind::Fenced { ranks } => Some(ranks),
        _ => None,
    });
    fenced.collect()
}

/// What is in flight to a dead rank binds memory until the QPs to that rank end. The QPs end without a proposal and without the store.
#[test]
fn qps_to_a_dead_rank_end_while_the_store_is_away() {
    let mut world = world(4);
    world.away.store(true, Ordering::Relaxed);
    drop(world.kill(3));
    let mut told = vec![Vec::new(); 3];
    let start = Instant::now();
    while told.iter().any(Vec::is_empty) {
        for (rank, told) in world.ranks.values().zip(&mut told) {
            told.extend(fences(rank));
        }
        assert!(
            start.elapsed() < LONG,
            "{told:?}: {}",
            world.ranks[&0].story()
        );
        std::thread::sleep(LOOK);
    }
    assert_eq!(world.epochs(), [1; 3], "no rank has a view without it yet");
    world.away.store(false, Ordering::Relaxed);
    world.until_whole(3, "without rank 3");
    for (rank, told) in world.ranks.values().zip(&mut told) {
        told.extend(fences(rank));
        assert_eq!(*told, [[3]], "each ends them once: {}", rank.story());
    }
    world.check("a death while the store is away");
}

#[test]
fn a_promise_of_an_impossible_call_counts_as_missing_and_is_named() {
    let mut world = world(3);
    // The promises of rank 1 do not come into the store before this test ends.
    world.ranks[&1].no_promise.store(true, Ordering::Relaxed);
    drop(world.kill(2));
    let mut events = Vec::new();
    let mut until = |what: &str, found: &dyn Fn(&GroupEventKind) -> Option<u64>| {
        let start = Instant::now();
        loop {
            events.extend(world.ranks[&0].group().events());
            if let Some(found) = events.iter().find_map(|event| found(&event.what)) {
                return found;
            }
            assert!(start.elapsed() < LONG, "{what}: {events:#?}");
            std::thread::sleep(LOOK);
        }
    };
    let proposal = until("no proposal", &|what| match what {
        GroupEventKind::Proposed { proposal, .. } => Some(*proposal),
        _ => None,
    });
    let key = format!("group/promise/{proposal}/1.1");
    let far = (1u32 << 31) + 7;
    let value = format!("{{\"last\":{far}}}");
    world.store.put(&key, value.as_bytes()).unwrap();
    until("it is not told", &|what| match what {
        GroupEventKind::Failed { error } => {
            let named = error.contains(&key) && error.contains(&format!("call {far}"));
            named.then_some(0)
        }
        _ => None,
    });
    assert_eq!(world.ranks[&0].group().view().unwrap().epoch, 1);
    world.ranks[&1].no_promise.store(false, Ordering::Relaxed);
    world.until_whole(3, "with the promise of the rank itself");
    world.check("a promise of a call far ahead");
}

#[test]
fn fences_of_many_peers_are_cut_into_turns() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 16, 16, CONFIG);
    world.until_whole(1, "begin");
    // The survivors learn of all deaths before one of them can propose.
    for slot in 0..4 {
        world.ranks[&slot].cut.store(true, Ordering::Relaxed);
    }
    *lock(&world.wire.fence_time) = TTL / 12;
    drop(world.kill_all(4..16));
    for slot in 0..4 {
        world.ranks[&slot].cut.store(false, Ordering::Relaxed);
    }
    world.until_whole(3, "without 12 ranks");
    for rank in world.ranks.values() {
        let turns = fences(rank);
        // Ending the QPs to 12 ranks takes 2 s, and a turn takes at least 0.25 s.
        assert!(turns.len() >= 4, "{turns:?}");
        assert_eq!(turns.concat(), (4..16).collect::<Vec<u32>>(), "{turns:?}");
    }
    world.check("fences");
}
