//! Guards: counted, refused while the peer is closed, by thread and by warp.

use std::time::Duration;

use warpverbs::abi::Status;
use warpverbs::team::TeamError;

use crate::rank::{Put, WORDS, run, setup, until};

/// How long the ranks stand still while a kernel waits for a closed peer.
const PAUSE: Duration = Duration::from_millis(50);

#[test]
fn words_put_under_guards_arrive_whatever_scope_holds_them() {
    // Kernel, threads of a block, words under one guard.
    let shapes = [
        ("wv_test_guard_thread", 8, 1),
        ("wv_test_guard_thread", 8, 0),
        ("wv_test_guard_warp", 64, 3),
        ("wv_test_guard_warp", 64, 0),
        ("wv_test_guard_block", 96, 3),
        ("wv_test_guard_block", 40, 0),
    ];
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        let mut dst_word = WORDS / 2;
        for (round, (kernel, threads, each)) in (0u32..).zip(shapes) {
            let put = Put {
                kernel,
                threads,
                each,
                blocks: 2,
                qp: round % 2,
                dst_word,
                ..Put::new(peer, 32)
            };
            let seen = rank.put(&put).finish();
            for seen in &seen {
                assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 32, 0));
            }
            rank.sync();
            let words = 32 * u32::try_from(seen.len()).unwrap();
            assert_eq!(rank.wrong_words(peer, dst_word, words), Vec::<u32>::new());
            dst_word += words;
            assert_eq!(rank.team.guards(peer).unwrap(), 0);
        }
    });
}

#[test]
fn a_guard_is_counted_while_it_is_held() {
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        let put = Put {
            blocks: 3,
            threads: 4,
            ..Put::hold(peer)
        };
        let holding = rank.put(&put);
        until("guards are counted", || {
            rank.team.guards(peer).unwrap() == 12
        });
        holding.stop();
        assert!(
            holding
                .finish()
                .iter()
                .all(|seen| seen.status == Status::OK)
        );
        assert_eq!(rank.team.guards(peer).unwrap(), 0);
    });
}

#[test]
fn a_peer_that_the_host_gave_up_is_closed_until_it_is_recovered() {
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        rank.team.fail_peer(peer).unwrap();
        assert!(rank.team.is_closed(peer).unwrap());
        let in_vain = Put {
            deadline: PAUSE,
            ..Put::new(peer, 4)
        };
        let seen = rank.put(&in_vain).finish()[0];
        let end = (seen.status, seen.done, seen.closed);
        assert_eq!(end, (Status::TIMEOUT, 0, 1));
        // As a rule this one meets the closed peer and waits; it may also begin when the peer is open again.
        let waiting = rank.put(&Put::new(peer, 4));
        std::thread::sleep(PAUSE);
        assert_eq!(rank.team.recover(peer).unwrap(), 1);
        let seen = waiting.finish()[0];
        assert_eq!((seen.status, seen.done), (Status::OK, 4));
        assert!(seen.closed <= 1, "{seen:?}");
        assert_eq!(seen.life, 1);
        assert_eq!(rank.team.guards(peer).unwrap(), 0);
    });
}

#[test]
fn a_rank_that_is_no_peer_has_no_guards() {
    run(&setup(2), |rank| {
        let own = rank.number();
        let error = rank.team.recover(own).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("peer is {own}; it must be another rank than this, {own}")
        );
        let error = rank.team.guards(2).unwrap_err();
        assert!(
            matches!(error, TeamError::UnknownRank { rank: 2, ranks: 2 }),
            "{error}"
        );
        let seen = rank.put(&Put::new(7, 1)).finish()[0];
        assert_eq!((seen.status, seen.done), (Status::INVALID, 0));
    });
}
