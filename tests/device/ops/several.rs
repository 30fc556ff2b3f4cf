//! Waiting for several QPs: all of a peer or of the team, or whichever is done first.

use bytemuck::{bytes_of, cast_slice};
use test_support::abi::ops::OpsSeveralParams;
use warpverbs::abi::{DevicePtr, PeerEntry, QpContext, Status, TeamContext};
use warpverbs::gpu::{DeviceMemory, Launch};
use warpverbs::verbs::{Qp, QpConfig, Rts};

use crate::program::{TARGETS, WINDOW};
use crate::rig::Rig;
use test_support::device::upload;
use test_support::node::connect;

const QPS: usize = 6;

/// A rank of two with several QPs to the other.
struct Several {
    /// Device memory of the tables, and what the kernel stores: status, then by QP how it ended and when.
    tables: [DeviceMemory; 4],
    qps: Vec<[Qp<Rts>; 2]>,
    rig: Rig,
}

impl Several {
    fn new() -> Self {
        let rig = Rig::new(WINDOW, &QpConfig::default());
        let nodes = [&rig.ends[0].node, &rig.ends[1].node];
        let pair = |_| connect(nodes, &QpConfig::default()).unwrap();
        let qps: Vec<[Qp<Rts>; 2]> = (0..QPS).map(pair).collect();
        let gpu = &nodes[0].gpu;
        let upload = |bytes: &[u8]| upload(gpu.as_ref(), bytes);
        // None to the rank itself.
        let mut contexts = vec![0_u64; QPS];
        contexts.extend(qps.iter().map(|[near, _]| near.layout().context_addr));
        let contexts = upload(cast_slice(&contexts));
        let peers = upload(cast_slice(&[PeerEntry::default(), rig.ends[1].entry()]));
        let team = TeamContext {
            rank: 0,
            ranks: 2,
            max_ranks: 2,
            qps_per_peer: QPS as u32,
            max_windows: 1,
            rails: 1,
            qps: DevicePtr::<DevicePtr<QpContext>>::new(contexts.addr()),
            peers: peers.addr().into(),
            ..TeamContext::default()
        };
        let tables = [
            contexts,
            peers,
            upload(bytes_of(&team)),
            upload(&[0xff; 256]),
        ];
        Self { tables, qps, rig }
    }

    fn run(&self, mode: u32, count: u32) -> Status {
        let results = self.tables[3].addr();
        let params = OpsSeveralParams {
            team: self.tables[2].addr().into(),
            window: self.rig.window_of(0),
            dst_offset: TARGETS,
            deadline_ns: 60_000_000_000,
            status: results.into(),
            ended: (results + 64).into(),
            order: (results + 128).into(),
            peer: 1,
            mode,
            count,
            reserved: 0,
        };
        self.rig
            .run_kernel(&Launch::new("wv_test_ops_several", 1, 32), &params);
        self.rig.ends[0].read(results, 1)[0]
    }

    /// By QP: how it ended, and when.
    fn ended(&self) -> Vec<(Status, u32)> {
        let results = self.tables[3].addr();
        let (ended, order) = (
            self.rig.ends[0].read(results + 64, QPS),
            self.rig.ends[0].read(results + 128, QPS),
        );
        ended.into_iter().zip(order).collect()
    }

    fn source(&self, words: usize) -> Vec<u64> {
        let words: Vec<u64> = (1..=words as u64).collect();
        self.rig.ends[0].write(0, cast_slice(&words));
        words
    }
}

#[test]
fn quiet_of_team_and_peer_waits_for_unsignalled_work() {
    for mode in [0, 1] {
        let several = Several::new();
        let words = several.source(QPS * 32 * 10);
        assert_eq!(several.run(mode, 10), Status::OK);
        let arrived: Vec<u64> = several.rig.ends[1].window_at(TARGETS, words.len());
        assert_eq!(arrived, words, "mode {mode}");
        // Again, with nothing to wait for.
        assert_eq!(several.run(mode, 0), Status::OK);
        assert_eq!(several.rig.findings(), [""; 0]);
    }
}

#[test]
fn quiet_tells_of_a_qp_in_error_after_the_others_are_done() {
    let several = Several::new();
    let words = several.source(QPS * 32);
    several.qps[QPS - 1][0].to_error().unwrap();
    let status = several.run(1, 1);
    assert!(
        matches!(status, Status::FLUSHED | Status::CQE_ERROR),
        "{status}"
    );
    let arrived: Vec<u64> = several.rig.ends[1].window_at(TARGETS, words.len() - 32);
    assert_eq!(arrived, words[..words.len() - 32]);
}

#[test]
fn wait_any_names_each_ticket_once_and_a_failed_one_last() {
    let several = Several::new();
    let words = several.source(QPS);
    several.run(2, 0);
    let mut rounds: Vec<u32> = several.ended().iter().map(|end| end.1).collect();
    rounds.sort_unstable();
    assert!(rounds.into_iter().eq(0..QPS as u32));
    assert!(several.ended().iter().all(|end| end.0 == Status::OK));
    assert_eq!(several.rig.ends[1].window_at::<u64>(TARGETS, QPS), words);

    // A QP whose failure no thread has seen takes the post and fails it; the others are done in time.
    several.qps[0][0].to_error().unwrap();
    several.run(2, 0);
    let ended = several.ended();
    assert!(
        ended[1..].iter().all(|end| end.0 == Status::OK),
        "{ended:?}"
    );
    assert!(
        matches!(ended[0].0, Status::FLUSHED | Status::CQE_ERROR),
        "{ended:?}"
    );
}
