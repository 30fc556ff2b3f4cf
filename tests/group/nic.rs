//! HCAs that fail: which rank goes, how soon kernels know.

use std::time::{Duration, Instant};

use warpverbs::team::{Cause, GroupConfig, GroupState, What};

use crate::deaths::CONFIG;
use crate::fleet::{Fleet, LONG, Rank};

const DEADLINE: Duration = Duration::from_secs(16);
/// What a word of the host takes at most until a waiting kernel has ended, on a machine that does something else: still far from
/// the deadline.
const SOON: Duration = Duration::from_secs(8);

/// Waits until `rank` has finished one more call than it has now, and returns how long that took from `since`.
fn call_ends(rank: &Rank, since: Instant) -> Duration {
    let before = rank.calls().len();
    while rank.calls().len() == before {
        assert!(since.elapsed() < LONG, "{}", rank.story());
        std::thread::sleep(Duration::from_micros(100));
    }
    since.elapsed()
}

/// Waits until the kernels of `rank` wait for somebody.
fn waits(rank: &Rank) {
    let (mut calls, mut since) = (rank.calls().len(), Instant::now());
    while since.elapsed() < Duration::from_millis(300) {
        if rank.calls().len() != calls {
            (calls, since) = (rank.calls().len(), Instant::now());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_rank_that_loses_its_nic_goes_although_it_has_the_lowest_slot_and_suspects_everybody() {
    let mut fleet = Fleet::new(4, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    // It waits for rank 3, and hears of its port by an event.
    fleet.rank(3).pause(true);
    let ill = fleet.remove(0);
    waits(&ill);
    drop(ill.group().events());
    let since = Instant::now();
    ill.hca.set_port(false);
    let ended = call_ends(&ill, since);
    fleet.rank(3).pause(false);
    fleet.until_members(2, &[1, 2, 3]);
    ill.group().wait(GroupState::Expelled, LONG).unwrap();
    let events = ill.group().events();
    let masked = events
        .iter()
        .find(|event| matches!(event.what, What::Masked { .. }));
    let masked = masked.expect("kernels are told").at - since;
    eprintln!(
        "a port that goes down: word written in {masked:.1?}, the call that waited ended in {ended:.1?}"
    );
    assert!(ended < SOON, "{ended:?} of a deadline of {DEADLINE:?}");
    for rank in 1..4 {
        let knows = What::Suspected {
            rank,
            cause: Cause::PortDown,
        };
        assert!(
            events.iter().any(|event| event.what == knows),
            "{events:#?}"
        );
    }
    fleet.until_whole(2, 3);
    fleet.dead.push(ill);
    fleet.end();
}

#[test]
fn a_rank_whose_nic_falls_silent_goes_and_not_who_finds_that_out_first() {
    // Nothing tells of it: pairs are found one by one, as QPs give up and kernels have waited, the lowest slot's first.
    let deadline = Duration::from_secs(4);
    let config = GroupConfig {
        error_bound: Some(Duration::ZERO),
        stall_bound: Some(2 * deadline),
        ..CONFIG
    };
    let mut fleet = Fleet::new(4, deadline, config);
    fleet.until_whole(1, 3);
    let ill = fleet.remove(0);
    ill.hca.pause(2 * LONG);
    fleet.until_members(2, &[1, 2, 3]);
    ill.group().wait(GroupState::Expelled, LONG).unwrap();
    fleet.until_whole(2, 3);
    ill.hca.pause(Duration::ZERO);
    fleet.dead.push(ill);
    fleet.end();
}

#[test]
fn a_port_that_is_down_for_a_moment_costs_nobody_its_place() {
    let config = GroupConfig {
        error_bound: Some(DEADLINE),
        ..CONFIG
    };
    let fleet = Fleet::new(3, DEADLINE, config);
    fleet.until_whole(1, 3);
    let rank = fleet.rank(1);
    rank.pause(true);
    waits(rank);
    rank.hca.set_port(false);
    let suspects = || {
        let events = rank.group().events();
        let down = |event: &warpverbs::team::GroupEvent| {
            matches!(
                &event.what,
                What::Suspected {
                    cause: Cause::PortDown,
                    ..
                }
            )
        };
        events.iter().any(down)
    };
    let start = Instant::now();
    while !suspects() {
        assert!(start.elapsed() < LONG, "nobody hears of the port");
    }
    rank.hca.set_port(true);
    let trusts = || {
        let events = rank.group().events();
        events
            .iter()
            .any(|event| matches!(event.what, What::Trusted { .. }))
    };
    while !trusts() {
        assert!(start.elapsed() < LONG, "the port is up again");
    }
    rank.pause(false);
    fleet.until_whole(1, 3);
    assert!(fleet.ranks.iter().all(|rank| rank.members() == [0, 1, 2]));
    fleet.end();
}

#[test]
fn what_the_host_suspects_reaches_waiting_kernels_long_before_their_deadline() {
    let config = GroupConfig {
        error_bound: Some(LONG),
        ..CONFIG
    };
    let fleet = Fleet::new(3, DEADLINE, config);
    fleet.until_whole(1, 3);
    // Ranks 0 and 1 wait for rank 2, which makes no call.
    fleet.rank(2).pause(true);
    waits(fleet.rank(0));
    let waiting = fleet.rank(0);
    drop(waiting.group().events());
    let since = Instant::now();
    for rank in [0, 1] {
        let group = fleet.rank(rank).group();
        group.suspect(2, "so says the test").unwrap();
    }
    let ended = call_ends(waiting, since);
    let events = waiting.group().events();
    let masked = |event: &&warpverbs::team::GroupEvent| matches!(&event.what, What::Masked { ranks } if *ranks == [2]);
    let masked = events.iter().find(masked).expect("kernels are told").at - since;
    eprintln!(
        "a suspicion: word written in {masked:.1?}, the call that waited ended in {ended:.1?}"
    );
    assert!(ended < SOON, "{ended:?} of a deadline of {DEADLINE:?}");

    fleet.rank(2).pause(false);
    fleet.end();
}
