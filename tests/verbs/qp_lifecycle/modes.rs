//! Every combination of modes goes from Rts to Err and round again, and moves bytes each time.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use warpverbs::verbs::{CqKind, Doorbell, Qp, QpConfig, QpState, Queues, Rts, Sharing};

use crate::poster::{End, Poster};
use test_support::hca::hca;
use test_support::node::{Node, connect, connect_reset};

/// Lives of each QP.
const LIVES: u64 = 100;

/// All shapes with this doorbell and these queues.
fn shapes(doorbell: Doorbell, queues: Queues) -> Vec<QpConfig> {
    let mut shapes = Vec::new();
    for sharing in [Sharing::Shared, Sharing::Exclusive, Sharing::Cta] {
        for cq in [CqKind::Collapsed, CqKind::Wide] {
            for log_recv_depth in [None, Some(4)] {
                shapes.push(
                    QpConfig::default()
                        .with_log_depth(8)
                        .with_sharing(sharing)
                        .with_doorbell(doorbell)
                        .with_queues(queues)
                        .with_cq(cq)
                        .with_log_recv_depth(log_recv_depth),
                );
            }
        }
    }
    shapes
}

/// One life: writes of `life` from one end to the other, then the error state, in which what is posted is flushed.
fn live(ends: [&End; 2], qps: &[Qp<Rts>; 2], life: u64) {
    let base = life * 65_536;
    let mut posters = [0, 1].map(|n| Poster::new(ends[n], &qps[n], base));
    let receives = qps[1].config().log_recv_depth.is_some();
    for write in 0..3u8 {
        let byte = u8::try_from(life % 83).unwrap() * 3 + write;
        ends[0].fill(byte);
        let imm = receives.then(|| u32::try_from(life).unwrap() << 8 | u32::from(byte));
        let index = posters[0].write(ends[1], imm);
        posters[0].ring();
        let cqe = posters[0].completion(index);
        assert_eq!(cqe.opcode(), CqeOpcode::REQ, "{cqe:?}");
        assert!(ends[1].bytes().iter().all(|got| *got == byte));
        if let Some(imm) = imm {
            let cqe = posters[1].receive();
            assert_eq!(cqe.opcode(), CqeOpcode::RESP_WR_IMM, "{cqe:?}");
            assert_eq!(cqe.imm_inval_pkey.get(), imm);
        }
    }
    for qp in qps {
        qp.to_error().unwrap();
        assert_eq!(qp.query().unwrap().state, QpState::ERR);
    }
    let index = posters[0].write(ends[1], None);
    posters[0].ring();
    let cqe = posters[0].completion(index);
    assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR);
    assert_eq!(cqe.as_error().reason(), Syndrome::WR_FLUSH_ERR);
}

fn lives_of(doorbell: Doorbell, queues: Queues) {
    let ends = [End::new(), End::new()];
    let ends = [&ends[0], &ends[1]];
    let nodes = ends.map(|end| &end.node);
    let shapes = shapes(doorbell, queues);
    for shape in &shapes {
        let mut qps = connect(nodes, shape).unwrap();
        for life in 0..LIVES {
            let before = *qps[0].layout();
            live(ends, &qps, life);
            let [a, b] = qps.map(|qp| qp.reset().unwrap());
            let after = *a.layout();
            let produced = match shape.cq {
                CqKind::Collapsed => 0,
                // Three writes and the flushed one.
                CqKind::Wide => before.produced + 4,
            };
            assert_eq!(after.produced, produced, "{shape:?}");
            let moved = warpverbs::verbs::QpLayout {
                produced: before.produced,
                recv: before.recv,
                ..after
            };
            assert_eq!(moved, before, "a reset moves nothing");
            nodes[0].write_image(&a, (life + 1) * 65_536);
            nodes[1].write_image(&b, (life + 1) * 65_536);
            qps = connect_reset(nodes, [a, b]).unwrap();
        }
        let rung = qps[0].mailbox_doorbells();
        assert_eq!(rung, (doorbell == Doorbell::Mailbox).then_some(LIVES * 4));
        drop(qps);
        for end in ends {
            assert_eq!(end.hca.findings(), Vec::<String>::new(), "{shape:?}");
            assert_eq!(end.node.heap.stats().live_blocks, 0);
        }
    }
    println!(
        "{} shapes with {doorbell:?} and {queues:?} queues, {LIVES} lives each",
        shapes.len()
    );
}

#[test]
fn with_a_record_in_device_memory_every_shape_lives_100_times() {
    lives_of(Doorbell::Record, Queues::Device);
}

#[test]
fn with_a_record_in_host_memory_every_shape_lives_100_times() {
    lives_of(Doorbell::Record, Queues::Host);
}

#[test]
fn without_a_record_in_device_memory_every_shape_lives_100_times() {
    lives_of(Doorbell::NoRecord, Queues::Device);
}

#[test]
fn without_a_record_in_host_memory_every_shape_lives_100_times() {
    lives_of(Doorbell::NoRecord, Queues::Host);
}

#[test]
fn with_a_mailbox_and_queues_in_device_memory_every_shape_lives_100_times() {
    lives_of(Doorbell::Mailbox, Queues::Device);
}

#[test]
fn with_a_mailbox_and_queues_in_host_memory_every_shape_lives_100_times() {
    lives_of(Doorbell::Mailbox, Queues::Host);
}

#[test]
fn a_shape_whose_place_is_not_given_is_refused_with_what_is_missing() {
    let hca = hca();
    let bare = Node::open(&hca, 1 << 20).unwrap();
    let refused = |shape: QpConfig| bare.qp(&shape).unwrap_err().to_string();
    let host = QpConfig::default().with_queues(Queues::Host);
    assert_eq!(
        refused(host),
        "heap for host queues is not given; it must be QpPlaces::host: a heap in host memory"
    );
    let mailbox = QpConfig::default().with_doorbell(Doorbell::Mailbox);
    assert_eq!(
        refused(mailbox),
        "doorbell proxy is not given; it must be QpPlaces::proxy, the thread that rings for mailboxes"
    );
    let live = hca.live_objects();
    assert_eq!((live.cq, live.qp), (0, 0));
    assert_eq!(bare.heap.stats().live_blocks, 0);
}
