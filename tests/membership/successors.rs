//! Two processes take the place of one dead rank, as two launchers start them that do not know of each other. And newcomers among
//! many ranks that meet in a directory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpverbs::membership::{GroupEvent, GroupEventKind, GroupState};
use warpverbs::team::{FileStore, Store};

use crate::deaths::{CONFIG, DEADLINE};
use crate::fleet::{Fleet, LONG, Plan, Point, Rank};

/// Returns whether the counts are those of `./x test full`.
fn full() -> bool {
    std::env::var_os("WV_TEST_FULL").is_some()
}

/// Two generations of rank 1 come, so long apart. One serves with the others. The other waits, says so, and takes the place when
/// the first is dead.
fn twice(apart: Duration) {
    let mut fleet = Fleet::new(4, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    let mut dead = fleet.remove(1);
    dead.die_at(Point::SendBack);
    fleet.dead.push(dead);
    let mut both = Vec::new();
    for pause in [apart, Duration::ZERO] {
        fleet.join(1);
        both.push(fleet.remove(1));
        std::thread::sleep(pause);
    }
    let start = Instant::now();
    let serves = |rank: &Rank| rank.group().state() == GroupState::Serving;
    let at = loop {
        if let Some(at) = both.iter().position(serves) {
            break at;
        }
        // A story takes the events of its rank.
        let stories = || -> Vec<String> { both.iter().map(Rank::story).collect() };
        assert!(
            start.elapsed() < LONG,
            "{apart:?}: {}",
            stories().join("\n")
        );
        std::thread::sleep(Duration::from_millis(1));
    };
    let (serving, other) = (both.remove(at), both.remove(0));
    let epoch = serving.group().view().unwrap().epoch;
    fleet.ranks.push(serving);
    // A pair whose QPs are for the other generation is never whole.
    fleet.until_whole(epoch, 10);
    fleet.until_members(epoch, &[0, 1, 2, 3]);
    // It may have begun when the first one served already.
    let waits = |what: &GroupEventKind| matches!(what, GroupEventKind::Waits { rank: 1, .. });
    let (start, mut events) = (Instant::now(), other.group().events());
    while !events.iter().any(|event| waits(&event.what)) {
        assert!(start.elapsed() < LONG, "{apart:?}: {events:#?}");
        std::thread::sleep(Duration::from_millis(1));
        events.extend(other.group().events());
    }
    assert_eq!(
        other.group().state(),
        GroupState::Joining,
        "{apart:?}: {events:#?}"
    );
    let mut first = fleet.remove(1);
    first.die_at(Point::SendBack);
    fleet.dead.push(first);
    fleet.ranks.push(other);
    fleet.until_members(epoch + 1, &[0, 1, 2, 3]);
    let epoch = fleet.rank(1).group().view().unwrap().epoch;
    fleet.until_whole(epoch, 3);
    fleet.end();
}

#[test]
fn of_two_processes_for_one_place_one_serves_and_the_other_comes_later() {
    let trials = if full() { 50 } else { 3 };
    for trial in 0..trials {
        // 0.05 to 0.3 s.
        let apart = Duration::from_millis(50 + 250 * trial / (trials - 1));
        println!("trial {trial}: {apart:?} apart");
        twice(apart);
    }
}

/// Ranks of a directory die and come back, one after the other, each in this many rounds.
fn come_back(ranks: u32, rounds: u32) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let open = move || Arc::new(FileStore::open(&path, "run").unwrap()) as Arc<dyn Store>;
    let mut fleet = Fleet::start(Plan {
        store: Arc::new(open),
        ..Plan::new(ranks, DEADLINE, CONFIG)
    });
    let all: Vec<u32> = (0..ranks).collect();
    let mut epoch = 1;
    fleet.until_whole(epoch, 1);
    for round in 0..rounds {
        let slot = (5 * round + 3) % ranks;
        let mut dead = fleet.remove(slot);
        dead.die_at(Point::SendBack);
        fleet.dead.push(dead);
        let since = Instant::now();
        fleet.join(slot);
        fleet.until_members(epoch + 1, &all);
        println!(
            "round {round}: rank {slot} is back behind {:.1?}",
            since.elapsed()
        );
        epoch = fleet.rank(slot).group().view().unwrap().epoch;
        // A pair that meets late on a busy machine reports that too, so this is a figure.
        let unmet = |event: &GroupEvent| match &event.what {
            GroupEventKind::NotConnected { error, .. } => error.contains("not met"),
            _ => false,
        };
        let events = fleet.ranks.iter().flat_map(|rank| rank.group().events());
        let late = events.filter(|event| event.at >= since && unmet(event));
        println!(
            "round {round}: {} reports of pairs that had not met for 10 s",
            late.count()
        );
    }
    fleet.until_whole(epoch, 1);
    fleet.end();
}

#[test]
fn a_newcomer_meets_all_ranks_of_a_directory() {
    if full() {
        come_back(32, 20)
    } else {
        come_back(8, 1)
    }
}
