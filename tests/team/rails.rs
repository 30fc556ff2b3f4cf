//! Several HCAs per rank: which QP uses which, that bytes go over all of them, and that one dead rail is not the others.

use softhca::Hca;
use warpverbs::abi::{PEER_DIRECT, PeerEntry, RAIL_SHIFT, Status};
use warpverbs::verbs::QpState;

use crate::modes::exchange;
use crate::rank::{Put, Rank, WORDS, run, run_on, setup, until};
use test_support::fleet::{Hcas, Setup};

fn two_rails() -> Setup {
    let mut setup = setup(2);
    setup.rails = 2;
    setup.team.qps_per_peer = 4;
    setup
}

fn sent(hca: &Hca) -> u64 {
    hca.counters().bytes_sent
}

/// The entries of window 0: `[rail][rank]`.
fn entries(rank: &Rank<'_>) -> Vec<PeerEntry> {
    let tables = rank.tables();
    let count = (tables.rails * tables.max_ranks) as usize;
    rank.read(tables.peers.addr(), count)
}

#[test]
fn each_qp_sends_on_the_rail_of_its_number() {
    run(&two_rails(), |rank| {
        let peer = 1 - rank.number();
        assert_eq!((rank.team.rails(), rank.tables().rails), (2, 2));
        for qp in 0..4 {
            let before: Vec<u64> = rank.hcas.iter().map(|hca| sent(hca)).collect();
            let dst_word = WORDS / 2 + 100 * qp;
            let put = Put {
                qp,
                dst_word,
                ..Put::new(peer, 100)
            };
            let seen = rank.put(&put).finish()[0];
            assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 100, 0));
            assert_eq!(
                (rank.qp(peer, qp).rail, rank.qp(peer, qp).peer),
                (qp % 2, peer)
            );
            let after = rank.hcas.iter().map(|hca| sent(hca)).zip(&before);
            let bytes: Vec<u64> = after.map(|(after, before)| after - before).collect();
            let wanted = if qp % 2 == 0 { [800, 0] } else { [0, 800] };
            assert_eq!(bytes, wanted, "QP {qp}");
            rank.sync();
            assert_eq!(rank.wrong_words(peer, dst_word, 100), Vec::<u32>::new());
        }
        let table = entries(rank);
        for (place, entry) in (0u32..).zip(&table) {
            let word = entry.rail_life & !PEER_DIRECT;
            assert_eq!(word >> RAIL_SHIFT, place / 2);
            assert_eq!(entry.base, table[place as usize % 2].base);
        }
        assert_ne!(table[peer as usize].rkey_be, 0);
    });
}

#[test]
fn a_layer_uses_all_rails() {
    let setup = two_rails();
    let hcas = Hcas::new(&setup);
    run_on(&setup, &hcas, |rank| exchange(rank, 4));
    for hca in hcas.all() {
        assert!(sent(hca) > 0, "{}", hca.name());
    }
    hcas.check();
}

#[test]
fn a_rail_that_goes_down_takes_its_qps_with_it_and_no_others() {
    let mut setup = two_rails();
    setup.team.path.ack_timeout = Some(14);
    let hcas = Hcas::new(&setup);
    run_on(&setup, &hcas, |rank| {
        let peer = 1 - rank.number();
        assert!(rank.team.failing().is_empty(), "no kernel has found one");
        if rank.number() == 0 {
            rank.hcas[1].set_port(false);
            let put = Put {
                qp: 1,
                ..Put::new(peer, 4)
            };
            let running = rank.put(&put);
            // The word is for both ranks of this team: 64 peers share one.
            until("a kernel finds the QP failed", || {
                rank.team.failing() == [0, 1]
            });
            // It would wait for a recovery.
            running.stop();
            let seen = running.finish()[0];
            assert_eq!((seen.done, seen.failed), (0, 1));
            assert_eq!(seen.failure, Status::CQE_ERROR);
            assert!(rank.team.failing().is_empty(), "taken");
            let states = (0..4).map(|qp| rank.team.qp_status(peer, qp).unwrap().hca.state);
            let states: Vec<QpState> = states.collect();
            let (up, down) = (QpState::RTS, QpState::ERR);
            // QP 3 was not used, so it has not noticed.
            assert_eq!(states, [up, down, up, up]);
            let report = rank.team.qp_status(peer, 1).unwrap();
            assert_eq!(report.syndrome & 0xff, 0x15, "{report:?}");
            for qp in [0, 2] {
                let put = Put {
                    qp,
                    ..Put::new(peer, 50)
                };
                let seen = rank.put(&put).finish()[0];
                assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 50, 0));
            }
            rank.hcas[1].set_port(true);
        }
        rank.sync();
        assert_eq!(rank.team.recover(peer).unwrap(), 1);
        for qp in 0..4 {
            let seen = rank
                .put(&Put {
                    qp,
                    ..Put::new(peer, 8)
                })
                .finish()[0];
            assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 8, 0));
        }
        assert!(rank.team.failing().is_empty(), "a recovery reports nothing");
    });
    hcas.check();
}

#[test]
fn ranks_with_different_numbers_of_rails_are_refused_by_both_numbers() {
    let mut setup = setup(2);
    setup.rails = 2;
    let hcas = Hcas::new(&setup);
    let errors = crate::rank::join_errors(&setup, &hcas, |rank, hcas| &hcas[..2 - rank as usize]);
    for error in errors {
        assert_eq!(error, "number of rails is 2 at rank 0 but 1 at rank 1");
    }
    hcas.check();
}

#[test]
fn ranks_of_one_process_and_device_are_direct_unless_that_is_turned_off() {
    for direct in [true, false] {
        let mut setup = setup(2);
        setup.team.modes.direct = direct;
        run(&setup, |rank| {
            for entry in entries(rank) {
                assert_eq!(entry.rail_life & PEER_DIRECT != 0, direct);
            }
            let peer = 1 - rank.number();
            // What is marked can be loaded: the peer's first word.
            if direct {
                let entry = entries(rank)[peer as usize];
                assert_ne!(entry.base, rank.window.base);
            }
            assert_eq!(rank.team.recover(peer).unwrap(), 1);
            let word = entries(rank)[peer as usize].rail_life;
            assert_eq!((word & PEER_DIRECT != 0, word & 0xff), (direct, 1));
            let seen = rank.put(&Put::new(peer, 8)).finish()[0];
            assert_eq!((seen.status, seen.done), (Status::OK, 8));
        });
    }
}
