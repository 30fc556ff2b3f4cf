//! Ranks that come: the next generation of one that died, several at once, places that no rank had. The serving ranks go on with
//! the same QPs, buffers and handles.

use std::time::Duration;

use warpverbs::membership::{GroupEventKind, GroupState};

use crate::deaths::CONFIG;
use crate::fleet::{Fleet, LONG, Point, Rank};

const DEADLINE: Duration = Duration::from_secs(20);

/// Returns what kernels and graphs know of a rank's team and layer.
fn captured(rank: &Rank, slots: u32) -> Vec<u64> {
    let team = rank.moe.team();
    let mut all = vec![rank.moe.context_addr(), team.context_addr()];
    for peer in (0..slots).filter(|peer| *peer != rank.slot) {
        for qp in 0..team.config().qps_per_peer {
            all.push(team.qp_status(peer, qp).unwrap().qpn.into());
        }
    }
    all
}

#[test]
fn a_rank_dies_and_its_next_generation_serves_with_the_others() {
    let mut fleet = Fleet::new(4, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    let before: Vec<Vec<u64>> = fleet.ranks.iter().map(|rank| captured(rank, 4)).collect();
    let mut dead = fleet.remove(2);
    dead.die_at(Point::SendBack);
    fleet.dead.push(dead);
    fleet.until_members(2, &[0, 1, 3]);
    fleet.until_whole(2, 3);
    let commands: Vec<u64> = fleet
        .ranks
        .iter()
        .map(|rank| rank.moe.team().commands())
        .collect();
    let allocated: Vec<u64> = fleet
        .ranks
        .iter()
        .map(|rank| rank.moe.team().bytes_allocated())
        .collect();
    fleet.join(2);
    fleet.until_members(3, &[0, 1, 2, 3]);
    for (rank, (commands, allocated)) in fleet.ranks.iter().zip(commands.iter().zip(&allocated)) {
        if rank.slot == 2 {
            continue;
        }
        let team = rank.moe.team();
        let issued = team.commands() - commands;
        let most = 5 * u64::from(team.config().qps_per_peer) + 8;
        eprintln!("rank {}: {issued} commands", rank.slot);
        assert!(
            issued <= most,
            "rank {}: {issued} of {most} commands",
            rank.slot
        );
        assert_eq!(team.bytes_allocated(), *allocated, "rank {}", rank.slot);
        let events = rank.group().events();
        let fenced: Vec<_> = events
            .iter()
            .filter(|event| matches!(event.what, GroupEventKind::Fenced { .. }))
            .collect();
        assert_eq!(fenced.len(), 1, "{events:#?}");
    }
    fleet.until_whole(3, 5);
    for rank in fleet.ranks.iter().filter(|rank| rank.slot != 2) {
        let place = usize::try_from(rank.slot).unwrap();
        assert_eq!(captured(rank, 4), before[place], "rank {}", rank.slot);
    }
    fleet.end();
}

#[test]
fn two_die_and_come_back_at_once() {
    let mut fleet = Fleet::new(4, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    for slot in [0, 3] {
        let mut dead = fleet.remove(slot);
        dead.die_at(Point::Send);
        fleet.dead.push(dead);
    }
    fleet.until_members(2, &[1, 2]);
    fleet.join(3);
    fleet.join(0);
    fleet.until_members(3, &[0, 1, 2, 3]);
    fleet.until_whole(3, 3);
    fleet.end();
}

#[test]
fn places_that_no_rank_had_are_taken_while_calls_go_on() {
    let mut fleet = Fleet::of(4, 2, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    fleet.join(3);
    fleet.until_members(2, &[0, 1, 3]);
    fleet.join(2);
    fleet.until_members(3, &[0, 1, 2, 3]);
    fleet.until_whole(3, 3);
    // And one less again.
    let leaver = fleet.remove(1);
    leaver.group().leave(LONG).unwrap();
    fleet.until_members(4, &[0, 2, 3]);
    fleet.until_whole(4, 3);
    fleet.dead.push(leaver);
    fleet.end();
}

#[test]
fn a_rank_that_was_dropped_by_mistake_comes_back_with_a_new_generation() {
    // Its HCA goes on acknowledging, which others may take for a sign of life of it: then the stall bound ends its stay.
    let deadline = Duration::from_secs(2);
    let config = CONFIG.with_stall_bound(Some(10 * deadline));
    let mut fleet = Fleet::new(3, deadline, config);
    fleet.until_whole(1, 3);
    let dropped = fleet.remove(1);
    // The others take it for dead: it renews its lease no more, and makes no calls.
    dropped.rest();
    dropped.cut.set(true);
    fleet.until_members(2, &[0, 2]);
    dropped.cut.set(false);
    dropped.pause(false);
    dropped.group().wait(GroupState::Expelled, LONG).unwrap();
    fleet.dead.push(dropped);
    fleet.join(1);
    fleet.until_members(3, &[0, 1, 2]);
    let view = fleet.rank(1).group().view().unwrap();
    assert_eq!(view.members, [(0, 1), (1, 2), (2, 1)].into());
    fleet.until_whole(3, 3);
    fleet.end();
}

#[test]
fn a_newcomer_whose_gpu_has_too_little_memory_costs_the_others_nothing() {
    let mut fleet = Fleet::of(3, 2, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    let mut memory = 0;
    let mut refused = 0;
    // Each try gets as much as the one before it lacked, so that a later allocation is refused.
    while let Some(missing) = fleet.starts_with(2, memory) {
        fleet.until_whole(1, 1);
        memory += missing;
        refused += 1;
    }
    println!("{refused} allocations refused, the last below {memory} bytes");
    assert!(refused > 2, "{refused} allocations refused");
    for rank in &fleet.ranks {
        let view = rank.group().view().unwrap();
        assert_eq!((view.epoch, rank.members()), (1, vec![0, 1]));
    }
    fleet.join(2);
    fleet.until_members(2, &[0, 1, 2]);
    fleet.until_whole(2, 3);
    fleet.end();
}
