//! HCAs that fail: which rank goes, and that waiting kernels hear of it.

use std::time::{Duration, Instant};

use test_support::limits::{HANG, until};
use warpverbs::membership::{GroupEventKind, GroupState};

use crate::deaths::CONFIG;
use crate::fleet::{Fleet, LONG, Rank};

/// No call ends by it before the test is taken for hung: what ends a call is what the host has said.
const DEADLINE: Duration = HANG.saturating_mul(2);

/// `absent` makes no call any more; waits until the kernels of `rank` are in the first call that it does not make. Its number.
fn waits_for(rank: &Rank, absent: &Rank) -> u32 {
    absent.rest();
    let number = absent.moe.started().wrapping_add(1);
    until(format_args!("call {number} begins"), || {
        rank.check();
        rank.moe.started() == number
    });
    // In it for a moment.
    std::thread::sleep(Duration::from_millis(300));
    number
}

/// Waits until call `number` of `rank` has ended. That it comes before the test is taken for hung says that it was not by the
/// deadline, which is twice as far.
fn ended_early(rank: &Rank, number: u32) {
    until(format_args!("call {number} ends"), || {
        rank.check();
        rank.calls().iter().any(|call| call.number == number)
    });
}

/// Ranks that lose contact part at once, and the one that nobody reaches goes after the stall bound.
fn parting(ranks: u32) -> Fleet {
    let deadline = Duration::from_secs(4);
    let config = CONFIG
        .with_error_bound(Some(Duration::ZERO))
        .with_stall_bound(Some(2 * deadline));
    let fleet = Fleet::new(ranks, deadline, config);
    fleet.until_whole(1, 3);
    fleet
}

#[test]
fn a_rank_that_loses_its_nic_goes_although_it_has_the_lowest_slot_and_suspects_everybody() {
    let mut fleet = parting(4);
    let ill = fleet.remove(0);
    ill.hca.set_port(false);
    fleet.until_members(2, &[1, 2, 3]);
    ill.group().wait(GroupState::Expelled, LONG).unwrap();
    let events = ill.group().events();
    let told = |what: &GroupEventKind| events.iter().any(|event| event.what == *what);
    assert!(told(&GroupEventKind::RailDown { rail: 0 }), "{events:#?}");
    fleet.until_whole(2, 3);
    fleet.dead.push(ill);
    fleet.end();
}

#[test]
fn a_rank_whose_nic_falls_silent_goes_and_not_who_finds_that_out_first() {
    // Nothing tells of it: pairs are found one by one, as QPs give up and kernels have waited, the lowest slot's first.
    let mut fleet = parting(4);
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
fn a_port_that_is_down_for_a_while_costs_nobody_its_place() {
    let fleet = parting(3);
    let rank = fleet.rank(1);
    let tells = |wanted: &GroupEventKind| {
        until(format_args!("{wanted:?}"), || {
            let events = rank.group().events();
            events.iter().any(|event| event.what == *wanted)
        });
    };
    rank.hca.set_port(false);
    tells(&GroupEventKind::RailDown { rail: 0 });
    let parted = || {
        let view = fleet.rank(0).group().view();
        view.is_some_and(|view| view.parted_from(1) == [0, 2])
    };
    until("the others part from it", parted);
    rank.hca.set_port(true);
    tells(&GroupEventKind::RailUp { rail: 0 });
    let united = |rank: &Rank| {
        let view = rank.group().view();
        view.is_some_and(|view| view.parted.is_empty() && view.epoch > 1)
    };
    fleet.until("all are united", united);
    let epoch = rank.group().view().map_or(0, |view| view.epoch);
    fleet.until_whole(epoch, 3);
    assert!(fleet.ranks.iter().all(|rank| rank.members() == [0, 1, 2]));
    fleet.end();
}

#[test]
fn what_the_host_suspects_reaches_waiting_kernels_long_before_their_deadline() {
    let config = CONFIG.with_error_bound(Some(DEADLINE));
    let fleet = Fleet::new(3, DEADLINE, config);
    fleet.until_whole(1, 3);
    // Ranks 0 and 1 wait for rank 2, which makes no call.
    let waiting = fleet.rank(0);
    let call = waits_for(waiting, fleet.rank(2));
    drop(waiting.group().events());
    let since = Instant::now();
    for rank in [0, 1] {
        let group = fleet.rank(rank).group();
        group.suspect(2, "so says the test").unwrap();
    }
    ended_early(waiting, call);
    let ended = since.elapsed();
    let events = waiting.group().events();
    let masked = |event: &&warpverbs::membership::GroupEvent| matches!(&event.what, GroupEventKind::Masked { ranks } if *ranks == [2]);
    let masked = events.iter().find(masked).expect("kernels are told").at - since;
    eprintln!(
        "a suspicion: word written in {masked:.1?}, the call that waited ended in {ended:.1?}"
    );
    fleet.rank(2).pause(false);
    fleet.end();
}
