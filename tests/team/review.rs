//! What the published review of Mooncake's rejoin change found wrong in Mooncake, and how ranks come here.

use std::sync::Arc;

use softhca::FailCommand;
use warpverbs::team::{Queues, RankSet, TeamError};

use crate::fleet::DrivenFleet;
use crate::rank::{Rank, setup};
use test_support::fleet::Hcas;

/// The next command of this kind, the `nth`, is refused.
fn refuse(hcas: &Hcas, rank: u32, opcode: u16, nth: u32) {
    hcas.of(rank)[0].fail_command(FailCommand {
        opcode: Some(opcode),
        nth,
        status: 0x8,
        syndrome: 0x00ab_cdef,
    });
}

#[test]
fn a_rank_that_was_half_initialised_is_taken_down_and_comes_again() {
    let mut setup = setup(3);
    // Named, so that a refusal is no reason to take host memory.
    setup.team.modes.queues = Some(Queues::Device);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    let mut generation = 0;
    // CREATE_CQ and CREATE_QP: of the QP that is tried, and of the last of the four; RST2INIT_QP: of the first and the last.
    for (opcode, last) in [(0x400, 5), (0x500, 5), (0x502, 4)] {
        for nth in [1, last] {
            generation += 1;
            refuse(&hcas, 2, opcode, nth);
            let join = |fleet: &DrivenFleet<'_>, generation| {
                let config = fleet.joining(2, generation);
                Rank::alone(config, hcas.of(2), Arc::clone(&fleet.store)).map(drop)
            };
            let error = join(&fleet, generation).unwrap_err().to_string();
            assert!(
                error.contains("syndrome 0x00abcdef"),
                "{opcode:#x}: {error}"
            );
            let live = hcas.of(2)[0].live_objects();
            assert_eq!(live.total(), 0, "{opcode:#x}, {nth}: {live:?}");
            // Its generation is used up, and the members have seen nothing of it.
            let error = join(&fleet, generation).unwrap_err();
            assert!(matches!(error, TeamError::RankTaken { rank: 2 }), "{error}");
            assert_eq!(fleet.rank(0).team.peer_generation(2).unwrap(), 0);
        }
    }
    fleet.come(2, generation + 1);
    fleet.connect(2);
    fleet.open(2);
    fleet.talk_all();
    drop(fleet);
    hcas.check();
}

#[test]
fn qps_that_were_connected_in_part_are_replaced_whole() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    let mut generation = 1;
    // RST2INIT, INIT2RTR, RTR2RTS at the rank that stays: the first QP has gone on, the second has not. Then the next one comes.
    for opcode in [0x502, 0x503, 0x504] {
        generation += 2;
        fleet.kill(1);
        fleet.fail(1);
        fleet.come(1, generation - 1);
        refuse(&hcas, 0, opcode, 2);
        fleet.connect_pairs(&[(0, 1)]).unwrap_err();
        fleet.kill(1);
        fleet.come(1, generation);
        fleet.connect(1);
        fleet.open(1);
        fleet.talk(0, 1);
    }
    drop(fleet);
    hcas.check();
}

#[test]
fn first_comers_and_those_that_come_again_end_in_the_same_state() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    // By founding, into an empty place, and as a successor.
    let founded = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    let state = |fleet: &DrivenFleet<'_>, generation| {
        let team = &fleet.rank(0).team;
        let report = team.qp_status(1, 0).unwrap();
        let entry = fleet.entry(0, 1, 0);
        assert_eq!(entry.base, fleet.rank(1).window.base);
        assert_eq!(team.peer_generation(1).unwrap(), generation);
        fleet.talk(0, 1);
        (
            report.hca.state,
            report.status,
            team.is_closed(1).unwrap(),
            team.guards(1).unwrap(),
        )
    };
    let first = state(&founded, 1);
    drop(founded);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(1));
    fleet.come(1, 7);
    fleet.connect(1);
    fleet.open(1);
    assert_eq!(state(&fleet, 7), first);
    fleet.replace(1, 8);
    assert_eq!(state(&fleet, 8), first);
    drop(fleet);
    hcas.check();
}

#[test]
fn all_ranks_restart_at_once_and_connect_with_each_other() {
    let setup = setup(4);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(4));
    let all: Vec<(u32, u32)> = (0..4).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
    for generation in 2..=3 {
        (0..4).for_each(|rank| fleet.kill(rank));
        // The first rank to come finds no rank to ask.
        (0..4).for_each(|rank| fleet.come(rank, generation));
        fleet.connect_pairs(&all).unwrap();
        (0..4).for_each(|rank| fleet.open(rank));
        fleet.talk_all();
    }
    drop(fleet);
    hcas.check();
}

#[test]
fn old_and_new_ranks_and_those_of_empty_places_connect_together() {
    let setup = setup(5);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(4));
    for rank in [1, 3] {
        fleet.kill(rank);
    }
    for rank in [0, 2] {
        fleet.rank(rank).team.fail_peer(1).unwrap();
        fleet.rank(rank).team.fail_peer(3).unwrap();
    }
    for (rank, generation) in [(1, 2), (3, 5), (4, 1)] {
        fleet.come(rank, generation);
    }
    // In the worst order: the newcomers among themselves first.
    fleet
        .connect_pairs(&[
            (3, 1),
            (1, 4),
            (4, 3),
            (1, 0),
            (2, 3),
            (4, 0),
            (2, 4),
            (3, 0),
            (1, 2),
        ])
        .unwrap();
    (0..5).for_each(|rank| fleet.open(rank));
    fleet.talk_all();
    assert_eq!(fleet.rank(0).qp(2, 0).life, 0);
    drop(fleet);
    hcas.check();
}
