//! Every way in which the QPs of a team work: MoE exchanges, words under guards and a recovery in each.

use test_support::reference;
use warpverbs::abi::{MODE_HOST_QUEUES, MODE_MAILBOX, MODE_NO_RECORD, MODE_WIDE_CQ, Status};
use warpverbs::moe::{Batch, Moe, MoeConfig, MoeError, Workspace, bf16};
use warpverbs::team::{CqKind, Doorbell, Queues, Sharing};

use crate::rank::{Put, Rank, WORDS, run, setup};

const SHAPE: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(6)
    .with_top_k(2)
    .with_max_tokens(8);

/// Dispatch and combine of `calls` batches, compared with the reference.
pub(crate) fn exchange(rank: &Rank<'_>, calls: u32) {
    let (own, ranks) = (rank.number(), rank.team.ranks());
    let moe = Moe::new(&rank.team, "modes", SHAPE).unwrap();
    let mut work = Workspace::new(&moe).unwrap();
    for call in 0..calls {
        let batches: Vec<Batch> = (0..ranks).map(|rank| batch(call, rank)).collect();
        let batch = &batches[own as usize];
        work.send(batch).unwrap();
        let sources = work.receive().unwrap();
        let wanted = reference::dispatch(&SHAPE, &moe.placement(), &batches, own);
        assert_eq!(sources, wanted, "call {call}");
        work.experts(expert).unwrap();
        work.send_back().unwrap();
        let combined = work.receive_back().unwrap();
        let wanted = reference::combine(&SHAPE, &moe.placement(), own, batch, expert);
        assert_eq!(combined.out, wanted, "call {call}");
        assert!(combined.token_valid.iter().all(|valid| *valid));
        let report = work.call().report().unwrap();
        assert!(report.is_complete(), "call {call}: {report}");
    }
    rank.sync();
}

fn expert(id: u32, x: &[u16], y: &mut [u16]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = bf16::from_f32(bf16::to_f32(x) + id as f32);
    }
}

fn batch(call: u32, rank: u32) -> Batch {
    let mut random = fastrand::Rng::with_seed(u64::from(call) << 32 | u64::from(rank));
    let mut batch = Batch::default();
    for _ in 0..SHAPE.max_tokens {
        let x = (0..SHAPE.hidden).map(|_| bf16::from_f32(random.f32()));
        batch.x.extend(x);
        let first = random.i32(0..6);
        batch.experts.extend([first, (first + 1) % 6]);
        batch.weights.extend([random.f32(), random.f32()]);
    }
    batch
}

/// Words to the peer and back through a recovery.
fn recovered(rank: &Rank<'_>) {
    let peer = 1 - rank.number();
    for (generation, qp) in [(0, 0), (1, 1)] {
        let dst_word = WORDS / 2 + 1024 * generation;
        let put = Put {
            qp,
            dst_word,
            threads: 64,
            kernel: "wv_test_guard_warp",
            ..Put::new(peer, 300)
        };
        let before = rank.team.counters(peer, qp).unwrap();
        let seen = rank.put(&put).finish();
        for seen in &seen {
            assert_eq!((seen.status, seen.done, seen.failed), (Status::OK, 300, 0));
        }
        rank.sync();
        assert_eq!(rank.wrong_words(peer, dst_word, 600), Vec::<u32>::new());
        let counters = rank.team.counters(peer, qp).unwrap();
        assert_eq!(counters.posted - before.posted, 600);
        assert!(counters.completed - before.completed >= 600, "{counters:?}");
        assert!(counters.completed <= counters.posted, "{counters:?}");
        let doorbells = counters.doorbells - before.doorbells;
        assert!((1..=600).contains(&doorbells), "{counters:?}");
        assert_eq!(counters.errors, 0);
        rank.sync();
        assert_eq!(rank.team.recover(peer).unwrap(), generation + 1);
    }
}

#[test]
fn exchanges_and_recoveries_work_in_every_mode() {
    let doorbells = [
        (Doorbell::Record, 0),
        (Doorbell::NoRecord, MODE_NO_RECORD),
        (Doorbell::Mailbox, MODE_MAILBOX),
    ];
    let queues = [(Queues::Device, 0), (Queues::Host, MODE_HOST_QUEUES)];
    let cqs = [(CqKind::Collapsed, 0), (CqKind::Wide, MODE_WIDE_CQ)];
    for (doorbell, doorbell_bit) in doorbells {
        for (queues, queues_bit) in queues {
            for (cq, cq_bit) in cqs {
                let mut setup = setup(2);
                setup.team = setup
                    .team
                    .with_doorbell(Some(doorbell))
                    .with_queues(Some(queues))
                    .with_cq(cq);
                run(&setup, |rank| {
                    let mode = rank.qp(1 - rank.number(), 0).mode;
                    assert_eq!(mode, doorbell_bit | queues_bit | cq_bit);
                    exchange(rank, 2);
                    recovered(rank);
                });
            }
        }
    }
}

#[test]
fn a_receive_queue_outlives_a_recovery() {
    for queues in [Queues::Device, Queues::Host] {
        let mut setup = setup(2);
        setup.team.modes.log_recv_depth = Some(5);
        setup.team.modes.queues = Some(queues);
        run(&setup, |rank| {
            let context = rank.qp(1 - rank.number(), 0);
            assert_eq!(context.recv_mask, 31);
            recovered(rank);
        });
    }
}

#[test]
fn ranks_may_ring_in_different_ways_but_share_in_one() {
    let mut setup = setup(2);
    setup.change = |config| {
        if config.rank == 1 {
            config.modes.doorbell = Some(Doorbell::Mailbox);
            config.modes.queues = Some(Queues::Host);
        }
    };
    run(&setup, |rank| exchange(rank, 1));
}

#[test]
fn a_layer_is_refused_on_qps_that_one_warp_owns() {
    let mut setup = setup(2);
    setup.team.modes.sharing = Sharing::Exclusive;
    run(&setup, |rank| {
        let error = Moe::new(&rank.team, "modes", SHAPE).unwrap_err();
        assert!(matches!(error, MoeError::Sharing { .. }), "{error}");
    });
}
