//! HCAs that fail: which rank goes, and that waiting kernels hear of it.

use std::time::{Duration, Instant};

use test_support::limits::{HANG, until};
use warpverbs::membership::{GroupConfig, GroupEventKind, GroupState, GroupView};

use crate::deaths::CONFIG;
use crate::fleet::{Fleet, LONG, Plan, Rank};

/// No call ends by it before the test is taken for hung: what ends a call is what the host has said.
const DEADLINE: Duration = HANG.saturating_mul(2);

const PARTING_STALL: Duration = Duration::from_secs(8);

/// Ranks with several rails: their bounds are short enough to be waited for.
const RAILS_DEADLINE: Duration = Duration::from_secs(2);
const RAILS_LEASE: Duration = Duration::from_secs(2);
const RAILS_STALL: Duration = Duration::from_secs(6);
const RAILS_CONFIG: GroupConfig = CONFIG
    .with_lease_ttl(RAILS_LEASE)
    .with_stall_bound(Some(RAILS_STALL));

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

/// Ranks that lose contact part at once, and the one that no rank reaches goes after the stall bound.
fn parting(ranks: u32) -> Fleet {
    let config = CONFIG
        .with_error_bound(Some(Duration::ZERO))
        .with_stall_bound(Some(PARTING_STALL));
    let fleet = Fleet::new(ranks, PARTING_STALL / 2, config);
    fleet.until_whole(1, 3);
    fleet
}

#[test]
fn a_rank_without_a_nic_goes_even_with_the_lowest_slot_and_all_suspected() {
    let mut fleet = parting(4);
    let ill = fleet.remove(0);
    let since = Instant::now();
    ill.hca.set_port(false);
    fleet.until_members(2, &[1, 2, 3]);
    eprintln!(
        "a lost NIC: gone within {:.1?} (stall bound + 3 leases are {:?})",
        since.elapsed(),
        PARTING_STALL + 3 * CONFIG.lease_ttl
    );
    ill.group().wait(GroupState::Expelled, LONG).unwrap();
    let events = ill.group().events();
    let told = |what: &GroupEventKind| events.iter().any(|event| event.what == *what);
    assert!(told(&GroupEventKind::RailDown { rail: 0 }), "{events:#?}");
    fleet.until_whole(2, 3);
    fleet.dead.push(ill);
    fleet.join(0);
    fleet.until_members(3, &[0, 1, 2, 3]);
    fleet.until_whole(3, 3);
    fleet.end();
}

#[test]
fn a_rank_with_a_silent_nic_goes_and_not_the_first_to_find_that_out() {
    // No event reports it: pairs are found one by one, as QPs give up and kernels have waited, the lowest slot's first.
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
fn a_port_that_is_down_for_a_while_costs_no_rank_its_place() {
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

/// Ranks with four HCAs each.
fn four_rails(ranks: u32) -> Fleet {
    let fleet = Fleet::start(Plan {
        rails: 4,
        ..Plan::new(ranks, RAILS_DEADLINE, RAILS_CONFIG)
    });
    fleet.until_whole(1, 3);
    fleet
}

/// Sets the ports of these rails of `rank`.
fn set_ports(rank: &Rank, rails: &[usize], up: bool) {
    for rail in rails {
        rank.rails[*rail].set_port(up);
    }
}

/// Waits until no pair is parted in a view of at least `epoch`. That view.
fn until_united(fleet: &Fleet, epoch: u32) -> u32 {
    fleet.until("all are united", |rank| {
        let view = rank.group().view();
        view.is_some_and(|view| view.parted.is_empty() && view.epoch >= epoch)
    });
    let view = fleet.rank(0).group().view();
    view.map_or(0, |view| view.epoch)
}

/// Waits until a pair with `rank` is parted.
fn until_parted(fleet: &Fleet, rank: u32) {
    until(format_args!("a rank parts from rank {rank}"), || {
        let view = fleet.rank(0).group().view();
        view.is_some_and(|view| !view.parted_from(rank).is_empty())
    });
}

/// Each rank has had all of them in every view that it was given.
fn nobody_went(fleet: &Fleet) {
    let all: Vec<u32> = fleet.ranks.iter().map(|rank| rank.slot).collect();
    for rank in &fleet.ranks {
        for event in rank.group().events() {
            if let GroupEventKind::Viewed(view) = event.what {
                let members: Vec<u32> = view.members.into_keys().collect();
                assert_eq!(members, all, "rank {}", rank.slot);
            }
        }
    }
}

#[test]
fn one_dead_rail_of_four_costs_no_rank_its_place_and_tokens_use_the_rest() {
    let fleet = four_rails(4);
    let since = Instant::now();
    set_ports(fleet.rank(1), &[2], false);
    until_parted(&fleet, 1);
    let epoch = until_united(&fleet, 2);
    for other in [0, 2, 3] {
        let carriers = fleet.rank(other).moe.team().carriers(1).unwrap();
        assert!(!carriers.contains(&2), "{carriers:?}");
        assert_eq!(fleet.rank(1).moe.team().carriers(other).unwrap(), carriers);
    }
    // Whole calls, by the remaining rails.
    fleet.until_whole(epoch, 8);
    until(
        "the rail is down for longer than any bound of an expulsion",
        || {
            fleet.ranks.iter().for_each(Rank::check);
            since.elapsed() > RAILS_STALL + 3 * RAILS_LEASE
        },
    );
    fleet.until_members(epoch, &[0, 1, 2, 3]);
    let epoch = until_united(&fleet, epoch);
    let events = fleet.rank(0).group().events();
    let told = events.iter().any(|event| {
        event.what
            == GroupEventKind::GoesRound {
                rank: 1,
                rails: vec![2],
            }
    });
    assert!(told, "{events:#?}");
    // It is used again when the pair is connected anew.
    set_ports(fleet.rank(1), &[2], true);
    fleet
        .rank(0)
        .group()
        .suspect(1, "so says the test")
        .unwrap();
    until_parted(&fleet, 1);
    let epoch = until_united(&fleet, epoch + 1);
    let own = [0, 1, 2, 3];
    assert_eq!(fleet.rank(0).moe.team().carriers(1).unwrap(), own);
    assert_eq!(fleet.rank(1).moe.team().carriers(0).unwrap(), own);
    fleet.until_whole(epoch, 3);
    nobody_went(&fleet);
    fleet.end();
}

#[test]
fn two_ranks_that_have_no_rail_in_common_part_and_all_others_go_round() {
    let fleet = four_rails(4);
    set_ports(fleet.rank(1), &[0, 1], false);
    set_ports(fleet.rank(2), &[2, 3], false);
    let between = |view: &GroupView| view.parted == [(1, 2)];
    fleet.until("the two alone are parted", |rank| {
        rank.group().view().is_some_and(|view| between(&view))
    });
    // A pair that has lost a rail learns of it by its own words, maybe after that view.
    fleet.until("all others go round what is down", |rank| {
        let team = rank.moe.team();
        let goes_round = |peer: u32, out: [u32; 2]| {
            let carriers = team.carriers(peer).unwrap();
            !carriers.iter().any(|rail| out.contains(rail))
        };
        [1, 2].contains(&team.rank()) || goes_round(1, [0, 1]) && goes_round(2, [2, 3])
    });
    set_ports(fleet.rank(1), &[0, 1], true);
    set_ports(fleet.rank(2), &[2, 3], true);
    let epoch = until_united(&fleet, 2);
    fleet.until_whole(epoch, 3);
    nobody_went(&fleet);
    fleet.end();
}

#[test]
fn a_rank_that_has_one_rail_left_of_four_stays_and_one_that_has_none_goes() {
    let mut fleet = four_rails(4);
    set_ports(fleet.rank(0), &[0, 1, 3], false);
    until_parted(&fleet, 0);
    let epoch = until_united(&fleet, 2);
    assert_eq!(fleet.rank(3).moe.team().carriers(0).unwrap(), [2; 4]);
    fleet.until_whole(epoch, 8);
    nobody_went(&fleet);
    let ill = fleet.remove(0);
    set_ports(&ill, &[2], false);
    fleet.until_members(epoch + 1, &[1, 2, 3]);
    ill.group().wait(GroupState::Expelled, LONG).unwrap();
    let epoch = fleet.rank(1).group().view().map_or(0, |view| view.epoch);
    fleet.until_whole(epoch, 3);
    fleet.dead.push(ill);
    fleet.end();
}

#[test]
fn a_suspicion_of_the_host_reaches_waiting_kernels_before_their_deadline() {
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
    let masked = events.iter().find(masked).expect("kernels get the mask").at - since;
    eprintln!(
        "a suspicion: word written in {masked:.1?}, the call that waited ended in {ended:.1?}"
    );
    fleet.rank(2).pause(false);
    fleet.end();
}
