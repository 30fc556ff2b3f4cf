//! Replacement of one peer: what it changes and what it does not, first connects, several at once, deaths in the middle.

use std::time::{Duration, Instant};

use softhca::FailCommand;
use warpverbs::abi::{RAIL_SHIFT, Status};
use warpverbs::team::{RankSet, TeamError};
use warpverbs::verbs::QpState;

use crate::fleet::DrivenFleet;
use crate::rank::{Put, WORDS, seed, setup, until};
use test_support::fleet::Hcas;

#[test]
fn a_peer_that_died_is_replaced_and_nothing_of_the_others_moves() {
    for (rails, qps) in [(1, 1), (1, 4), (1, 8), (2, 4), (2, 8)] {
        let mut setup = setup(3);
        setup.rails = rails;
        setup.team.qps_per_peer = qps;
        let hcas = Hcas::new(&setup);
        let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(3));
        fleet.talk_all();
        let of_2 = |fleet: &DrivenFleet<'_>| [0, 1].map(|rank| fleet.captured(rank, 2));
        let others = |fleet: &DrivenFleet<'_>| (fleet.captured(0, 1), fleet.captured(1, 0));
        let (captured, untouched) = (of_2(&fleet), others(&fleet));
        let entries = [0, 1].map(|rank| fleet.entry(rank, 1 - rank, 0));
        for generation in 2..=4 {
            let keys = [0, 1].map(|rank| fleet.entry(rank, 2, 0).rkey_be);
            fleet.kill(2);
            let usage = |rank: u32| {
                let team = &fleet.rank(rank).team;
                (team.commands(), team.bytes_allocated())
            };
            let before = [usage(0), usage(1)];
            fleet.fail(2);
            assert!(!fleet.rank(0).team.is_connected(2).unwrap());
            let failed = fleet.rank(0).team.commands() - before[0].0;
            assert_eq!(failed, u64::from(qps), "one command for each QP");
            fleet.come(2, generation);
            fleet.connect(2);
            for (rank, before) in [0, 1].into_iter().zip(before) {
                let team = &fleet.rank(rank).team;
                let commands = team.commands() - before.0;
                assert!(
                    commands <= u64::from(5 * qps + 8),
                    "{commands} commands at rank {rank} with {rails} rails, {qps} QPs"
                );
                assert_eq!(team.bytes_allocated(), before.1, "rank {rank}");
                assert!(team.is_connected(2).unwrap() && team.is_closed(2).unwrap());
                assert_eq!(team.peer_generation(2).unwrap(), generation);
                let entry = fleet.entry(rank, 2, 0);
                let life = entry.rail_life & ((1 << RAIL_SHIFT) - 1);
                assert_eq!(life, generation - 1);
                assert_ne!(entry.rkey_be, keys[rank as usize]);
                assert_eq!(entry.base, fleet.rank(2).window.base);
            }
            fleet.open(2);
            fleet.talk_all();
            assert_eq!(
                (of_2(&fleet), others(&fleet)),
                (captured.clone(), untouched.clone())
            );
            let now = [0, 1].map(|rank| fleet.entry(rank, 1 - rank, 0));
            assert_eq!(bytemuck::bytes_of(&now), bytemuck::bytes_of(&entries));
        }
        drop(fleet);
        hcas.check();
    }
}

#[test]
fn a_rank_comes_into_a_place_that_no_rank_ever_had() {
    let setup = setup(5);
    let hcas = Hcas::new(&setup);
    let founders: RankSet = [0, 3].into_iter().collect();
    let mut fleet = DrivenFleet::found(&setup, &hcas, founders);
    fleet.talk_all();
    for rank in [1, 4] {
        let team = &fleet.rank(0).team;
        assert!(team.is_closed(rank).unwrap() && !team.is_connected(rank).unwrap());
        assert_eq!(team.peer_generation(rank).unwrap(), 0);
        let error = team.open_peer(rank).unwrap_err();
        assert!(matches!(error, TeamError::NotConnected { .. }), "{error}");
        let (commands, bytes) = (team.commands(), team.bytes_allocated());
        fleet.come(rank, 1);
        fleet.connect(rank);
        fleet.open(rank);
        let team = &fleet.rank(0).team;
        // To Rtr and to Rts: no rank ever got the QPs.
        assert_eq!(team.commands() - commands, 2 * 2);
        assert_eq!(team.bytes_allocated(), bytes);
        fleet.talk_all();
    }
    fleet.replace(4, 2);
    fleet.replace(3, 2);
    fleet.talk_all();
    // Ranks that came later met each other in the same way as founders and they.
    assert_eq!(fleet.rank(4).team.peer_generation(1).unwrap(), 1);
    assert_eq!(fleet.rank(1).team.peer_generation(3).unwrap(), 2);
    drop(fleet);
    hcas.check();
}

#[test]
fn traffic_between_the_others_goes_on_while_a_peer_is_replaced() {
    let seed = seed();
    let setup = setup(3);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(3));
    // A kernel at rank 0 puts to rank 1 all the time, however long the host takes.
    let load = Put {
        seed,
        threads: 2,
        rounds: u32::MAX,
        ..Put::new(1, WORDS / 8)
    };
    let mut longest = Duration::ZERO;
    for generation in 2..=4 {
        fleet.kill(2);
        fleet.fail(2);
        fleet.come(2, generation);
        let posted = || fleet.rank(0).team.counters(1, 0).unwrap().completed;
        let running = fleet.rank(0).put(&load);
        let first = posted();
        until("words are put", || posted() > first);
        let (mut last, mut since) = (posted(), Instant::now());
        let mut moves = 0;
        for (from, to) in [(0, 2), (1, 2), (2, 0), (2, 1), (0, 2), (1, 2)] {
            match fleet.connect_end(from, to) {
                Ok(()) | Err(TeamError::Absent { .. }) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
            until("words are put during the replacement", || posted() > last);
            longest = longest.max(since.elapsed());
            (last, since, moves) = (posted(), Instant::now(), moves + 1);
        }
        assert_eq!(moves, 6);
        assert!(fleet.rank(0).team.is_connected(2).unwrap(), "seed {seed}");
        running.stop();
        for seen in running.finish() {
            assert_eq!(
                (seen.status, seen.failed, seen.closed),
                (Status::OK, 0, 0),
                "seed {seed}"
            );
        }
        fleet.open(2);
        fleet.talk_all();
    }
    println!("longest gap in the traffic between two others: {longest:?}");
    drop(fleet);
    hcas.check();
}

#[test]
fn several_peers_that_died_at_once_come_back_at_once() {
    let setup = setup(4);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(4));
    for generation in 2..=3 {
        for rank in [1, 2] {
            fleet.kill(rank);
            fleet.fail(rank);
        }
        fleet.come(1, generation);
        fleet.come(2, generation);
        fleet
            .connect_pairs(&[(0, 1), (0, 2), (2, 1), (3, 1), (2, 3)])
            .unwrap();
        fleet.open(1);
        fleet.open(2);
        fleet.talk_all();
    }
    drop(fleet);
    hcas.check();
}

#[test]
fn a_peer_that_dies_at_any_step_of_its_return_is_replaced_by_the_next() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    let captured = fleet.captured(0, 1);
    let mut generation = 1;
    // Calls of the survivor and of the one that comes back, before that one dies; and whether the survivor gives it up then.
    let steps: [&[u32]; 6] = [&[], &[0], &[1], &[0, 1], &[1, 0], &[0, 1, 0]];
    for calls in steps {
        for fails in [false, true] {
            generation += 1;
            fleet.kill(1);
            fleet.fail(1);
            fleet.come(1, generation);
            for &from in calls {
                match fleet.connect_end(from, 1 - from) {
                    Ok(()) | Err(TeamError::Absent { .. }) => {}
                    Err(error) => panic!("{calls:?}: {error}"),
                }
            }
            fleet.kill(1);
            if fails {
                fleet.rank(0).team.fail_peer(1).unwrap();
            }
            generation += 1;
            fleet.come(1, generation);
            fleet.connect(1);
            fleet.open(1);
            fleet.talk(0, 1);
            assert_eq!(fleet.captured(0, 1), captured, "{calls:?}");
        }
    }
    drop(fleet);
    hcas.check();
}

#[test]
fn a_generation_that_was_given_up_is_over() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    let connect = |fleet: &DrivenFleet<'_>, generation| {
        fleet
            .rank(0)
            .team
            .connect_peer(1, generation, Duration::ZERO)
    };
    // Connected and well: nothing to do.
    connect(&fleet, 1).unwrap();
    let over = |result: Result<(), TeamError>, asked, wanted| match result.unwrap_err() {
        TeamError::Generation {
            peer,
            generation,
            least,
        } => assert_eq!((peer, generation, least), (1, asked, wanted)),
        error => panic!("{error}"),
    };
    over(connect(&fleet, 0), 0, 1);
    fleet.rank(0).team.fail_peer(1).unwrap();
    over(connect(&fleet, 1), 1, 2);
    fleet.replace(1, 3);
    over(connect(&fleet, 2), 2, 3);
    // Given up before it was connected.
    fleet.kill(1);
    fleet.fail(1);
    fleet.come(1, 4);
    assert!(matches!(connect(&fleet, 4), Err(TeamError::Absent { .. })));
    over(connect(&fleet, 3), 3, 4);
    fleet.rank(0).team.fail_peer(1).unwrap();
    over(connect(&fleet, 4), 4, 5);
    // A recovery is for connected ranks.
    let error = fleet.rank(0).team.recover(1).unwrap_err();
    assert!(
        matches!(error, TeamError::NotConnected { peer: 1 }),
        "{error}"
    );
    fleet.kill(1);
    fleet.come(1, 5);
    fleet.connect(1);
    fleet.open(1);
    fleet.talk(0, 1);
    drop(fleet);
    hcas.check();
}

#[test]
fn a_pair_that_was_replaced_recovers_like_any_other() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    fleet.replace(1, 2);
    for number in 1..=2 {
        std::thread::scope(|scope| {
            for rank in [0, 1] {
                let team = &fleet.rank(rank).team;
                scope.spawn(move || assert_eq!(team.recover(1 - rank).unwrap(), number));
            }
        });
        fleet.talk(0, 1);
    }
    // Rank 0 has been through the replacement, too.
    let lives = [0, 1].map(|rank| fleet.rank(rank).qp(1 - rank, 0).life);
    assert_eq!(lives, [3, 2]);
    fleet.replace(1, 3);
    fleet.talk(0, 1);
    drop(fleet);
    hcas.check();
}

#[test]
fn a_kernel_posting_in_the_grace_period_is_caught_and_no_entry_changes() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    fleet.kill(1);
    fleet.come(1, 2);
    let holding = fleet.rank(0).put(&Put {
        threads: 3,
        ..Put::hold(1)
    });
    let team = &fleet.rank(0).team;
    until("guards are counted", || team.guards(1).unwrap() == 3);
    let seen = || (fleet.entry(0, 1, 0), fleet.rank(0).qp(1, 0));
    let before = seen();
    for _ in 0..2 {
        let error = team
            .connect_peer(1, 2, Duration::from_millis(100))
            .unwrap_err();
        assert!(
            matches!(error, TeamError::Guarded { readers: 3, .. }),
            "{error}"
        );
        let (entry, qp) = seen();
        assert_eq!(bytemuck::bytes_of(&entry), bytemuck::bytes_of(&before.0));
        assert_eq!((qp.base, qp.life), (before.1.base, before.1.life));
        assert_eq!(team.qp_status(1, 0).unwrap().hca.state, QpState::ERR);
        assert!(team.is_closed(1).unwrap());
    }
    holding.stop();
    holding.finish();
    fleet.connect(1);
    fleet.open(1);
    fleet.talk(0, 1);
    drop(fleet);
    hcas.check();
}

#[test]
fn a_replacement_goes_on_when_called_again_after_a_refused_command() {
    let setup = setup(2);
    let hcas = Hcas::new(&setup);
    let mut fleet = DrivenFleet::found(&setup, &hcas, RankSet::first(2));
    let mut generation = 1;
    // 2ERR_QP, QUERY_QP, 2RST_QP, RST2INIT_QP, INIT2RTR_QP, RTR2RTS_QP; first and second QP; at the rank that stays and at the
    // newcomer.
    for opcode in [0x507, 0x50b, 0x50a, 0x502, 0x503, 0x504] {
        for (nth, at) in [(1, 0), (2, 0), (1, 1), (2, 1)] {
            let comes = matches!(opcode, 0x503 | 0x504);
            if at == 1 && !comes {
                continue;
            }
            generation += 1;
            fleet.kill(1);
            fleet.come(1, generation);
            hcas.of(at)[0].fail_command(FailCommand {
                opcode: Some(opcode),
                nth,
                status: 0x8,
                syndrome: 0x00ab_cdef,
            });
            let error = fleet.connect_pairs(&[(0, 1)]).unwrap_err().to_string();
            assert!(
                error.contains("syndrome 0x00abcdef"),
                "{opcode:#x}: {error}"
            );
            fleet.connect(1);
            fleet.open(1);
            fleet.talk(0, 1);
        }
    }
    drop(fleet);
    hcas.check();
}
