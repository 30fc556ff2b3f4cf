//! Ranks die under running calls: the others lose one bounded wait and go on. The failure windows of a change, one by one.

use std::time::Duration;

use warpverbs::membership::{GroupConfig, GroupState};

use crate::fleet::{Fleet, LONG, Point};

/// So long that kernels do not give up a rank which the machine runs late.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// A rank whose lease runs out because the machine is busy stays: its words arrive.
pub(crate) const CONFIG: GroupConfig = GroupConfig::new()
    .with_lease_ttl(Duration::from_secs(3))
    .with_error_bound(Some(Duration::from_millis(500)));

fn serving(ranks: u32) -> Fleet {
    let fleet = Fleet::new(ranks, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    fleet
}

/// One of `ranks` dies at `point` of a call.
fn dies(ranks: u32, victim: u32, point: Point) {
    let mut fleet = serving(ranks);
    let mut dead = fleet.remove(victim);
    dead.die_at(point);
    let rest: Vec<u32> = (0..ranks).filter(|slot| *slot != victim).collect();
    fleet.until_members(2, &rest);
    fleet.until_whole(2, 3);
    fleet.dead.push(dead);
    fleet.end();
}

#[test]
fn window_a_a_rank_dies_before_its_dispatch() {
    dies(4, 2, Point::Send);
}

#[test]
fn window_a_a_rank_dies_when_its_rows_and_words_are_sent() {
    dies(3, 0, Point::Receive);
}

#[test]
fn window_b_a_rank_dies_before_it_sends_back() {
    dies(3, 2, Point::SendBack);
}

#[test]
fn window_b_a_rank_dies_when_it_has_sent_back() {
    dies(3, 1, Point::ReceiveBack);
}

#[test]
fn window_c_a_slow_rank_is_dropped_only_at_the_stall_bound_and_learns_it() {
    let deadline = Duration::from_secs(2);
    // From the first suspicion to the next call of rank 1 less time passes, however busy the machine is.
    let config = CONFIG.with_stall_bound(Some(10 * deadline));
    let mut fleet = Fleet::new(3, deadline, config);
    fleet.until_whole(1, 3);
    fleet.rank(1).pause(true);
    // It is given up by kernels, call after call, and still a member.
    fleet.until("rank 1 is a suspect", |rank| {
        rank.slot == 1 || rank.moe.suspected() == [1]
    });
    fleet.rank(1).pause(false);
    fleet.until("rank 1 is none any more", |rank| {
        rank.moe.suspected().is_empty() && rank.members() == [0, 1, 2]
    });
    // Now for longer than the stall bound.
    fleet.rank(1).pause(true);
    let slow = fleet.remove(1);
    fleet.until_members(2, &[0, 2]);
    slow.group().wait(GroupState::Expelled, LONG).unwrap();
    slow.pause(false);
    fleet.until_whole(2, 3);
    // What it still calls ends at once, by itself.
    let calls = slow.calls().len();
    let start = std::time::Instant::now();
    while slow.calls().len() < calls + 5 {
        slow.check();
        assert!(start.elapsed() < LONG, "its calls do not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(slow.calls().last().unwrap().seen.is_empty());
    fleet.dead.push(slow);
    fleet.end();
}

#[test]
fn window_d_a_second_rank_dies_while_the_first_is_being_dropped() {
    let mut fleet = serving(4);
    let mut first = fleet.remove(3);
    let mut second = fleet.remove(0);
    first.die_at(Point::Send);
    // As soon as a rank has asked for the first change.
    let start = std::time::Instant::now();
    while second.group().state() == GroupState::Serving && second.members().len() == 4 {
        assert!(start.elapsed() < LONG, "no change");
        std::thread::yield_now();
    }
    second.hca.set_port(false);
    second.group = None;
    fleet.until_members(2, &[1, 2]);
    fleet.until_whole(2, 3);
    fleet.dead.extend([first, second]);
    fleet.end();
}

#[test]
fn window_f_a_rank_that_is_taken_for_dead_and_still_sends_changes_nothing() {
    let mut fleet = serving(3);
    let mut hung = fleet.remove(1);
    // Its host threads are gone, its kernels and its HCA are not.
    hung.group = None;
    fleet.until_members(2, &[0, 2]);
    fleet.until_whole(2, 5);
    for rank in &fleet.ranks {
        let calls = rank.calls();
        let late = calls.iter().filter(|call| call.epoch >= 2);
        assert!(late.clone().count() > 0);
        for call in late {
            assert!(!call.seen.contains(&1), "{}", call.report);
        }
    }
    fleet.dead.push(hung);
    fleet.end();
}

#[test]
fn calls_go_on_without_the_store_and_a_dead_rank_is_dropped_afterwards() {
    let mut fleet = serving(4);
    fleet.outage.set(true);
    // The store is away for so long that all leases run out.
    std::thread::sleep(CONFIG.lease_ttl + Duration::from_millis(500));
    let before: Vec<usize> = fleet.ranks.iter().map(|rank| rank.calls().len()).collect();
    fleet.until("it goes on", |rank| {
        rank.calls().len() >= before[rank.slot as usize] + 3 && rank.members().len() == 4
    });
    let mut dead = fleet.remove(1);
    dead.die_at(Point::Send);
    // The store stays away for half a second more. The ranks drop no rank before it is back, however long that takes.
    std::thread::sleep(Duration::from_millis(500));
    for rank in &fleet.ranks {
        assert_eq!(rank.members(), [0, 1, 2, 3]);
    }
    fleet.outage.set(false);
    fleet.until_members(2, &[0, 2, 3]);
    fleet.until_whole(2, 3);
    fleet.dead.push(dead);
    fleet.end();
}

#[test]
fn a_rank_that_leaves_costs_no_rank_a_token() {
    let mut fleet = serving(3);
    let leaver = fleet.remove(1);
    leaver.group().leave(LONG).unwrap();
    assert_eq!(leaver.group().state(), GroupState::Left);
    fleet.until_members(2, &[0, 2]);
    fleet.until_whole(2, 3);
    let first = fleet.rank(0).group().view().unwrap().first;
    for rank in fleet.ranks.iter().chain([&leaver]) {
        for call in rank.calls() {
            let all: &[u32] = match (call.number < first, rank.slot) {
                (true, _) => &[0, 1, 2],
                (false, 1) => &[],
                (false, _) => &[0, 2],
            };
            let whole = call.report.is_complete() || all.is_empty();
            assert!(
                call.seen == all && whole,
                "rank {}, view 2 from call {first} on: {} sees {:?}; {}",
                rank.slot,
                call.report,
                call.seen,
                rank.story()
            );
        }
        let last = |call: &crate::fleet::Call| call.number + 1 == first;
        assert!(rank.calls().iter().any(last), "rank {}", rank.slot);
    }
    fleet.dead.push(leaver);
    fleet.end();
}
