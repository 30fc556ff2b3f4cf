//! Ranks die, leave and come back, also in random orders.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use membership_rules::record::{later, newer};
use rendezvous::{FileStore, MemoryStore, Store};

use super::worlds::{LONG, PATIENT, full, memory, world_of};
use crate::membership::layer::Layer;
use crate::membership::sim::{Rank, World, WorldConfig, lock};
use crate::membership::transport::Alarm;
use crate::membership::{GroupConfig, GroupEventKind, GroupState};

/// Bounds for many orders of events in little time. Ranks may be dropped by mistake, and then come back like any dropped rank.
const HASTY: GroupConfig = GroupConfig {
    lease_ttl: Duration::from_millis(600),
    stall_bound: None,
    promise_bound: None,
    ..PATIENT
};

#[test]
fn a_rank_dies_and_its_next_generation_is_taken_in() {
    let mut world = memory(3, 3);
    world.until_whole(3, "begin");
    drop(world.kill(1));
    world.until_whole(3, "without it");
    world.join(1).unwrap();
    world.until_whole(3, "with its next generation");
    let events = world.ranks[&0].group().events();
    let count = |wanted: fn(&GroupEventKind) -> bool| {
        events.iter().filter(|event| wanted(&event.what)).count()
    };
    assert_eq!(
        count(|what| matches!(what, GroupEventKind::Fenced { .. })),
        1,
        "{events:#?}"
    );
    assert_eq!(
        count(|what| matches!(what, GroupEventKind::Cleared { rank: 1 })),
        1,
        "{events:#?}"
    );
    assert_eq!(
        count(|what| matches!(
            what,
            GroupEventKind::Connected {
                rank: 1,
                generation: 2,
                ..
            }
        )),
        1
    );
    world.check("rejoin");
}

#[test]
fn slots_that_no_rank_had_are_taken_several_at_once() {
    let mut world = memory(5, 2);
    world.until_whole(3, "founders");
    for slot in [2, 3, 4] {
        world.join(slot).unwrap();
    }
    world.until_whole(3, "all");
    for slot in [0, 3] {
        drop(world.kill(slot));
    }
    world.until_whole(3, "two less");
    world.check("scale");
}

#[test]
fn window_e_a_survivor_that_fails_to_connect_serves_on_and_connects_later() {
    let mut world = memory(3, 3);
    world.until_whole(3, "begin");
    drop(world.kill(2));
    world.until_whole(3, "without it");
    lock(&world.wire.refuse).insert((0, 2), 5);
    world.join(2).unwrap();
    world.until_whole(3, "in the end");
    let events = world.ranks[&0].group().events();
    let place = |wanted: fn(&GroupEventKind) -> bool| {
        let place = events.iter().position(|event| wanted(&event.what));
        place.unwrap_or_else(|| panic!("{events:#?}"))
    };
    // All five tries lie between `first` and `connected`. Calls are held only after a promise.
    let first = place(|what| matches!(what, GroupEventKind::NotConnected { rank: 2, .. }));
    let connected = place(|what| matches!(what, GroupEventKind::Connected { rank: 2, .. }));
    let tries = &events[first..connected];
    let held = tries.iter().any(|event| {
        matches!(
            event.what,
            GroupEventKind::Promised { .. } | GroupEventKind::Resumed { .. }
        )
    });
    assert!(!held, "{events:#?}");
    assert_eq!(lock(&world.wire.refuse)[&(0, 2)], 0);
    world.check("refused");
}

#[test]
fn both_ranks_of_a_group_restart_at_once_and_found_it_anew() {
    let mut world = memory(2, 2);
    world.until_whole(3, "begin");
    let dead = [world.kill(0), world.kill(1)];
    drop(dead);
    for slot in [1, 0] {
        world.join(slot).unwrap();
    }
    world.until_whole(3, "again");
    assert!(world.ranks[&0].group().view().unwrap().epoch >= 2);
}

#[test]
fn a_rank_cut_off_from_the_store_stays_until_a_change_needs_its_promise() {
    let mut world = memory(4, 4);
    world.until_whole(3, "begin");
    world.ranks[&0].cut.store(true, Ordering::Relaxed);
    // The lease of rank 0 runs out, and its words still arrive.
    let store = Arc::clone(&world.store);
    let start = Instant::now();
    while store.try_get("group/member/0.1").unwrap().is_some() {
        assert!(start.elapsed() < LONG, "its lease does not run out");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(2 * PATIENT.lease_ttl);
    world.until_whole(3, "as before");
    assert_eq!(world.ranks[&0].group().view().unwrap().epoch, 1);
    // The others cannot go on without the dead rank while rank 0 leaves their proposal unanswered.
    drop(world.kill(3));
    let partitioned = world.ranks.remove(&0).unwrap();
    world.until_whole(3, "without both");
    assert_eq!(
        partitioned.group().state(),
        GroupState::Serving,
        "it cannot know"
    );
    partitioned.cut.store(false, Ordering::Relaxed);
    partitioned
        .group()
        .wait(GroupState::Expelled, LONG)
        .unwrap();
    drop(partitioned);
    world.join(0).unwrap();
    world.until_whole(3, "back");
    world.check("partition");
}

#[test]
fn a_port_that_is_down_is_reported_and_decides_nothing() {
    let mut world = memory(2, 2);
    world.until_whole(3, "begin");
    for alarm in [Alarm::PortDown(0), Alarm::PortUp(0)] {
        lock(&world.wire.alarms).insert((0, 1), vec![alarm]);
    }
    world.until_whole(10, "as before");
    assert_eq!(world.ranks[&0].group().view().unwrap().epoch, 1);
    world.check("port");
}

#[test]
fn a_rank_whose_hca_has_failed_for_good_goes_if_two_others_meet() {
    let mut world = memory(3, 3);
    world.until_whole(3, "begin");
    let ill = world.ranks.remove(&0).unwrap();
    lock(&world.wire.cut).insert(ill.own);
    lock(&world.wire.alarms).insert(ill.own, vec![Alarm::Fatal(0)]);
    ill.group().wait(GroupState::Expelled, LONG).unwrap();
    world.until_whole(3, "without it");
    world.check("hca");
}

#[test]
fn a_dying_joiner_and_its_successor_change_nothing_for_the_others() {
    let mut world = memory(4, 3);
    world.until_whole(3, "begin");
    for round in 0..6u64 {
        world.join(3).unwrap();
        std::thread::sleep(Duration::from_millis(3 * round));
        drop(world.kill(3));
    }
    world.join(3).unwrap();
    world.until_whole(3, "in the end");
    world.check("joiners");
}

/// The rank that acts for all is the one that leaves. Without calls the others do not notice that it is silent.
#[test]
fn the_lowest_ranks_leave_a_group_that_makes_no_calls() {
    let config = WorldConfig {
        calls: false,
        ..WorldConfig::new(4, PATIENT)
    };
    let mut world = World::new(Arc::new(MemoryStore::new()), config).unwrap();
    let start = Instant::now();
    while world.whole_view().is_none() {
        assert!(start.elapsed() < LONG, "no view");
        std::thread::sleep(Duration::from_millis(2));
    }
    let leavers = [0, 1].map(|slot| world.ranks.remove(&slot).unwrap());
    std::thread::scope(|scope| {
        for leaver in &leavers {
            scope.spawn(|| {
                let left = leaver.group().leave(LONG);
                assert!(left.is_ok(), "{left:?}: {}", leaver.story());
            });
        }
    });
    while world.whole_view().is_none() {
        let stories: Vec<String> = world.ranks.values().map(Rank::story).collect();
        assert!(start.elapsed() < LONG, "{stories:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
    let last = world.ranks.remove(&2).unwrap();
    last.group().leave(LONG).unwrap();
}

/// All others die while they agree on the view without the leaver. They do not finish because one of them does not promise.
#[test]
fn a_leaver_whose_group_dies_meanwhile_has_left() {
    let mut world = memory(4, 4);
    world.until_whole(3, "begin");
    world.ranks[&1].no_promise.store(true, Ordering::Relaxed);
    let leaver = world.ranks.remove(&3).unwrap();
    std::thread::scope(|scope| {
        let leaves = scope.spawn(|| leaver.group().leave(LONG));
        let promised = |rank: &Rank| {
            let events = rank.group().events();
            events
                .iter()
                .any(|event| matches!(event.what, GroupEventKind::Promised { .. }))
        };
        let start = Instant::now();
        while ![0, 2].iter().all(|slot| promised(&world.ranks[slot])) {
            assert!(start.elapsed() < LONG, "{}", leaver.story());
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(world.kill_all([0, 1, 2]));
        let left = leaves.join().unwrap();
        assert!(left.is_ok(), "{left:?}: {}", leaver.story());
    });
}

impl World {
    /// Returns whether `slot` serves or can come in, which it can if no living rank has lost its NIC.
    fn can_come_in(&self, slot: u32) -> bool {
        let cut = lock(&self.wire.cut);
        let serves = self.ranks[&slot].group().state() == GroupState::Serving;
        serves || !self.ranks.values().any(|rank| cut.contains(&rank.own))
    }

    /// Makes all living ranks skip `by` call numbers at once, in the view that they have, and waits until they have done so.
    fn leap(&mut self, by: u32, what: &str) {
        self.until_whole(3, what);
        let started = |rank: &Rank| rank.layer.started();
        // The leap begins so far ahead that no rank has come to it yet.
        let from = self.ranks.values().map(started).fold(0, later);
        let from = from.wrapping_add(300);
        lock(&self.wire.leaps).insert(from, from.wrapping_add(by));
        let start = Instant::now();
        let behind = |rank: &Rank| newer(started(rank), from.wrapping_add(by / 2));
        while !self.ranks.values().all(behind) {
            assert!(start.elapsed() < LONG, "{what}: the leap is not made");
            std::thread::sleep(Duration::from_millis(2));
        }
        self.until_whole(3, what);
    }
}

#[test]
fn a_view_that_stands_for_over_half_of_all_call_numbers_still_changes() {
    // Three leaps are more than a lap of the numbers.
    let by = (1u32 << 31) - 1;
    let mut world = memory(4, 3);
    world.leap(by, "founders");
    drop(world.kill(2));
    world.until_whole(3, "without it");
    // The traces of rank 2 are old when its successor comes.
    world.leap(by, "two ranks");
    world.leap(by, "two ranks, a lap");
    world.join(2).unwrap();
    world.until_whole(3, "with its next generation");
    world.leap(by, "three ranks");
    let leaver = world.ranks.remove(&1).unwrap();
    leaver.group().leave(LONG).unwrap();
    world.until_whole(3, "without one that has left");
    world.leap(by, "two others");
    world.join(3).unwrap();
    world.until_whole(3, "with a new one");
    world.check("leaps");
}

/// Makes random trouble from `seed`, and then leaves the group alone.
fn trouble(seed: u64, store: Arc<dyn Store>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let slots = random.u32(3..6);
    let mut world = world_of(store, slots, slots, HASTY);
    let what = format!("seed {seed}");
    world.until_whole_again(2, &what);
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(random.u64(0..150)));
        let living: Vec<u32> = world.ranks.keys().copied().collect();
        let slot = living[random.usize(..living.len())];
        match random.u32(..7) {
            0 | 1 if living.len() > 1 => drop(world.kill(slot)),
            2 => {
                lock(&world.wire.cut).insert(world.ranks[&slot].own);
            }
            3 => {
                world.away.store(true, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(random.u64(0..900)));
                world.away.store(false, Ordering::Relaxed);
            }
            4 => {
                let cut = Arc::clone(&world.ranks[&slot].cut);
                cut.store(true, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(random.u64(0..900)));
                cut.store(false, Ordering::Relaxed);
            }
            // A newcomer comes in before it leaves. If all members have lost their NICs, it waits until these members are replaced, below.
            5 if world.can_come_in(slot) => {
                let group = world.ranks[&slot].group();
                let left = group.leave(LONG);
                if !group.state().is_over() {
                    let stories: Vec<String> = world.ranks.values().map(Rank::story).collect();
                    panic!("{what}: rank {slot}: {left:?}:\n{}", stories.join("\n"));
                }
            }
            _ => {}
        }
        let gone: Vec<u32> = (0..slots)
            .filter(|slot| !world.ranks.contains_key(slot))
            .collect();
        if !gone.is_empty() && random.bool() {
            world.join(gone[random.usize(..gone.len())]).unwrap();
        }
    }
    world.until_whole_again(3, &what);
    world.check(&what);
}

#[test]
fn random_deaths_partitions_and_rejoins_end_in_one_view_of_all_that_live() {
    let many = if full() { 60 } else { 3 };
    let first = fastrand::u64(..1 << 32);
    for seed in first..first + many {
        trouble(seed, Arc::new(MemoryStore::new()));
    }
}

#[test]
fn the_same_over_a_directory() {
    let seed = fastrand::u64(..1 << 32);
    let directory = tempfile::tempdir().unwrap();
    trouble(
        seed,
        Arc::new(FileStore::open(directory.path(), "run").unwrap()),
    );
}
