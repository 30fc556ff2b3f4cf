//! Random WQEs, most of them wrong: the device answers each with a completion, and survives.

use fastrand::Rng;
use mlx5_prm::cqe::CqeOpcode;
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{CtrlSeg, WqeOpcode};
use softhca::HcaConfig;
use softhca_rig::patience::{HANG, wait_until};
use softhca_rig::{Pair, Shape, data, inline, raddr};
use std::time::Duration;

/// Mostly real opcodes.
fn opcode(rng: &mut Rng) -> u8 {
    const KNOWN: [u8; 11] = [0, 1, 8, 9, 10, 11, 0x10, 0x11, 0x12, 0x14, 0x15];
    if rng.u8(..) < 240 {
        KNOWN[rng.usize(..KNOWN.len())]
    } else {
        rng.u8(..)
    }
}

/// Returns a number that is right, nearly right, or anything.
fn near(rng: &mut Rng, right: u64) -> u64 {
    match rng.u8(..8) {
        0 => rng.u64(..),
        1 => u64::MAX - rng.u64(..16),
        2 => right.wrapping_sub(rng.u64(..64)),
        _ => right.wrapping_add(rng.u64(..64) & !7),
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).unwrap()
}

/// Returns the units after a control segment.
fn body(rng: &mut Rng, pair: &Pair) -> Vec<u8> {
    let mut units = Vec::new();
    for _ in 0..rng.usize(..6) {
        let remote = near(rng, pair.b.data.address());
        let local = near(rng, pair.a.data.address());
        match rng.u8(..6) {
            0 => units.extend(raddr(remote, low(near(rng, pair.b.keys.rkey.into())))),
            1 | 2 => units.extend(raddr(remote, pair.b.keys.rkey)),
            3 => {
                let bytes = [8, 4, 0, 1 << 20, 100, 3][rng.usize(..6)];
                units.extend(data(bytes, pair.a.keys.lkey, local));
            }
            4 => units.extend(inline(&vec![rng.u8(..); rng.usize(..40)])),
            _ => units.extend(std::iter::repeat_with(|| rng.u8(..)).take(16)),
        }
    }
    units
}

fn program(seed: u64, loopback: bool) {
    let mut rng = Rng::with_seed(seed);
    let config = HcaConfig {
        loopback,
        ..HcaConfig::default()
    };
    let shape = Shape {
        log_receive: Some(4),
        ack_timeout: 1,
        retry_count: 0,
        rnr_retry: 1,
        ..Shape::default()
    };
    let mut pair = Pair::with(&config, shape.clone(), shape);
    let mut psn = 0x1234;
    for step in 0..150 {
        let what = format!("seed {seed} loopback {loopback} step {step}");
        if rng.bool() {
            pair.b.post_receive(rng.u64(..100_000), 64);
        }
        let units = body(&mut rng, &pair);
        let opmod = [0, 8, 9, rng.u8(..)][rng.usize(..4)];
        let flags = CtrlSeg::CE_ALWAYS | rng.u8(..) & !CtrlSeg::CE_MASK;
        let index = pair.a.write_wqe(
            WqeOpcode(opcode(&mut rng)),
            opmod,
            flags,
            rng.u32(..),
            &units,
        );
        pair.a.post();
        let cqe = pair
            .a
            .poll_for(HANG, |_| true)
            .unwrap_or_else(|| panic!("{what}: no completion"));
        assert_eq!(cqe.wqe_counter.get(), index, "{what}");
        if cqe.opcode() == CqeOpcode::REQ {
            continue;
        }
        assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR, "{what}");
        wait_for_error(&pair, &what);
        psn = (psn + 0x40_0000) & 0xff_ffff;
        for end in [&mut pair.a, &mut pair.b] {
            end.reset();
            while end.poll_for(Duration::ZERO, |_| true).is_some() {}
        }
        pair.a.connect(pair.hca_b.gid(), pair.b.qpn, psn);
        pair.b.connect(pair.hca_a.gid(), pair.a.qpn, psn);
    }
}

fn wait_for_error(pair: &Pair, what: &str) {
    wait_until(what, || pair.a.query().state() == u32::from(QpState::ERR.0));
}

#[test]
fn random_wqes_between_memories_each_have_a_completion() {
    (0..6).for_each(|seed| program(seed, true));
}

#[test]
fn random_wqes_over_packets_each_have_a_completion() {
    (100..103).for_each(|seed| program(seed, false));
}
