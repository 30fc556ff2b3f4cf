//! Recovery of the QPs to one peer: at rest, under load, step by step, after a failure at each step.

use std::time::{Duration, Instant};

use softhca::FailCommand;
use warpverbs::abi::{PeerEntry, RAIL_SHIFT, Status};
use warpverbs::team::TeamError;
use warpverbs::verbs::QpState;

use crate::rank::{PATIENCE, Put, Rank, WORDS, run, run_on, seed, setup, until};
use test_support::fleet::Hcas;

/// How long a recovery that comes to nothing tries.
const SHORT: Duration = Duration::from_millis(500);

/// Every entry of the peer table that is `peer`'s.
fn entry(rank: &Rank<'_>, peer: u32) -> PeerEntry {
    let at = rank.tables().peers.addr() + u64::from(peer) * size_of::<PeerEntry>() as u64;
    rank.read(at, 1)[0]
}

fn life_of(entry: &PeerEntry) -> u32 {
    entry.rail_life & ((1 << RAIL_SHIFT) - 1)
}

/// Returns whether more than `words` have been posted to `peer`, or cannot be any more: the other end has ended this life.
fn is_busy(rank: &Rank<'_>, peer: u32, words: u64) -> bool {
    let posted = rank.team.counters(peer, 0).unwrap().posted;
    let report = rank.team.qp_status(peer, 0).unwrap();
    posted > words || report.hca.state == QpState::ERR
}

#[test]
fn a_recovered_pair_works_with_new_indices_and_keeps_its_counters() {
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        let tables = rank.tables();
        let first = rank.put(&Put::new(peer, 20)).finish()[0];
        assert_eq!((first.status, first.done), (Status::OK, 20));
        let before = rank.team.counters(peer, 0).unwrap();
        assert_eq!((before.posted, before.completed), (20, 20));
        rank.sync();

        for life in 1..=3 {
            assert_eq!(rank.team.recover(peer).unwrap(), life);
            let context = rank.qp(peer, 0);
            let base = u64::from(life) << 16;
            assert_eq!(
                [context.base, context.resv, context.claim, context.cons],
                [base; 4]
            );
            assert_eq!(
                (context.life, context.peer, context.err),
                (life, peer, Status::OK)
            );
            assert_eq!(life_of(&entry(rank, peer)), life);
            assert_eq!(life_of(&entry(rank, rank.number())), 0);
            // What was posted and has completed is counted on, and the skipped indices are not.
            let now = rank.team.counters(peer, 0).unwrap();
            assert_eq!(
                (now.posted, now.completed),
                (20 * u64::from(life), 20 * u64::from(life))
            );
            let dst_word = WORDS / 2 + 64 * life;
            let put = Put {
                dst_word,
                ..Put::new(peer, 20)
            };
            let seen = rank.put(&put).finish()[0];
            assert_eq!((seen.status, seen.done, seen.life), (Status::OK, 20, life));
            assert_eq!(seen.ticket, base + 1);
            rank.sync();
            assert_eq!(rank.wrong_words(peer, dst_word, 20), Vec::<u32>::new());
        }
        let after = rank.tables();
        assert_eq!(bytemuck::bytes_of(&tables), bytemuck::bytes_of(&after));
    });
}

#[test]
fn a_pair_is_recovered_under_load_while_the_others_go_on() {
    let seed = seed();
    run(&setup(3), |rank| {
        let own = rank.number();
        // Ranks 0 and 1 recover each other three times; all put to both others all the time.
        let load = |peer: u32, count: u32| Put {
            dst_word: WORDS / 2 + own * 4096 + 2048 * (peer % 2),
            seed: seed ^ u64::from(own),
            each: 2,
            threads: 4,
            ..Put::new(peer, count)
        };
        let peers: Vec<u32> = (0..3).filter(|peer| *peer != own).collect();
        // One stream: a rank's two kernels run one after the other, so each rank loads one peer at a time.
        let steady = [2, 2, 0][own as usize];
        let recovers = own < 2;
        let running = rank.put(&load(if recovers { 1 - own } else { steady }, 400));
        if recovers {
            for life in 1..=3 {
                until("words are put, or the other end has begun", || {
                    is_busy(rank, 1 - own, u64::from(life) * 10)
                });
                assert_eq!(rank.team.recover(1 - own).unwrap(), life, "seed {seed}");
            }
        }
        let seen = running.finish();
        for seen in &seen {
            assert_eq!(
                (seen.status, seen.done),
                (Status::OK, 400),
                "seed {seed}: {seen:?}"
            );
            if !recovers {
                assert_eq!((seen.failed, seen.closed), (0, 0), "seed {seed}");
            }
        }
        let after = rank.put(&load(steady, 100)).finish();
        assert!(
            after
                .iter()
                .all(|seen| seen.status == Status::OK && seen.failed == 0)
        );
        rank.sync();
        for peer in peers {
            let untouched = own == 2 || peer == 2;
            let life = if untouched { 0 } else { 3 };
            assert_eq!(rank.qp(peer, 0).life, life);
            let report = rank.team.qp_status(peer, 1).unwrap();
            assert_eq!((report.life, report.hca.state), (life, QpState::RTS));
            assert_eq!(report.status, Status::OK);
        }
        if own < 2 {
            let from = 1 - own;
            let at = WORDS / 2 + from * 4096 + 2048 * (own % 2);
            assert_eq!(
                rank.wrong_words(from, at, 1600),
                Vec::<u32>::new(),
                "seed {seed}"
            );
        }
    });
}

#[test]
fn a_kernel_that_keeps_its_guard_is_named_and_the_next_call_goes_on() {
    let setup = setup(2);
    run(&setup, |rank| {
        let peer = 1 - rank.number();
        if rank.number() == 0 {
            let holding = rank.put(&Put {
                threads: 3,
                ..Put::hold(peer)
            });
            until("guards are counted", || {
                rank.team.guards(peer).unwrap() == 3
            });
            let start = Instant::now();
            let error = rank.team.recover_within(peer, SHORT).unwrap_err();
            let took = start.elapsed();
            println!("given up after {took:?}");
            assert!(took >= SHORT, "{took:?}");
            assert!(
                matches!(
                    error,
                    TeamError::Guarded {
                        peer: 1,
                        readers: 3,
                        ..
                    }
                ),
                "{error}"
            );
            assert!(
                error
                    .to_string()
                    .starts_with("rank 1 cannot be recovered: 3 guards of it are still held after"),
                "{error}"
            );
            assert!(rank.team.is_closed(peer).unwrap());
            holding.stop();
            holding.finish();
        }
        rank.sync();
        // Each call gives up after a short time, and the other end may come later: then it is called again, as a program would.
        let life = retry(rank, peer);
        assert_eq!(life, 1);
        assert!(!rank.team.is_closed(peer).unwrap());
        let seen = rank.put(&Put::new(peer, 8)).finish()[0];
        assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 8, 0));
    });
}

/// Recovers, however often the other end is late. That may be any number of times: only a hang ends it.
fn retry(rank: &Rank<'_>, peer: u32) -> u32 {
    let (start, mut late) = (Instant::now(), 0);
    loop {
        match rank.team.recover_within(peer, SHORT) {
            Ok(life) => {
                println!("rank {peer} was late {late} times");
                return life;
            }
            Err(TeamError::Absent { .. }) if start.elapsed() < PATIENCE => late += 1,
            Err(error) => panic!("rank {}: {error}", rank.number()),
        }
    }
}

#[test]
fn an_end_that_comes_late_finds_the_other_where_it_was() {
    let setup = setup(2);
    // Which rank gives up first, and whether it calls again before or after the other has tried alone, too.
    for (first, alone) in [(0, false), (1, false), (0, true), (1, true)] {
        run(&setup, |rank| {
            let peer = 1 - rank.number();
            if rank.number() == first {
                let error = rank
                    .team
                    .recover_within(peer, SHORT)
                    .unwrap_err()
                    .to_string();
                assert!(
                    error.starts_with(&format!("rank {peer} has not come within")),
                    "{error}"
                );
            }
            rank.sync();
            if alone && rank.number() != first {
                // The first end has published that its QPs are reset, so this end gets to Rtr, and waits in vain in that state.
                let error = rank
                    .team
                    .recover_within(peer, SHORT)
                    .unwrap_err()
                    .to_string();
                assert!(error.ends_with("(recover/0.1-1.1/1)"), "{error}");
                let state = rank.team.qp_status(peer, 0).unwrap().hca.state;
                assert_eq!(state, QpState::RTR);
            }
            rank.sync();
            assert_eq!(retry(rank, peer), 1, "first {first}, alone {alone}");
            rank.sync();
            let seen = rank.put(&Put::new(peer, 8)).finish()[0];
            assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 8, 0));
            rank.sync();
            assert_eq!(retry(rank, peer), 2);
        });
    }
}

#[test]
fn a_recovery_can_be_called_again_after_the_hca_refused_a_command() {
    // 2ERR_QP, 2RST_QP, RST2INIT_QP, INIT2RTR_QP, RTR2RTS_QP, QUERY_QP; first and second QP.
    for opcode in [0x507, 0x50a, 0x502, 0x503, 0x504, 0x50b] {
        for nth in [1, 2] {
            let setup = setup(2);
            let hcas = Hcas::new(&setup);
            run_on(&setup, &hcas, |rank| {
                let peer = 1 - rank.number();
                let seen = rank.put(&Put::new(peer, 4)).finish()[0];
                assert_eq!(seen.status, Status::OK);
                rank.sync();
                if rank.number() == 1 {
                    rank.hcas[0].fail_command(FailCommand {
                        opcode: Some(opcode),
                        nth,
                        status: 0x8,
                        syndrome: 0x00ab_cdef,
                    });
                    let error = loop {
                        match rank.team.recover_within(peer, 4 * SHORT) {
                            Err(TeamError::Absent { .. }) => {}
                            result => break result.unwrap_err().to_string(),
                        }
                    };
                    assert!(
                        error.contains("syndrome 0x00abcdef"),
                        "{opcode:#x}: {error}"
                    );
                }
                assert_eq!(retry(rank, peer), 1, "{opcode:#x}");
                rank.sync();
                let seen = rank.put(&Put::new(peer, 4)).finish()[0];
                assert_eq!((seen.status, seen.failed), (Status::OK, 0), "{opcode:#x}");
            });
            hcas.check();
        }
    }
}

#[test]
fn an_aborted_peer_is_healthy_and_works_again_when_the_abort_is_cleared() {
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        rank.team.abort_peer(peer).unwrap();
        let report = rank.team.qp_status(peer, 0).unwrap();
        assert_eq!(
            (report.aborted, report.status, report.hca.state),
            (true, Status::OK, QpState::RTS)
        );
        // The word is looked at before the deadline, which only ends the kernel after it.
        let put = Put {
            deadline: Duration::from_millis(500),
            ..Put::new(peer, 4)
        };
        let seen = rank.put(&put).finish()[0];
        assert_eq!((seen.failure, seen.done), (Status::ABORTED, 0));
        rank.team.clear_abort(peer).unwrap();
        let seen = rank.put(&Put::new(peer, 4)).finish()[0];
        assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 4, 0));
    });
}

#[test]
fn an_abort_outlives_a_recovery() {
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        rank.team.abort_peer(peer).unwrap();
        assert_eq!(rank.team.recover(peer).unwrap(), 1);
        assert!(rank.team.qp_status(peer, 0).unwrap().aborted);
        rank.team.clear_abort(peer).unwrap();
        let seen = rank.put(&Put::new(peer, 4)).finish()[0];
        assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 4, 0));
    });
}

#[test]
fn waits_of_a_peer_that_fails_end_at_once_with_aborted() {
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        // After the failure the kernel waits for the peer to be opened; the host orders its end meanwhile.
        let running = rank.put(&Put {
            threads: 4,
            deadline: PATIENCE,
            ..Put::new(peer, 4000)
        });
        until("words are put, or the other end has begun", || {
            is_busy(rank, peer, 20)
        });
        let start = Instant::now();
        rank.team.fail_peer(peer).unwrap();
        until("guards are dropped", || {
            rank.team.guards(peer).unwrap() == 0
        });
        println!("guards are dropped after {:?}", start.elapsed());
        let report = rank.team.qp_status(peer, 0).unwrap();
        assert_eq!(report.hca.state, QpState::ERR);
        assert_ne!(report.status, Status::OK);
        running.stop();
        assert_eq!(rank.team.recover(peer).unwrap(), 1);
        // The failure has ended the waits, not a deadline.
        for seen in running.finish() {
            let ends = [Status::ABORTED, Status::FLUSHED, Status::CQE_ERROR];
            assert!(seen.failed == 0 || ends.contains(&seen.failure), "{seen:?}");
        }
    });
}
