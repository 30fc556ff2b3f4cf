//! Stores that lose the group's record, lose everything, or fall back to an earlier state; and stores that do not grow.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use membership_rules::slots::Slots;
use rendezvous::{FileStore, MemoryStore, Store};

use super::worlds::{LONG, PATIENT, world_of};
use crate::membership::sim::{Rank, World, lock};
use crate::membership::{GroupConfig, GroupEventKind, GroupState, next_generation};

const TTL: Duration = Duration::from_secs(1);
const CONFIG: GroupConfig = GroupConfig {
    lease_ttl: TTL,
    ..PATIENT
};

/// Removes all keys that ranks of this simulation write, as nearly at one moment as a store can do that.
fn lose_all(store: &dyn Store) {
    for below in ["group", "generation"] {
        store.remove_below(below).unwrap();
    }
}

impl Rank {
    fn has_told(&self, wanted: impl Fn(&GroupEventKind) -> bool) -> bool {
        // This leaves the events for the next caller, as a program that does not fetch them would.
        let events = self.group().shared.events();
        events.iter().any(|event| wanted(&event.what))
    }
}

fn is_back(what: &GroupEventKind) -> bool {
    matches!(what, GroupEventKind::RecordBack { .. })
}

fn until(world: &World, what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        if start.elapsed() >= LONG {
            let stories: Vec<String> = world.ranks.values().map(Rank::story).collect();
            panic!("{what}:\n{}", stories.join("\n"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until each rank says that the record is back, and checks that no view has changed.
fn until_back(world: &World, epoch: u32, what: &str) {
    until(world, what, || {
        world.ranks.values().all(|rank| rank.has_told(is_back))
    });
    for rank in world.ranks.values() {
        assert_eq!(rank.group().state(), GroupState::Serving, "{what}");
        let view = rank.group().view().unwrap();
        assert_eq!(view.epoch, epoch, "{what}: {}", rank.story());
    }
}

/// Kills the rank in `slot`, and waits until its next generation, number `generation`, serves.
fn dies_and_comes_back(world: &mut World, slot: u32, generation: u32, what: &str) {
    drop(world.kill(slot));
    world.until_whole(3, &format!("{what}: without rank {slot}"));
    world.join(slot).unwrap();
    assert_eq!(world.ranks[&slot].own, (slot, generation), "{what}");
    world.until_whole(3, &format!("{what}: with rank {slot} again"));
}

#[test]
fn a_store_that_lost_all_gets_its_record_back_and_takes_a_newcomer_in() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 4, 4, CONFIG);
    world.until_whole(3, "begin");
    dies_and_comes_back(&mut world, 1, 2, "before");
    lose_all(world.store.as_ref());
    until_back(&world, 3, "all is lost");
    // Generation 2 was drawn before the loss, so the next one is 3.
    dies_and_comes_back(&mut world, 1, 3, "behind");
    world.check("all is lost");
}

#[test]
fn a_record_that_was_removed_is_written_again_although_a_rank_dies() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 4, 4, CONFIG);
    world.until_whole(3, "begin");
    world.store.remove("group/record").unwrap();
    drop(world.kill(2));
    world.until_whole(3, "without it");
    for rank in world.ranks.values() {
        assert!(rank.has_told(is_back), "{}", rank.story());
    }
    world.join(2).unwrap();
    world.until_whole(3, "with the next one");
    world.check("removed");
}

#[test]
fn a_newcomer_with_the_name_of_a_dead_member_ends_and_a_later_one_serves() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 4, 4, CONFIG);
    world.until_whole(3, "begin");
    // No member notes the death or the loss before the newcomer has drawn its generation.
    world.away.store(true, Ordering::Relaxed);
    drop(world.kill(2));
    lose_all(world.store.as_ref());
    assert_eq!(next_generation(world.store.as_ref(), 2).unwrap(), 1);
    world.away.store(false, Ordering::Relaxed);
    world.start((2, 1), Slots::default()).unwrap();
    let namesake = world.ranks.remove(&2).unwrap();
    namesake.group().wait(GroupState::Expelled, LONG).unwrap();
    assert!(namesake.has_told(
        |what| matches!(what, GroupEventKind::Failed { error } if error.contains("another process has generation 1 of rank 2"))
    ));
    drop(namesake);
    world.until_whole(3, "without it");
    world.join(2).unwrap();
    assert_eq!(world.ranks[&2].own, (2, 2));
    world.until_whole(3, "with a later one");
    world.check("namesake");
}

#[test]
fn no_record_is_written_before_each_member_has_said_what_it_had() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 5, 4, CONFIG);
    world.until_whole(3, "begin");
    world.ranks[&3].cut.store(true, Ordering::Relaxed);
    lose_all(world.store.as_ref());
    world.join(4).unwrap();
    let lost = |what: &GroupEventKind| match what {
        GroupEventKind::RecordLost {
            store,
            lost,
            reason,
        } => {
            assert_eq!(store, "a store in memory");
            assert!(
                *lost >= TTL && reason.contains("ranks 3 were members"),
                "{reason}"
            );
            true
        }
        _ => false,
    };
    // The newcomer reports the loss as well, once.
    until(&world, "it is told", || {
        [0, 1, 2, 4]
            .iter()
            .all(|slot| world.ranks[slot].has_told(lost))
    });
    assert_eq!(world.store.try_get("group/record").unwrap(), None);
    for slot in 0..4 {
        assert_eq!(world.ranks[&slot].group().view().unwrap().epoch, 1);
    }
    let told = world.ranks[&4].group().shared.events();
    assert_eq!(told.iter().filter(|event| lost(&event.what)).count(), 1);
    world.ranks[&3].cut.store(false, Ordering::Relaxed);
    world.until_whole(3, "all have said it");
    world.check("one is away");
}

#[test]
fn an_earlier_record_is_replaced_by_the_newest_that_its_members_have_had() {
    let mut world = world_of(Arc::new(MemoryStore::new()), 4, 4, CONFIG);
    world.until_whole(3, "begin");
    let earlier = world.store.try_get("group/record").unwrap().unwrap();
    dies_and_comes_back(&mut world, 3, 2, "before");
    let member = world.store.try_get("group/record").unwrap().unwrap();
    world.store.put("group/record", &earlier).unwrap();
    until_back(&world, 3, "an earlier record");
    assert_ne!(
        world.store.try_get("group/record").unwrap().unwrap(),
        member
    );
    // A proposal from before the loss does not count after it either.
    dies_and_comes_back(&mut world, 3, 3, "behind");
    world.check("earlier");
}

#[test]
fn a_directory_that_was_removed_and_is_there_again_holds_the_group_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    std::fs::create_dir(&path).unwrap();
    let store = Arc::new(FileStore::open(&path, "run").unwrap());
    let mut world = world_of(store, 4, 4, CONFIG);
    world.until_whole(3, "begin");
    for round in 0..2 {
        let what = format!("round {round}");
        // The directory is renamed in one step. While it is removed file by file, a rank that is about to write would keep it from being
        // empty.
        let gone = directory.path().join(format!("gone {round}"));
        std::fs::rename(&path, gone).unwrap();
        std::thread::sleep(TTL / 4);
        std::fs::create_dir_all(&path).unwrap();
        let _ = world.take_calls();
        until_back(&world, 1 + 2 * round, &what);
        dies_and_comes_back(&mut world, 1, 2 + round, &what);
        for rank in world.ranks.values() {
            drop(rank.group().events());
        }
    }
    world.check("directory");
}

/// Returns the files and directories below `directory`, with the beats of leases and without scratch files of calls under way.
fn files_below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let scratch = path
            .parent()
            .is_some_and(|it| it.file_name() == Some(".new".as_ref()));
        if !scratch || name.starts_with("beat-") {
            found.push(path.display().to_string());
        }
        found.extend(files_below(&path));
    }
    found
}

/// How many files may be missing or extra at the moment of a look. A generation that is over leaves 28, so this hides none.
const BETWEEN_WRITES: usize = 2;

#[test]
fn a_directory_does_not_grow_with_deaths_and_rejoins() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(FileStore::open(directory.path(), "run").unwrap());
    let mut world = world_of(store, 4, 4, CONFIG);
    world.until_whole(3, "begin");
    let mut counts: Vec<Vec<String>> = Vec::new();
    for round in 0..5 {
        dies_and_comes_back(&mut world, 1, 2 + round, &format!("round {round}"));
        // The store keeps two versions of a key, and removes what is over in turns. So the smallest number of files within some leases is
        // what stays. A later round may take as long as it needs to come to about as few files as the second round, which may have been
        // counted between two writes.
        let few = counts.get(1).map_or(0, |it| it.len() + BETWEEN_WRITES);
        let start = Instant::now();
        let mut least = files_below(directory.path());
        while least.len() > few && start.elapsed() < if round < 2 { 2 * TTL } else { LONG } {
            std::thread::sleep(Duration::from_millis(10));
            let now = files_below(directory.path());
            if now.len() < least.len() {
                least = now;
            }
        }
        eprintln!("round {round}: {} files and directories", least.len());
        counts.push(least);
    }
    let (second, last) = (&counts[1], &counts[4]);
    assert!(
        last.len() <= second.len() + BETWEEN_WRITES,
        "{second:#?}\nthen\n{last:#?}"
    );
    assert!(!lock(&world.wire.dead).is_empty());
}
