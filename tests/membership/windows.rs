//! Failure windows (g) and (h), graphs across changes, deaths of the rank that drives a change. Windows (a) to (d) and (f) are in
//! `deaths`; (e), QPs that cannot be made or connected, is in `src/membership/scenarios` and in `tests/team`.

use std::time::{Duration, Instant};

use softhca::FailCommand;
use warpverbs::membership::{GroupConfig, GroupEventKind, GroupState};

use crate::deaths::CONFIG;
use crate::fleet::{Fleet, LONG, Plan, Point};

const DEADLINE: Duration = Duration::from_secs(20);
/// Opcode of INIT2RTR_QP.
const TO_RTR: u16 = 0x503;
/// Leases outlive a store that one rank does not reach for a while.
const PATIENT: GroupConfig = CONFIG.with_lease_ttl(Duration::from_secs(15));

#[test]
fn window_g_no_rank_posts_to_a_newcomer_before_both_ends_receive() {
    let mut fleet = Fleet::of(3, 2, DEADLINE, CONFIG);
    fleet.until_whole(1, 3);
    // Rank 0 cannot go to Rtr for a while: the newcomer and rank 1 are long connected, and rank 0 is not.
    for nth in 1..=10 {
        fleet.rank(0).hca.fail_command(FailCommand {
            opcode: Some(TO_RTR),
            nth,
            status: 0x05,
            syndrome: 0,
        });
    }
    fleet.join(2);
    let refused = |fleet: &Fleet| {
        let events = fleet.rank(0).group().events();
        let not =
            |what: &GroupEventKind| matches!(what, GroupEventKind::NotConnected { rank: 2, .. });
        events.iter().filter(|event| not(&event.what)).count()
    };
    let (start, mut seen) = (Instant::now(), 0);
    while seen == 0 {
        seen += refused(&fleet);
        for rank in [0, 1] {
            let team = fleet.rank(rank).moe.team();
            let posted = team.counters(2, 0).unwrap().posted;
            let alone = fleet.rank(rank).members() == [0, 1];
            // The host's proof is one write on each QP.
            assert!(
                posted <= 1 || !alone,
                "rank {rank} posts to a rank that is no member"
            );
        }
        assert!(start.elapsed() < LONG, "nothing is refused");
    }
    // Both go on meanwhile, and it comes in when all are connected.
    fleet.until_members(2, &[0, 1, 2]);
    fleet.until_whole(2, 3);
    fleet.end();
}

#[test]
fn window_h_a_graph_is_replayed_across_a_change_that_one_rank_hears_late() {
    let mut fleet = Fleet::start(Plan {
        graphs: true,
        ..Plan::new(3, DEADLINE, PATIENT)
    });
    fleet.until_whole(1, 3);
    let mut dead = fleet.remove(2);
    // Rank 1 has closed its calls for the change, and then does not hear that it is done.
    dead.die_at(Point::Send);
    let start = Instant::now();
    while fleet.rank(1).group().state() == GroupState::Serving && fleet.rank(1).members().len() == 3
    {
        assert!(start.elapsed() < LONG, "no change");
        std::thread::yield_now();
    }
    fleet.rank(1).cut.set(true);
    // For 400 ms, in which the others are done as a rule.
    std::thread::sleep(Duration::from_millis(400));
    fleet.rank(1).cut.set(false);
    fleet.until_members(2, &[0, 1]);
    fleet.until_whole(2, 3);
    // The same graphs go on when the slot is taken again.
    fleet.dead.push(dead);
    fleet.join(2);
    fleet.until_members(3, &[0, 1, 2]);
    fleet.until_whole(3, 5);
    fleet.end();
}

#[test]
fn the_rank_that_proposed_a_change_dies_before_it_is_done() {
    let mut fleet = Fleet::new(4, DEADLINE, PATIENT);
    fleet.until_whole(1, 3);
    // Rank 3 does not hear of the proposal, so it stays open.
    fleet.rank(3).cut.set(true);
    let mut first = fleet.remove(2);
    first.die_at(Point::Send);
    let proposer = |fleet: &Fleet| {
        let proposed = |slot: &u32| {
            let events = fleet.rank(*slot).group().events();
            events
                .iter()
                .any(|event| matches!(event.what, GroupEventKind::Proposed { .. }))
        };
        [0, 1].into_iter().find(proposed)
    };
    let start = Instant::now();
    let slot = loop {
        if let Some(slot) = proposer(&fleet) {
            break slot;
        }
        assert!(start.elapsed() < LONG, "no rank proposes");
    };
    assert_eq!(
        fleet.rank(1 - slot).members(),
        [0, 1, 2, 3],
        "it is not done"
    );
    let mut proposer = fleet.remove(slot);
    // Its kernels end with its process.
    proposer.moe.control().board().set_refuse(true);
    proposer.hca.set_port(false);
    proposer.group = None;
    fleet.rank(3).cut.set(false);
    fleet.until_members(2, &[1 - slot, 3]);
    fleet.until_whole(2, 3);
    fleet.dead.extend([first, proposer]);
    fleet.end();
}

#[test]
fn both_ranks_restart_at_once_and_found_the_group_anew() {
    let config = CONFIG.with_found_bound(Some(Duration::from_secs(5)));
    let mut fleet = Fleet::new(2, Duration::from_secs(2), config);
    fleet.until_whole(1, 3);
    let mut dead: Vec<_> = [0, 1].map(|slot| fleet.remove(slot)).into();
    // Neither drops the other before it dies: both are gone before any rank looks.
    for rank in &mut dead {
        rank.cut.set(true);
    }
    for rank in &mut dead {
        rank.die_at(Point::Send);
    }
    fleet.dead.extend(dead);
    fleet.join(1);
    fleet.join(0);
    fleet.until_members(2, &[0, 1]);
    fleet.until_whole(2, 3);
    let view = fleet.rank(0).group().view().unwrap();
    assert_eq!(view.members, [(0, 2), (1, 2)].into());
    fleet.end();
}
