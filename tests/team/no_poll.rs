//! The proof of ring space at launch time, against the real ring: what it accepts finds space, one more is refused.

use warpverbs::abi::Status;
use warpverbs::team::{PostOp, Posts, TeamError};

use crate::rank::{NoPoll, Rank, run, seed, setup};

const DEPTH: u64 = 256;

fn posts(peer: u32, op: PostOp, threads: u32, calls: u64) -> Posts {
    Posts {
        peer,
        qp: 0,
        op,
        threads,
        calls,
    }
}

/// Free WQEBBs, as the kernels find them.
fn room_of(rank: &Rank<'_>, peer: u32) -> u64 {
    let context = rank.qp(peer, 0);
    DEPTH - (context.resv - context.cons)
}

#[test]
fn what_is_accepted_finds_space_and_one_more_is_refused() {
    let seed = seed();
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        let mut random = fastrand::Rng::with_seed(seed ^ u64::from(rank.number()));
        let (mut accepted, mut refused) = (0, 0);
        while accepted < 40 || refused < 15 {
            let scopes = random.u32(1..4);
            let (kernel, per_block, most) = [
                ("wv_test_no_poll_thread", scopes, 1),
                ("wv_test_no_poll_warp", 32 * scopes, 32),
                ("wv_test_no_poll_block", 48, 48),
            ][random.usize(..3)];
            let active = random.u32(1..=most);
            let op = [
                PostOp::Put { bytes: 8 },
                PostOp::PutSignal { bytes: 8 },
                PostOp::Signal,
                PostOp::Flush,
            ][random.usize(..4)];
            let makers = if most == 48 { 1 } else { scopes };
            let calls = random.u32(1..6);
            let asked = [posts(peer, op, active, u64::from(calls * makers))];
            let launch = NoPoll {
                kernel,
                peer,
                op: match op {
                    PostOp::Put { .. } => 0,
                    PostOp::PutSignal { .. } => 1,
                    PostOp::Signal => 2,
                    _ => 3,
                },
                calls,
                active,
                threads: per_block,
                seed: random.u64(..),
            };
            let what = format!("seed {seed}, rank {}: {launch:?}", rank.number());
            let before = rank.team.counters(peer, 0).unwrap();
            let room = room_of(rank, peer);
            let verdict = rank.team.check_no_poll(&asked);
            let ends = rank.no_poll(&launch);
            let after = rank.team.counters(peer, 0).unwrap();
            match verdict {
                Ok(()) => {
                    accepted += 1;
                    assert!(
                        ends.iter().all(|status| *status == Status::OK),
                        "{what}: {ends:?}"
                    );
                    assert!(after.posted - before.posted <= room, "{what}");
                    assert_eq!(after.completed, before.completed, "{what}: a thread polled");
                    // A poster that finds no room looks again, and counts the time between two looks.
                    assert_eq!(after.full_ring, before.full_ring, "{what}");
                    // What is left is exactly what would be accepted now.
                    let left = room_of(rank, peer);
                    assert_eq!(left, room - (after.posted - before.posted), "{what}");
                    let one = |calls| {
                        rank.team
                            .check_no_poll(&[posts(peer, PostOp::Signal, 1, calls)])
                    };
                    one(left).unwrap();
                    assert!(one(left + 1).is_err(), "{what}");
                }
                Err(TeamError::RingSpace {
                    need,
                    free,
                    depth,
                    peer: at,
                    qp,
                }) => {
                    refused += 1;
                    assert_eq!(
                        (free, u64::from(depth), at, qp),
                        (room, DEPTH, peer, 0),
                        "{what}"
                    );
                    assert!(need > room, "{what}");
                    // Without a look at the completions it does not fit.
                    let looked = after.completed > before.completed;
                    assert!(
                        looked || ends.contains(&Status::WOULD_BLOCK),
                        "{what}: {ends:?}"
                    );
                    // A thread looks: the ring is empty again.
                    assert_eq!(rank.no_poll(&NoPoll::quiet(peer)), [Status::OK], "{what}");
                    assert_eq!(room_of(rank, peer), DEPTH, "{what}");
                }
                Err(error) => panic!("{what}: {error}"),
            }
        }
        assert_eq!(rank.no_poll(&NoPoll::quiet(peer)), [Status::OK]);
    });
}

#[test]
fn a_call_of_more_than_a_quarter_and_what_does_not_exist_are_named() {
    run(&setup(2), |rank| {
        let peer = 1 - rank.number();
        let check = |posts| rank.team.check_no_poll(&[posts]);
        check(posts(peer, PostOp::Put { bytes: 8 }, 64, 4)).unwrap();
        let error = check(posts(peer, PostOp::Put { bytes: 8 }, 65, 1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "one put on QP 0 to rank {peer} takes 65 WQEBBs; a call may take 64, a quarter of the ring"
            )
        );
        let error = check(posts(peer, PostOp::PutSignal { bytes: 8 }, 64, 1)).unwrap_err();
        assert!(
            matches!(
                error,
                TeamError::Batch {
                    op: "put_signal",
                    need: 65,
                    ..
                }
            ),
            "{error}"
        );
        let error = check(posts(peer, PostOp::Put { bytes: 8 }, 32, 9)).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "QP 0 to rank {peer} has room for 256 of its 256 WQEBBs, and the launch posts 288; a kernel that does \
                 not poll would wait for space"
            )
        );
        // Several kinds on one QP add up; numbers that leave 64 bits are refused, not wrapped.
        let sum = [
            posts(peer, PostOp::Signal, 1, 200),
            posts(peer, PostOp::Flush, 1, 57),
        ];
        assert!(matches!(
            rank.team.check_no_poll(&sum),
            Err(TeamError::RingSpace { need: 257, .. })
        ));
        let endless = check(posts(peer, PostOp::Signal, 1, u64::MAX)).unwrap_err();
        assert!(
            matches!(endless, TeamError::RingSpace { need: u64::MAX, .. }),
            "{endless}"
        );
        assert!(check(posts(peer, PostOp::Signal, 0, 1)).is_err());
        assert!(check(posts(2, PostOp::Signal, 1, 1)).is_err());
        let other = Posts {
            qp: 2,
            ..posts(peer, PostOp::Signal, 1, 1)
        };
        assert_eq!(
            check(other).unwrap_err().to_string(),
            "QP number is 2; it must be below 2"
        );
        rank.team.check_no_poll(&[]).unwrap();
    });
}
