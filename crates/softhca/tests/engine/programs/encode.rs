//! WQEs as bytes.

use super::program::{
    Atomic, Damage, Key, Operation, PART, PART_IOVA, Piece, Receive, Segment, With, Wqe,
};
use mlx5_prm::be::Be32;
use mlx5_prm::wqe::{CtrlSeg, DataSeg, WqeOpcode};
use std::collections::BTreeMap;

/// The numbers of a side's keys, and where its memory starts.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) numbers: BTreeMap<Key, u32>,
    pub(super) base: u64,
}

impl Keys {
    /// Returns the address by which `key` knows the byte `at`.
    fn address(&self, key: Key, at: u64) -> u64 {
        if key == Key::Part {
            PART_IOVA.wrapping_add(at.wrapping_sub(PART.start))
        } else {
            self.base + at
        }
    }

    fn data(&self, segment: &Segment) -> [u8; 16] {
        softhca_rig::data(
            segment.bytes,
            self.numbers[&segment.key],
            self.address(segment.key, segment.at),
        )
    }
}

/// A send WQE of QP `qpn` at `index`.
pub(super) fn wqe(wqe: &Wqe, index: u16, qpn: u32, own: &Keys, peer: &Keys) -> Vec<u8> {
    let units = u8::try_from(wqe.units()).unwrap();
    let mut ctrl = CtrlSeg::new(WqeOpcode(wqe.opcode()), index, qpn, units);
    let imm = match wqe.operation {
        Operation::Write {
            immediate: Some(value),
            ..
        }
        | Operation::Send {
            with: With::Immediate(value),
        } => value,
        Operation::Send {
            with: With::Invalidate(key),
        } => peer.numbers[&key],
        _ => 0,
    };
    ctrl.imm = Be32::new(imm);
    ctrl.fm_ce_se = if wqe.signalled {
        CtrlSeg::CE_ALWAYS
    } else {
        CtrlSeg::CE_ON_ERROR
    } | if wqe.solicited { CtrlSeg::SE } else { 0 }
        | if wqe.fence { 4 << 5 } else { 0 };
    if let Operation::Atomic {
        atomic: Atomic::MaskedCompareSwap { bytes, .. } | Atomic::MaskedFetchAdd { bytes, .. },
        ..
    } = wqe.operation
    {
        ctrl = ctrl.with_opmod(if bytes == 4 { 8 } else { 9 });
    }
    match wqe.damage {
        Some(Damage::OpMod(opmod)) => ctrl = ctrl.with_opmod(opmod),
        Some(Damage::Index(off)) => {
            let wrong = CtrlSeg::new(WqeOpcode(wqe.opcode()), index.wrapping_add(off), qpn, units);
            ctrl.opmod_idx_opcode = wrong.opmod_idx_opcode;
        }
        Some(Damage::Qpn(other)) => {
            let other = if other == qpn { 1 } else { other };
            ctrl.qpn_ds = Be32::new(other << 8 | u32::from(units));
        }
        Some(Damage::NoSize) => ctrl.qpn_ds = Be32::new(qpn << 8),
        Some(Damage::Cut) => ctrl.qpn_ds = Be32::new(qpn << 8 | 1),
        Some(Damage::Opcode(_) | Damage::InlineLength) | None => {}
    }
    let mut bytes = bytemuck::bytes_of(&ctrl).to_vec();
    match &wqe.operation {
        Operation::Nop | Operation::Send { .. } => {}
        Operation::Write { to: at, .. }
        | Operation::Read { from: at }
        | Operation::Atomic { at, .. } => {
            bytes.extend(softhca_rig::raddr(
                peer.address(at.key, at.at),
                peer.numbers[&at.key],
            ));
        }
    }
    if let Operation::Atomic { atomic, .. } = &wqe.operation {
        bytes.extend(operands(atomic));
    }
    for piece in &wqe.local {
        match piece {
            Piece::Memory(segment) => bytes.extend(own.data(segment)),
            Piece::Inline(data) => {
                let at = bytes.len();
                bytes.extend(softhca_rig::inline(data));
                if wqe.damage == Some(Damage::InlineLength) {
                    // More than any WQE has room for.
                    let too_long = 0x8000_0000 | 0x3ff_u32;
                    bytes[at..at + 4].copy_from_slice(&too_long.to_be_bytes());
                }
            }
        }
    }
    if matches!(wqe.operation, Operation::Nop) {
        bytes.truncate(16);
    }
    assert_eq!(bytes.len() as u64, wqe.units() * 16, "{wqe:?}");
    if wqe.damage == Some(Damage::Cut) {
        bytes.truncate(16);
    }
    bytes
}

fn operands(atomic: &Atomic) -> Vec<u8> {
    let low = |value: u64| u32::try_from(value).unwrap().to_be_bytes();
    match *atomic {
        Atomic::CompareSwap { compare, swap } => {
            [swap.to_be_bytes(), compare.to_be_bytes()].concat()
        }
        Atomic::FetchAdd { add } => [add.to_be_bytes(), [0; 8]].concat(),
        Atomic::MaskedCompareSwap {
            bytes: 4,
            compare,
            swap,
            compare_mask,
            swap_mask,
        } => [low(swap), low(compare), low(swap_mask), low(compare_mask)].concat(),
        Atomic::MaskedCompareSwap {
            compare,
            swap,
            compare_mask,
            swap_mask,
            ..
        } => [swap, compare, swap_mask, compare_mask]
            .map(u64::to_be_bytes)
            .concat(),
        Atomic::MaskedFetchAdd {
            bytes: 4,
            add,
            boundary,
        } => [low(add), low(boundary), [0; 4], [0; 4]].concat(),
        Atomic::MaskedFetchAdd { add, boundary, .. } => {
            [add, boundary].map(u64::to_be_bytes).concat()
        }
    }
}

/// Returns a receive WQE of 64 bytes.
pub(super) fn receive(receive: &Receive, own: &Keys) -> Vec<u8> {
    let mut bytes: Vec<u8> = receive
        .segments
        .iter()
        .flat_map(|segment| own.data(segment))
        .collect();
    if bytes.len() < 64 {
        bytes.extend(softhca_rig::data(0, DataSeg::INVALID_LKEY, 0));
    }
    bytes.resize(64, 0);
    bytes
}
