//! Common WQEs go a short way, unless the checker looks at the bytes of WQEs: both ways do the same.

use mlx5_prm::cqe::Cqe64;
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::{Counters, HcaConfig};
use softhca_rig::{Pair, Shape, data, inline, raddr};

const BYTES: u64 = 1 << 14;
const LENGTH: usize = 1 << 14;
/// WQEs of one doorbell; the last is signalled.
const BATCH: usize = 24;

/// What software can see of a program that has run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    entries: Vec<(u8, u16, u32, u32)>,
    counters: [Counters; 2],
    numbers: [u32; 2],
    memory: [Vec<u8>; 2],
}

fn entry(cqe: &Cqe64) -> (u8, u16, u32, u32) {
    (
        cqe.op_own >> 4,
        cqe.wqe_counter.get(),
        cqe.byte_cnt.get(),
        cqe.sop_drop_qpn.get() >> 24,
    )
}

/// Returns a WQE of a size and a place drawn by lot; most of them common ones.
fn body(rng: &mut fastrand::Rng, pair: &Pair) -> (WqeOpcode, Vec<u8>) {
    let bytes = [1, 7, 8, 12, 28, 64, 1000, 5000][rng.usize(0..8)];
    let mut place = || rng.u64(0..=BYTES - u64::from(bytes));
    let (near, far) = (place(), place());
    let to = raddr(pair.b.data.address() + far, pair.b.keys.rkey);
    let near = pair.a.data.address() + near;
    let segment = data(bytes, pair.a.keys.lkey, near);
    match rng.u8(0..13) {
        0..4 => (WqeOpcode::RDMA_WRITE, [to.as_slice(), &segment].concat()),
        4..6 => (WqeOpcode::RDMA_READ, [to.as_slice(), &segment].concat()),
        6..8 => {
            let bytes: Vec<u8> = (0..bytes.min(40)).map(|_| rng.u8(..)).collect();
            (
                WqeOpcode::RDMA_WRITE,
                [to.as_slice(), &inline(&bytes)].concat(),
            )
        }
        8 => {
            let bytes = bytes.min(64);
            let half = data(bytes, pair.a.keys.lkey, near & !0xff);
            let to = raddr(pair.b.data.address(), pair.b.keys.rkey);
            (
                WqeOpcode::RDMA_WRITE,
                [to.as_slice(), &half, &half].concat(),
            )
        }
        9 => (WqeOpcode::NOP, Vec::new()),
        // Inline data and a segment in one WQEBB: what the long way is for, although it begins as a common WQE does.
        kind => {
            let header: Vec<u8> = (0..rng.usize(0..=12)).map(|_| rng.u8(..)).collect();
            let header = inline(&header);
            let far = far.saturating_sub(12);
            let to = raddr(pair.b.data.address() + far, pair.b.keys.rkey);
            let parts = if kind == 10 {
                [to.as_slice(), &segment, &header]
            } else {
                [to.as_slice(), &header, &segment]
            };
            (WqeOpcode::RDMA_WRITE, parts.concat())
        }
    }
}

fn program(seed: u64, long_way: bool) -> Outcome {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut config = HcaConfig::default();
    config.check.wqe_bytes = long_way;
    let shape = Shape {
        data_bytes: LENGTH,
        mtu: 1,
        ..Shape::default()
    };
    let mut pair = Pair::with(&config, shape.clone(), shape);
    for end in [&pair.a, &pair.b] {
        let bytes: Vec<u8> = (0..BYTES).map(|_| rng.u8(..)).collect();
        end.data.write(0, &bytes);
    }
    let mut entries = Vec::new();
    // The last batch ends with a WQE that its peer refuses, and one after it.
    for batch in 0..20 {
        let mut count = 0;
        for number in 0..BATCH {
            let (opcode, body) = body(&mut rng, &pair);
            let signalled = number == BATCH - 1 || rng.bool();
            let flags = if signalled { CtrlSeg::CE_ALWAYS } else { 0 };
            count += usize::from(signalled);
            pair.a.write_wqe(opcode, 0, flags, 0, &body);
        }
        if batch == 19 {
            let (remote, rkey) = (pair.b.data.address(), pair.b.keys.rkey);
            pair.a.write(0, 8, remote + BYTES - 7, rkey);
            pair.a.write(0, 8, remote, rkey);
            count += 2;
        }
        entries.extend(pair.a.run(count).iter().map(entry));
    }
    let counters = [&pair.hca_a, &pair.hca_b].map(|hca| hca.counters());
    Outcome {
        entries,
        counters,
        numbers: [
            pair.a.query().next_send_psn(),
            pair.b.query().next_rcv_psn(),
        ],
        memory: [&pair.a, &pair.b].map(|end| end.data.read(0, LENGTH)),
    }
}

#[test]
fn the_short_way_and_the_long_way_look_the_same() {
    for seed in [0xe0, 0xe1, 0xe2] {
        let (short, long) = (program(seed, false), program(seed, true));
        assert_eq!(short.entries, long.entries, "seed {seed:#x}");
        assert_eq!(short, long, "seed {seed:#x}");
        assert_eq!(short.numbers[0], short.numbers[1], "seed {seed:#x}");
        assert!(short.counters[0].read_requests > 0, "seed {seed:#x}");
    }
}
