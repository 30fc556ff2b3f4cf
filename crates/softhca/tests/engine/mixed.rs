//! Messages of inline data and segments in any order: headers inline, payloads by address, and what may lie between.
//!
//! Every service, by memory and by packets; the same lists of parts for all of them.

use mlx5_prm::cqe::{CqeOpcode, Syndrome};
use mlx5_prm::qp::QpState;
use mlx5_prm::wqe::{CtrlSeg, MAX_DS, WqeOpcode};
use softhca::HcaConfig;
use softhca::device::{Adversary, Finding};
use softhca_rig::segments::{datagram, xrc};
use softhca_rig::{End, Kind, Pair, QKEY, Shape, data, inline, raddr};
use std::time::Duration;

const SIGNALLED: u8 = CtrlSeg::CE_ALWAYS;
const IMMEDIATE: u32 = 0x1234_5678;

/// A part of a message.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// So many bytes in the WQE.
    Inline(usize),
    /// So many bytes from an offset of the own data.
    Memory(u64, u32),
}
use Part::{Inline, Memory};

/// At most 4096 bytes each, the longest datagram.
const LAYOUTS: [&[Part]; 8] = [
    &[Inline(28), Memory(0, 900)],
    &[Memory(0, 900), Inline(28)],
    &[
        Inline(1),
        Memory(3, 7),
        Inline(100),
        Memory(500, 2000),
        Inline(12),
        Memory(9, 1),
    ],
    &[Memory(7, 256), Inline(256), Memory(600, 255), Inline(1)],
    // Segments without bytes, and a message without bytes.
    &[Inline(0), Memory(5, 300), Inline(0)],
    &[Memory(5, 1), Inline(0), Inline(0), Memory(77, 1)],
    &[Inline(0), Inline(0)],
    // Inline data of several WQEBBs, in neighbouring segments.
    &[Inline(200), Inline(300), Memory(1, 3500), Inline(96)],
];

/// Returns a byte of the own data, and one of the inline data of a part.
fn stored(at: u64) -> u8 {
    (at * 7 + at / 251).to_le_bytes()[0]
}

fn inlined(part: usize, at: usize) -> u8 {
    (0x80 + part * 31 + at * 3).to_le_bytes()[0]
}

/// The segments of a message of `end`, and its bytes.
fn message(end: &End, parts: &[Part]) -> (Vec<u8>, Vec<u8>) {
    let (mut units, mut bytes) = (Vec::new(), Vec::new());
    for (number, part) in parts.iter().enumerate() {
        match *part {
            Inline(count) => {
                let own: Vec<u8> = (0..count).map(|at| inlined(number, at)).collect();
                units.extend(inline(&own));
                bytes.extend(own);
            }
            Memory(offset, count) => {
                units.extend(data(count, end.keys.lkey, end.data.address() + offset));
                bytes.extend((offset..offset + u64::from(count)).map(stored));
            }
        }
    }
    (units, bytes)
}

/// Returns what stands between the control segment and the data.
fn address(pair: &Pair, opcode: WqeOpcode) -> Vec<u8> {
    let to = match pair.a.shape.kind {
        Kind::Ud => datagram(pair.hca_b.gid(), pair.b.qpn, QKEY).to_vec(),
        Kind::XrcInitiator => xrc(pair.b.srq.as_ref().unwrap().number).to_vec(),
        _ => vec![],
    };
    match opcode {
        WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM => {
            let remote = raddr(pair.b.data.address() + TARGET as u64, pair.b.keys.rkey);
            [to.as_slice(), &remote].concat()
        }
        _ => to,
    }
}

/// Where WRITEs go.
const TARGET: usize = 0xa000;
/// Where receive WQEs scatter to: offset and bytes, the first of them shorter than the header of a datagram.
const SCATTER: [(usize, usize); 3] = [(0x4000, 11), (0x5001, 301), (0x6002, 0x2000)];

fn post_receive(end: &mut End) {
    let (lkey, base) = (end.keys.lkey, end.data.address());
    let segments =
        SCATTER.map(|(at, bytes)| (u32::try_from(bytes).unwrap(), lkey, base + at as u64));
    match &mut end.srq {
        Some(srq) => {
            srq.post(&segments);
        }
        None => {
            let units = segments.map(|(bytes, lkey, address)| data(bytes, lkey, address));
            let end_of_list = data(0, mlx5_prm::wqe::DataSeg::INVALID_LKEY, 0);
            end.post_receive_bytes(&[units.concat(), end_of_list.to_vec()].concat());
        }
    }
}

/// Returns the first `bytes` bytes of a message that has been received.
fn received(end: &End, bytes: usize) -> Vec<u8> {
    let pieces = SCATTER.map(|(at, bytes)| end.data.read(at, bytes));
    pieces.concat()[..bytes].to_vec()
}

/// Returns the services: how they are made at both ends.
fn services() -> Vec<(Shape, Shape)> {
    let shape = |kind| Shape {
        kind,
        log_receive: Some(4),
        mtu: 1,
        log_depth: 7,
        ..Shape::default()
    };
    let shared = Shape {
        log_receive: None,
        log_srq: Some(4),
        ..shape(Kind::Rc)
    };
    let [initiator, target] = [Kind::XrcInitiator, Kind::XrcTarget].map(|kind| Shape {
        kind,
        log_srq: (kind == Kind::XrcTarget).then_some(4),
        ..shared.clone()
    });
    let mut all = vec![(shape(Kind::Rc), shared), (initiator, target)];
    all.extend([Kind::Rc, Kind::Uc, Kind::Ud].map(|kind| (shape(kind), shape(kind))));
    all
}

/// Pairs of every service, by memory and by packets, with data in the memory of the first end.
fn every_pair(mut body: impl FnMut(Pair, &str)) {
    for (a, b) in services() {
        for loopback in [true, false] {
            let config = HcaConfig {
                loopback,
                ..HcaConfig::default()
            };
            let what = format!("{:?}, SRQ {:?}, loopback {loopback}", a.kind, b.log_srq);
            let pair = Pair::with(&config, a.clone(), b.clone());
            let bytes: Vec<u8> = (0..pair.a.data.bytes()).map(stored).collect();
            pair.a.data.write(0, &bytes);
            body(pair, &what);
        }
    }
}

fn opcodes(kind: Kind) -> &'static [WqeOpcode] {
    let all = &[
        WqeOpcode::SEND,
        WqeOpcode::SEND_IMM,
        WqeOpcode::RDMA_WRITE,
        WqeOpcode::RDMA_WRITE_IMM,
    ];
    if kind == Kind::Ud { &all[..2] } else { all }
}

/// Sends the parts, and compares what arrives and the completions of both ends. An unsignalled WQE is followed by a NOP.
fn exchange(pair: &mut Pair, opcode: WqeOpcode, parts: &[Part], flags: u8, what: &str) {
    let what = format!("{what}, {opcode}, {parts:?}");
    let (units, bytes) = message(&pair.a, parts);
    let length = u32::try_from(bytes.len()).unwrap();
    pair.b.data.write(0, &vec![0; 1 << 16]);
    let (is_write, consumes) = match opcode {
        WqeOpcode::RDMA_WRITE => (true, false),
        WqeOpcode::RDMA_WRITE_IMM => (true, true),
        _ => (false, true),
    };
    if consumes {
        post_receive(&mut pair.b);
    }
    let rest = [address(pair, opcode), units].concat();
    let mut index = pair.a.write_wqe(opcode, 0, flags, IMMEDIATE, &rest);
    let signalled = flags & CtrlSeg::CE_MASK == SIGNALLED;
    if !signalled {
        index = pair.a.nop(true);
    }
    let sent = pair.a.run(1)[0];
    assert_eq!(sent.opcode(), CqeOpcode::REQ, "{what}");
    assert_eq!(sent.wqe_counter.get(), index, "{what}");
    if signalled {
        assert_eq!(sent.byte_cnt.get(), length, "{what}");
    }
    if is_write && !consumes && pair.a.shape.kind == Kind::Uc {
        // An unreliable WRITE completes at neither end when it arrives; a message after it does.
        post_receive(&mut pair.b);
        pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &[]);
        assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ, "{what}");
        assert_eq!(pair.b.completion().opcode(), CqeOpcode::RESP_SEND, "{what}");
    }
    let header = if pair.a.shape.kind == Kind::Ud { 40 } else { 0 };
    if consumes {
        let cqe = pair.b.completion();
        let (expected, immediate) = match opcode {
            WqeOpcode::SEND => (CqeOpcode::RESP_SEND, None),
            WqeOpcode::SEND_IMM => (CqeOpcode::RESP_SEND_IMM, Some(IMMEDIATE)),
            _ => (CqeOpcode::RESP_WR_IMM, Some(IMMEDIATE)),
        };
        assert_eq!(cqe.opcode(), expected, "{what}");
        assert_eq!(cqe.byte_cnt.get(), length + header, "{what}");
        if let Some(immediate) = immediate {
            assert_eq!(cqe.imm_inval_pkey.get(), immediate, "{what}");
        }
        if let Some(srq) = &mut pair.b.srq {
            srq.free(cqe.wqe_counter.get());
        }
    }
    let found = if is_write {
        pair.b.data.read(TARGET, bytes.len())
    } else {
        received(&pair.b, header as usize + bytes.len()).split_off(header as usize)
    };
    assert!(found == bytes, "{what}: other bytes have arrived");
    // Not one byte more.
    if is_write {
        assert_eq!(pair.b.data.read(TARGET + bytes.len(), 1), [0], "{what}");
    }
}

#[test]
fn every_service_carries_inline_data_and_segments_in_any_order() {
    every_pair(|mut pair, what| {
        for parts in LAYOUTS {
            for &opcode in opcodes(pair.a.shape.kind) {
                exchange(&mut pair, opcode, parts, SIGNALLED, what);
            }
        }
        // Solicited, and not signalled.
        exchange(
            &mut pair,
            WqeOpcode::SEND_IMM,
            LAYOUTS[2],
            CtrlSeg::SE,
            what,
        );
        pair.assert_clean();
    });
}

#[test]
fn a_wqe_of_as_many_units_as_there_can_be_is_carried() {
    every_pair(|mut pair, what| {
        for &opcode in opcodes(pair.a.shape.kind) {
            let mut left = MAX_DS - 1 - address(&pair, opcode).len() / 16;
            let mut parts = Vec::new();
            for at in 0.. {
                match left {
                    0 => break,
                    1 => parts.push(Memory(at, 33)),
                    // Inline data of one unit or of two.
                    _ if at % 3 == 1 => parts.push(Inline(13)),
                    _ if at % 3 == 2 => parts.push(Inline(12)),
                    _ => parts.push(Memory(at, 33)),
                }
                let units = message(&pair.a, &parts[parts.len() - 1..]).0.len() / 16;
                left -= units;
            }
            exchange(&mut pair, opcode, &parts, SIGNALLED, what);
        }
        pair.assert_clean();
    });
}

#[test]
fn the_ring_ends_within_inline_data() {
    for loopback in [true, false] {
        let config = HcaConfig {
            loopback,
            ..HcaConfig::default()
        };
        let shape = Shape {
            log_depth: 3,
            log_receive: Some(4),
            ..Shape::default()
        };
        let mut pair = Pair::with(&config, shape.clone(), shape);
        let bytes: Vec<u8> = (0..1 << 16).map(stored).collect();
        pair.a.data.write(0, &bytes);
        // Three WQEBBs, in a ring of eight: of eight WQEs one begins one WQEBB before the ring's end, and one two. Both times the
        // ring ends within the first inline data, bytes 36 to 136 of the WQE.
        let parts = [Inline(100), Memory(40, 500), Inline(20)];
        for round in 0..24u16 {
            let what = format!("loopback {loopback}, round {round}");
            assert_eq!(pair.a.index, round * 3, "{what}");
            exchange(
                &mut pair,
                WqeOpcode::RDMA_WRITE_IMM,
                &parts,
                SIGNALLED,
                &what,
            );
        }
        pair.assert_clean();
    }
}

#[test]
fn a_message_of_many_chunks_has_its_inline_parts_at_their_places() {
    const BYTES: usize = 1 << 23;
    const PART: u32 = (3 << 19) + 5;
    let adversary = Adversary {
        seed: 5,
        longest: Duration::from_micros(50),
        repeats: true,
    };
    for (loopback, adversary) in [(true, None), (true, Some(adversary)), (false, None)] {
        let config = HcaConfig {
            loopback,
            adversary,
            ..HcaConfig::default()
        };
        let shape = Shape {
            data_bytes: BYTES,
            log_receive: Some(4),
            mtu: 5,
            ..Shape::default()
        };
        let mut pair = Pair::with(&config, shape.clone(), shape);
        let own: Vec<u8> = (0..BYTES as u64).map(stored).collect();
        pair.a.data.write(0, &own);
        let parts = [
            Inline(40),
            Memory(3, PART),
            Inline(17),
            Memory(1 << 21, PART),
        ];
        let (units, bytes) = message(&pair.a, &parts);
        let what = format!("loopback {loopback}, adversary {adversary:?}");
        let (remote, rkey) = (pair.b.data.address() + 9, pair.b.keys.rkey);
        let rest = [raddr(remote, rkey).as_slice(), &units].concat();
        pair.a
            .write_wqe(WqeOpcode::RDMA_WRITE, 0, SIGNALLED, 0, &rest);
        assert_eq!(
            pair.a.run(1)[0].byte_cnt.get() as usize,
            bytes.len(),
            "{what}"
        );
        assert!(pair.b.data.read(9, bytes.len()) == bytes, "{what}");
        pair.b.data.write(0, &vec![0; BYTES]);
        pair.b.post_receive(9, u32::try_from(BYTES - 9).unwrap());
        pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &units);
        assert_eq!(pair.a.run(1)[0].opcode(), CqeOpcode::REQ, "{what}");
        assert_eq!(
            pair.b.completion().byte_cnt.get() as usize,
            bytes.len(),
            "{what}"
        );
        assert!(pair.b.data.read(9, bytes.len()) == bytes, "{what}");
        pair.assert_clean();
    }
}

/// Posts a WQE that is wrong: its syndrome, and the kinds of findings of the first HCA.
fn refusal(
    pair: &mut Pair,
    opcode: WqeOpcode,
    rest: &[u8],
    what: &str,
) -> (Syndrome, Vec<Finding>) {
    let index = pair.a.write_wqe(opcode, 0, SIGNALLED, 0, rest);
    let cqe = pair.a.run(1)[0];
    assert_eq!(cqe.opcode(), CqeOpcode::REQ_ERR, "{what}");
    assert_eq!(cqe.wqe_counter.get(), index, "{what}");
    let findings = pair.hca_a.finding_counts();
    (cqe.as_error().reason(), findings.into_keys().collect())
}

#[test]
fn inline_data_that_runs_past_its_wqe_is_refused_behind_segments_too() {
    every_pair(|mut pair, what| {
        let (units, _) = message(&pair.a, &[Inline(3), Memory(0, 8)]);
        // The last unit has room for 12 bytes.
        let mut last = inline(&[7; 12]);
        last[3] = 13;
        let rest = [address(&pair, WqeOpcode::SEND), units, last].concat();
        post_receive(&mut pair.b);
        let found = refusal(&mut pair, WqeOpcode::SEND, &rest, what);
        let expected = (Syndrome::LOCAL_QP_OP_ERR, vec![Finding::WqeSegment]);
        assert_eq!(found, expected, "{what}");
        assert_eq!(received(&pair.b, 600), [0; 600], "{what}");
    });
}

#[test]
fn a_key_that_does_not_fit_behind_inline_data_fails_the_message() {
    every_pair(|mut pair, what| {
        let (mut units, _) = message(&pair.a, &[Inline(300), Memory(0, 700), Inline(20)]);
        units.extend(data(8, pair.a.keys.lkey ^ 1, pair.a.data.address()));
        let rest = [address(&pair, WqeOpcode::SEND), units].concat();
        post_receive(&mut pair.b);
        let found = refusal(&mut pair, WqeOpcode::SEND, &rest, what);
        let expected = (Syndrome::LOCAL_PROT_ERR, vec![Finding::LocalKey]);
        assert_eq!(found, expected, "{what}");
        let none = pair.b.poll_for(Duration::from_millis(5), |cqe| {
            cqe.opcode() != CqeOpcode::RESP_ERR
        });
        assert!(none.is_none(), "{what}: {none:?}");
    });
}

#[test]
fn an_unreliable_message_without_a_receive_is_over_if_its_keys_fit() {
    let shape = Shape {
        kind: Kind::Uc,
        log_receive: Some(4),
        ..Shape::default()
    };
    let mut pair = Pair::new(shape);
    let (mut units, bytes) = message(&pair.a, &[Inline(3), Memory(0, 8), Inline(1)]);
    pair.a.write_wqe(WqeOpcode::SEND, 0, SIGNALLED, 0, &units);
    let cqe = pair.a.run(1)[0];
    assert_eq!(cqe.opcode(), CqeOpcode::REQ);
    assert_eq!(cqe.byte_cnt.get() as usize, bytes.len());
    units.extend(data(8, pair.a.keys.lkey ^ 1, pair.a.data.address()));
    let (syndrome, _) = refusal(&mut pair, WqeOpcode::SEND, &units, "another key");
    assert_eq!(syndrome, Syndrome::LOCAL_PROT_ERR);
    assert_eq!(pair.a.query().state(), u32::from(QpState::SQER.0));
}

#[test]
fn results_go_to_memory_only() {
    for loopback in [true, false] {
        for first in [true, false] {
            let config = HcaConfig {
                loopback,
                ..HcaConfig::default()
            };
            let mut pair = Pair::with(&config, Shape::default(), Shape::default());
            let memory = Memory(0, 8);
            let parts = if first {
                [Inline(8), memory]
            } else {
                [memory, Inline(8)]
            };
            let (units, _) = message(&pair.a, &parts);
            let rest = [address(&pair, WqeOpcode::RDMA_WRITE), units].concat();
            let what = format!("loopback {loopback}, inline first {first}");
            let found = refusal(&mut pair, WqeOpcode::RDMA_READ, &rest, &what);
            let expected = (Syndrome::LOCAL_QP_OP_ERR, vec![Finding::WqeSegment]);
            assert_eq!(found, expected, "{what}");
        }
    }
}
