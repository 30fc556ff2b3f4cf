//! Newcomers that die, wait or are not reached while members take them in.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use membership_rules::record::Record;
use membership_rules::slots::Slots;
use rendezvous::MemoryStore;

use super::worlds::{LONG, PATIENT, memory, world_of};
use crate::membership::event::Cause;
use crate::membership::sim::{Rank, World, lock};
use crate::membership::stored::{member_key, parse_record};
use crate::membership::{
    GroupConfig, GroupEvent, GroupEventKind, GroupState, next_generation, read_group,
};

impl World {
    /// Waits for a record for which `there` holds, and returns that record.
    fn until_record(&self, what: &str, there: impl Fn(&Record) -> bool) -> Record {
        let start = Instant::now();
        loop {
            let text = self.store.try_get("group/record").unwrap().unwrap();
            let record = parse_record(&text, 4).unwrap();
            if there(&record) {
                return record;
            }
            assert!(start.elapsed() < LONG, "{what}: {record:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn takes(record: &Record) -> bool {
    let open = record.open.as_ref();
    open.is_some_and(|open| !open.takes.is_empty())
}

#[test]
fn a_newcomer_that_dies_before_its_promise_is_taken_out_and_holds_no_call() {
    let mut world = memory(4, 3);
    world.until_whole(3, "begin");
    world.silent.insert((3, 1));
    world.join(3).unwrap();
    let open = world.until_record("it is proposed", takes);
    // Members promise only after the newcomer, so their calls go on while it keeps silent.
    let newcomer = world.ranks.remove(&3).unwrap();
    world.until_called(20, "while it keeps silent");
    for rank in world.ranks.values() {
        let views = lock(&rank.layer.views);
        assert!(!views.iter().any(|view| view.2.contains(3)));
    }
    world.ranks.insert(3, newcomer);
    drop(world.kill(3));
    let smaller = |record: &Record| record.number > open.number && !takes(record);
    world.until_record("it is taken out", smaller);
    world.until_whole(3, "without it");
    world.join(3).unwrap();
    world.until_whole(3, "with its next generation");
    world.check("a newcomer without a promise");
}

#[test]
fn a_newcomer_that_dies_behind_its_promise_is_taken_out_before_the_view() {
    let mut world = memory(4, 3);
    world.until_whole(3, "begin");
    // All others have promised, and the view waits for the promise of rank 1.
    let late = Arc::clone(&world.ranks[&1].no_promise);
    late.store(true, Ordering::Relaxed);
    world.join(3).unwrap();
    let open = world.until_record("it is proposed", takes);
    let promises = format!("group/promise/{}", open.number);
    let start = Instant::now();
    let all = ["0.1", "2.1", "3.1"];
    while world.store.list(&promises).unwrap() != all {
        assert!(start.elapsed() < LONG, "the promises are not there");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(world.kill(3));
    let smaller = |record: &Record| record.number > open.number && !takes(record);
    let record = world.until_record("it is taken out", smaller);
    assert_eq!(record.epoch, open.epoch, "no view has had it");
    late.store(false, Ordering::Relaxed);
    world.until_whole(3, "without it");
    world.join(3).unwrap();
    world.until_whole(3, "with its next generation");
    world.check("a newcomer with a promise");
}

/// Starts two processes for slot 1, with generations 2 and 3. Generation `first` starts first, and the other one follows after `apart`. One
/// of them comes in and serves. The other takes its place when it dies, unless the other was the earlier generation and had to end.
fn twice(first: u32, apart: Duration) {
    let mut world = memory(4, 4);
    world.until_whole(3, "begin");
    drop(world.kill(1));
    let generations = [first, 5 - first];
    for _ in generations {
        next_generation(world.store.as_ref(), 1).unwrap();
    }
    let mut both = Vec::new();
    for generation in generations {
        world.start((1, generation), Slots::default()).unwrap();
        both.push(world.ranks.remove(&1).unwrap());
        std::thread::sleep(apart);
    }
    let start = Instant::now();
    let serves = |rank: &Rank| rank.group().state() == GroupState::Serving;
    let at = loop {
        if let Some(at) = both.iter().position(serves) {
            break at;
        }
        // `story` takes the events of its rank.
        let stories = || -> Vec<String> {
            let all = both.iter().chain(world.ranks.values());
            all.map(Rank::story).collect()
        };
        assert!(
            start.elapsed() < LONG,
            "none comes in: {}",
            stories().join("\n")
        );
        std::thread::sleep(Duration::from_millis(1));
    };
    let serving = both.remove(at);
    let (came, other) = (serving.own.1, both.remove(0));
    world.ranks.insert(1, serving);
    world.until_whole(20, "with one of the two");
    // If a member had QPs for the other process, it would suspect the pair by now, and the group would expel the rank later.
    let events = world.ranks.values().flat_map(|rank| rank.group().events());
    let against =
        events.filter(|event| matches!(event.what, GroupEventKind::Suspected { rank: 1, .. }));
    let against: Vec<GroupEvent> = against
        .filter(|event| match &event.what {
            GroupEventKind::Suspected { cause, .. } => matches!(cause, Cause::Told(_)),
            _ => false,
        })
        .collect();
    assert_eq!(against, [], "{came} has come in");
    println!(
        "{came} of {generations:?} comes in, {apart:?} apart; the other is {:?}",
        other.group().state()
    );
    match other.group().state() {
        GroupState::Joining => {
            let waits =
                |event: &GroupEvent| matches!(event.what, GroupEventKind::Waits { rank: 1, .. });
            let events = other.group().events();
            assert!(events.iter().any(waits), "{events:#?}");
            assert!(came < other.own.1);
            drop(world.kill(1));
            world.ranks.insert(1, other);
            world.until_whole(3, "with the other");
        }
        GroupState::Expelled => assert!(came > other.own.1, "a later one waits"),
        state => panic!("{state:?}: {}", other.story()),
    }
    world.check("twice");
}

#[test]
fn of_two_processes_for_one_place_one_comes_in_and_the_other_waits() {
    for apart in [0, 1, 3, 10, 30, 100] {
        for first in [2, 3] {
            twice(first, Duration::from_millis(apart));
        }
    }
}

/// Waits until `there` holds for all living ranks.
fn until(world: &World, what: &str, there: impl Fn(&Rank) -> bool) {
    let start = Instant::now();
    while !world.ranks.values().all(&there) {
        let stories = || -> Vec<String> { world.ranks.values().map(Rank::story).collect() };
        assert!(start.elapsed() < LONG, "{what}: {}", stories().join("\n"));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_newcomer_that_one_member_does_not_reach_comes_in_parted_from_it() {
    let mut world = memory(4, 4);
    world.until_whole(3, "begin");
    drop(world.kill(3));
    world.until_whole(3, "without it");
    lock(&world.wire.paths_down).insert((1, 3));
    world.join(3).unwrap();
    let parted = |rank: &Rank| {
        let view = rank.group().view();
        view.is_some_and(|view| view.members.contains_key(3) && view.parted == [(1, 3)])
    };
    until(&world, "it comes in parted from one", parted);
    lock(&world.wire.paths_down).clear();
    world.until_whole(3, "united");
    world.check("parted");
}

#[test]
fn a_newcomer_that_reaches_too_few_waits_and_comes_in_later() {
    let mut world = memory(5, 5);
    world.until_whole(3, "begin");
    drop(world.kill(3));
    world.until_whole(3, "without it");
    let epoch = world.whole_view().unwrap();
    lock(&world.wire.paths_down).extend([(0, 3), (1, 3)]);
    world.join(3).unwrap();
    let newcomer = world.ranks.remove(&3).unwrap();
    let start = Instant::now();
    let waits = |event: &GroupEvent| match &event.what {
        GroupEventKind::Failed { error } => {
            error.contains("writes to 2 of 4 members, [0, 1], get no answer")
        }
        _ => false,
    };
    while !newcomer.group().events().iter().any(waits) {
        assert!(start.elapsed() < LONG, "{}", newcomer.story());
        std::thread::sleep(Duration::from_millis(1));
    }
    // Calls go on in the same view, and no member proposes anything.
    world.until_whole(20, "while it waits");
    assert_eq!(world.whole_view(), Some(epoch));
    assert_eq!(newcomer.group().state(), GroupState::Joining);
    lock(&world.wire.paths_down).clear();
    world.ranks.insert(3, newcomer);
    world.until_whole(3, "with it");
    world.check("a newcomer that waits");
}

#[test]
fn a_lease_that_one_list_has_missed_keeps_no_newcomer_out() {
    let mut world = memory(5, 5);
    world.until_whole(3, "begin");
    drop(world.kill(3));
    world.until_whole(3, "without it");
    // The newcomer connects with no rank before its list has missed a lease.
    lock(&world.wire.refuse).extend((0..5).map(|peer| ((3, peer), u32::MAX)));
    world.join(3).unwrap();
    let own = world.ranks[&3].own;
    let missed = (own, member_key((1, 1)));
    let newcomer = world.ranks.remove(&3).unwrap();
    // The newcomer lists leases when a lease that it has seen is missing. It tries to connect with the ranks whose leases it has seen.
    let start = Instant::now();
    while lock(&world.wire.refuse)[&(3, 2)] == u32::MAX {
        assert!(start.elapsed() < LONG, "the newcomer sees no lease");
        std::thread::sleep(Duration::from_millis(1));
    }
    lock(&world.wire.unlisted).insert(missed.clone());
    let start = Instant::now();
    while lock(&world.wire.unlisted).contains(&missed) {
        assert!(start.elapsed() < LONG, "the newcomer lists no leases");
        // The removal of a lease, which its holder takes again, makes the newcomer list the leases that are left.
        world.store.remove(&member_key((2, 1))).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    lock(&world.wire.refuse).clear();
    world.ranks.insert(3, newcomer);
    world.until_whole(3, "with the newcomer");
    world.check("a list that has missed a lease");
}

#[test]
fn a_newcomer_that_never_answers_is_named_and_others_connect_before_that() {
    let mut world = memory(4, 2);
    world.until_whole(3, "begin");
    let start = Instant::now();
    // Rank 3 asks to come in, and makes no QP.
    lock(&world.wire.refuse).extend((0..3).map(|peer| ((3, peer), u32::MAX)));
    world.join(3).unwrap();
    let mute = world.ranks.remove(&3).unwrap();
    world.join(2).unwrap();
    world.until_whole(3, "with the other newcomer");
    let mut events = Vec::new();
    let is_named = |event: &GroupEvent| matches!(event.what, GroupEventKind::NotConnected { .. });
    while !events.iter().any(is_named) {
        assert!(start.elapsed() < LONG, "no rank is named");
        std::thread::sleep(Duration::from_millis(1));
        events.extend(world.ranks[&0].group().events());
    }
    let has_both = |event: &GroupEvent| match &event.what {
        GroupEventKind::Viewed(view) => view.members.contains_key(2),
        _ => false,
    };
    let [taken_in, named] = [&has_both as &dyn Fn(&GroupEvent) -> bool, &is_named]
        .map(|is| events.iter().position(is).unwrap());
    println!(
        "the other rank is taken in after {:?}; after {:?}: {:?}",
        events[taken_in].at - start,
        events[named].at - start,
        events[named].what
    );
    assert!(taken_in < named, "{events:#?}");
    let bound = PATIENT.promise_bound.unwrap();
    let GroupEventKind::NotConnected {
        rank: 3,
        generation: 1,
        error,
    } = &events[named].what
    else {
        panic!("{:?}", events[named].what);
    };
    assert!(
        error.contains(&format!("not answered for {bound:?}")),
        "{error}"
    );
    for rank in world.ranks.values() {
        let views = lock(&rank.layer.views);
        assert!(views.iter().all(|view| !view.2.contains(3)));
    }
    // Once two ranks have not met for long, an event says what both ends have told each other.
    let has_words = |event: &GroupEvent| match &event.what {
        GroupEventKind::NotConnected { rank: 3, error, .. } => {
            error.ends_with("This end: it has made QPs. Rank 3: it has made no QPs")
        }
        _ => false,
    };
    while !events.iter().any(has_words) {
        assert!(start.elapsed() < LONG, "no words: {events:#?}");
        std::thread::sleep(Duration::from_millis(1));
        events.extend(world.ranks[&0].group().events());
    }
    world.ranks.insert(3, mute);
    lock(&world.wire.refuse).clear();
    world.until_whole(3, "with the one that has answered at last");
    world.check("a newcomer that never answers");
}

#[test]
fn a_slot_that_is_held_back_is_told_by_members_and_by_its_next_newcomer() {
    let lease_ttl = Duration::from_secs(8);
    let config = GroupConfig {
        lease_ttl,
        promise_bound: Some(LONG),
        ..PATIENT
    };
    let mut world = world_of(Arc::new(MemoryStore::new()), 4, 3, config);
    world.until_whole(3, "begin");
    let held = |world: &World, slot: u32| {
        let events = world.ranks[&slot].group().events();
        let mut told = events.into_iter().filter_map(|event| match event.what {
            GroupEventKind::HeldBack {
                rank: 3,
                failures,
                wait,
            } => Some((failures, wait)),
            _ => None,
        });
        told.next_back()
    };
    // A member counts a newcomer if it has seen a record that proposes it. Rank 0 makes these proposals, so it sees all of them.
    let mut found = None;
    for generation in 1..=6 {
        world.silent.insert((3, generation));
        world.join(3).unwrap();
        let open = world.until_record("it is proposed", takes);
        drop(world.kill(3));
        let smaller = |record: &Record| record.number > open.number && !takes(record);
        world.until_record("it is taken out", smaller);
        world.until_whole(3, "without it");
        found = held(&world, 0);
        if found.is_some() {
            break;
        }
    }
    let (failures, wait) = found.expect("rank 0 says that it holds the slot back");
    assert!(failures >= 2, "{failures}");
    let leases = 1 << (failures - 2);
    assert_eq!(wait, leases * lease_ttl);
    world.join(3).unwrap();
    let start = Instant::now();
    while held(&world, 3) != Some((failures, wait)) {
        assert!(start.elapsed() < LONG, "the newcomer does not say so");
        std::thread::sleep(Duration::from_millis(1));
    }
    let newcomer = world.ranks[&3].group();
    let error = newcomer.wait(GroupState::Serving, Duration::ZERO);
    let error = error.unwrap_err().to_string();
    let words = format!("not Serving: {failures} newcomers of rank 3, one after the other");
    assert!(error.contains(&words), "{error}");
    let report = read_group(&world.store).unwrap().unwrap();
    let held: Vec<_> = report
        .held_back
        .iter()
        .map(|it| (it.rank, it.failures, it.leases))
        .collect();
    assert_eq!(held, [(3, failures, leases)]);
    world.until_whole(3, "with its next generation");
    let newcomer = world.ranks[&3].group();
    let error = newcomer.wait(GroupState::Left, Duration::ZERO).unwrap_err();
    assert!(error.to_string().ends_with("not Left"), "{error}");
    world.check("a slot that is held back");
}
