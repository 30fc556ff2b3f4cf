//! Decodes send WQEs: bytes become operations. The functions are pure: they use neither memory nor objects of the device.
//!
//! Source: PRM "Send WQE Format"; what libmlx5 builds in `mlx5_post_send` and UCX in `uct_ib_mlx5_ep`.

use crate::device::objects::work::{InlineBytes, Local, Piece, Segment};
use crate::link;
use crate::transport::{Datagram, Operation, OperationKind, SendWith, Service, Target};
use crate::wire::headers::{AtomicEth, AtomicOp};
use mlx5_prm::wqe::{
    AtomicSeg, CtrlSeg, DataSeg, DatagramSeg, InlineHeader, MaskedCas32Seg, MaskedCas64Seg,
    MaskedFa32Seg, MaskedFa64Seg, OPMOD_MASKED_4_BYTES, OPMOD_MASKED_8_BYTES, RaddrSeg, SEG_BYTES,
    WqeOpcode, XrcSeg,
};
use std::fmt;
use std::net::Ipv4Addr;

/// A decoded WQE: the operation and its local data. A NOP has no operation.
pub(crate) type Decoded = (Option<Operation>, Local);

/// The reason why a WQE makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecodeError {
    /// The opcode of the WQE is unknown to the device.
    Opcode(WqeOpcode),
    /// The opcode of the WQE is known to the device, but not for this service.
    Service { opcode: WqeOpcode, service: Service },
    /// The address vector of a datagram has the short form. RoCE does not know that form, and no driver uses it on `InfiniBand`.
    ShortAddress,
    /// The opcode modifier of a masked atomic is neither 8 (4 bytes) nor 9 (8 bytes).
    OpMod(u8),
    /// The length `ds` is too small for the segments that the opcode needs.
    Short { ds: usize, need: usize },
    /// Inline data reaches beyond `ds`.
    InlineBeyondEnd { bytes: usize, room: usize },
    /// Inline data stands where the device would have to write a result.
    InlineResult,
    /// The message is longer than the device allows.
    TooLong { bytes: u64, limit: u64 },
    /// The result of an atomic does not fit its segment.
    AtomicLength { bytes: u64, need: u64 },
}

impl DecodeError {
    /// Returns whether only a length is wrong. Otherwise the WQE itself is wrong.
    pub(crate) fn is_length(self) -> bool {
        matches!(self, Self::TooLong { .. } | Self::AtomicLength { .. })
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Opcode(opcode) => write!(f, "opcode {opcode} is unknown"),
            Self::Service { opcode, service } => {
                write!(f, "opcode {opcode} is none for a QP of service {service:?}")
            }
            Self::ShortAddress => write!(f, "the address vector lacks its extended bit"),
            Self::OpMod(opmod) => write!(
                f,
                "opcode modifier {opmod} of a masked atomic is not 8 or 9"
            ),
            Self::Short { ds, need } => write!(f, "ds is {ds}, the opcode needs at least {need}"),
            Self::InlineBeyondEnd { bytes, room } => {
                write!(f, "{bytes} inline bytes where ds leaves room for {room}")
            }
            Self::InlineResult => {
                write!(
                    f,
                    "inline data where the result of a READ or an atomic goes"
                )
            }
            Self::TooLong { bytes, limit } => {
                write!(f, "a message of {bytes} bytes, the limit is {limit}")
            }
            Self::AtomicLength { bytes, need } => {
                write!(f, "{bytes} bytes for the result of an atomic of {need}")
            }
        }
    }
}

/// Largest message: log_max_msg.
pub(crate) const MAX_MESSAGE: u64 = 1 << crate::device::limits::LOG_MESSAGE;

/// The attributes of a QP on which the meaning of its WQEs depends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) service: Service,
    /// Queue key of the QP.
    pub(crate) qkey: u32,
    /// Largest payload of a packet, which is the longest message of a UD QP.
    pub(crate) mtu: u32,
    /// The address of the sender on `InfiniBand`: LIDs in the WQE are LIDs of its subnet. None with RoCE.
    pub(crate) infiniband: Option<Ipv4Addr>,
}

/// Decodes the WQE `wqe` of a QP. The slice is exactly `ds` units long.
///
/// # Errors
///
/// See [`DecodeError`].
pub(crate) fn decode(sender: &Sender, ctrl: &CtrlSeg, wqe: &[u8]) -> Result<Decoded, DecodeError> {
    let opcode = ctrl.opcode();
    if opcode == WqeOpcode::NOP {
        return Ok((None, Local::Nothing));
    }
    let service = sender.service;
    if !is_for(opcode, service) {
        return Err(DecodeError::Service { opcode, service });
    }
    let mut rest = Segments { wqe, at: SEG_BYTES };
    let to = match service {
        Service::Rc | Service::Uc => Target::Connected,
        Service::XrcInitiator | Service::XrcTarget => {
            Target::Srq(rest.take::<XrcSeg>()?.xrc_srqn.get() & 0x00ff_ffff)
        }
        Service::Ud => Target::Datagram(datagram(sender, &rest.take()?)?),
    };
    let kind = match opcode {
        WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM => {
            let to = rest.take::<RaddrSeg>()?;
            OperationKind::Write {
                va: to.raddr.get(),
                rkey: to.rkey.get(),
                immediate: (opcode == WqeOpcode::RDMA_WRITE_IMM).then(|| ctrl.imm.get()),
            }
        }
        WqeOpcode::RDMA_READ => {
            let from = rest.take::<RaddrSeg>()?;
            OperationKind::Read {
                va: from.raddr.get(),
                rkey: from.rkey.get(),
            }
        }
        WqeOpcode::ATOMIC_CS
        | WqeOpcode::ATOMIC_FA
        | WqeOpcode::ATOMIC_MASKED_CS
        | WqeOpcode::ATOMIC_MASKED_FA => OperationKind::Atomic(atomic(ctrl, &mut rest)?),
        WqeOpcode::SEND => OperationKind::Send {
            with: SendWith::Nothing,
        },
        WqeOpcode::SEND_IMM => OperationKind::Send {
            with: SendWith::Immediate(ctrl.imm.get()),
        },
        WqeOpcode::SEND_INVAL => OperationKind::Send {
            with: SendWith::Invalidate(ctrl.imm.get()),
        },
        _ => return Err(DecodeError::Opcode(opcode)),
    };
    let (local, bytes) = rest.data()?;
    let limit = match service {
        Service::Ud => sender.mtu.into(),
        _ => MAX_MESSAGE,
    };
    let bytes = check_length(&kind, &local, bytes, limit)?;
    let operation = Operation {
        to,
        kind,
        bytes,
        solicited: ctrl.fm_ce_se & CtrlSeg::SE != 0,
        fence: ctrl.fm_ce_se & CtrlSeg::FM_MASK != 0,
    };
    Ok((Some(operation), local))
}

/// Returns whether a service has an opcode. An unreliable connection has no opcodes that need an answer. Nor has it SEND_INVAL, since none
/// of its packets can ask for an invalidation. UD has SENDs alone.
///
/// Returns true for opcodes that no service knows: the decoder refuses such opcodes.
fn is_for(opcode: WqeOpcode, service: Service) -> bool {
    let sends = matches!(opcode, WqeOpcode::SEND | WqeOpcode::SEND_IMM);
    let writes = matches!(opcode, WqeOpcode::RDMA_WRITE | WqeOpcode::RDMA_WRITE_IMM);
    let answered = matches!(
        opcode,
        WqeOpcode::SEND_INVAL
            | WqeOpcode::RDMA_READ
            | WqeOpcode::ATOMIC_CS
            | WqeOpcode::ATOMIC_FA
            | WqeOpcode::ATOMIC_MASKED_CS
            | WqeOpcode::ATOMIC_MASKED_FA
    );
    match service {
        Service::Rc | Service::XrcInitiator => true,
        Service::Uc => !answered,
        Service::Ud => sends || !(writes || answered),
        Service::XrcTarget => false,
    }
}

/// Returns the destination of a datagram, from its address vector.
fn datagram(sender: &Sender, to: &DatagramSeg) -> Result<Datagram, DecodeError> {
    if to.dqp_dct.get() & DatagramSeg::EXTENDED == 0 {
        return Err(DecodeError::ShortAddress);
    }
    let qkey = to.qkey.get();
    let (gid, has_grh) = match sender.infiniband {
        None => (to.rgid, true),
        Some(own) => {
            let has_grh = to.grh_gid_fl.get() & DatagramSeg::GRH != 0;
            let peer = link::peer(own, to.rlid.get(), has_grh.then_some(&to.rgid));
            // The GID of all zeros stands for an address without an HCA: the datagram is lost on its way.
            let gid = peer.map_or([0; 16], |peer| peer.to_ipv6_mapped().octets());
            (gid, has_grh)
        }
    };
    Ok(Datagram {
        gid,
        has_grh,
        qpn: to.dqp_dct.get() & 0x00ff_ffff,
        qkey: if qkey & DatagramSeg::OWN_QKEY == 0 {
            qkey
        } else {
            sender.qkey
        },
        hop_limit: to.hop_limit,
        traffic_class: to.tclass,
        path_bits: to.fl_mlid & 0x7f,
    })
}

fn check_length(
    kind: &OperationKind,
    local: &Local,
    bytes: u64,
    limit: u64,
) -> Result<u32, DecodeError> {
    let writes_back = matches!(kind, OperationKind::Read { .. } | OperationKind::Atomic(_));
    if writes_back && matches!(local, Local::Inline(_) | Local::Mixed(_)) {
        return Err(DecodeError::InlineResult);
    }
    if let OperationKind::Atomic(atomic) = kind {
        let need = operand_bytes(&atomic.op);
        if bytes != need {
            return Err(DecodeError::AtomicLength { bytes, need });
        }
    }
    match u32::try_from(bytes) {
        Ok(length) if bytes <= limit => Ok(length),
        _ => Err(DecodeError::TooLong { bytes, limit }),
    }
}

/// Returns the width of the operand of an atomic, in bytes.
pub(crate) fn operand_bytes(op: &AtomicOp) -> u64 {
    match *op {
        AtomicOp::CompareSwap { .. } | AtomicOp::FetchAdd { .. } => 8,
        AtomicOp::MaskedCompareSwap { bytes, .. } | AtomicOp::MaskedFetchAdd { bytes, .. } => {
            bytes.into()
        }
    }
}

fn atomic(ctrl: &CtrlSeg, rest: &mut Segments<'_>) -> Result<AtomicEth, DecodeError> {
    let at = rest.take::<RaddrSeg>()?;
    let opcode = ctrl.opcode();
    let op = match (opcode, ctrl.opmod()) {
        (WqeOpcode::ATOMIC_CS, _) => {
            let operands = rest.take::<AtomicSeg>()?;
            AtomicOp::CompareSwap {
                compare: operands.compare.get(),
                swap: operands.swap_add.get(),
            }
        }
        (WqeOpcode::ATOMIC_FA, _) => AtomicOp::FetchAdd {
            add: rest.take::<AtomicSeg>()?.swap_add.get(),
        },
        (WqeOpcode::ATOMIC_MASKED_CS, OPMOD_MASKED_4_BYTES) => {
            let operands = rest.take::<MaskedCas32Seg>()?;
            AtomicOp::MaskedCompareSwap {
                bytes: 4,
                compare: operands.compare.get().into(),
                swap: operands.swap.get().into(),
                compare_mask: operands.compare_mask.get().into(),
                swap_mask: operands.swap_mask.get().into(),
            }
        }
        (WqeOpcode::ATOMIC_MASKED_CS, OPMOD_MASKED_8_BYTES) => {
            let operands = rest.take::<MaskedCas64Seg>()?;
            AtomicOp::MaskedCompareSwap {
                bytes: 8,
                compare: operands.compare.get(),
                swap: operands.swap.get(),
                compare_mask: operands.compare_mask.get(),
                swap_mask: operands.swap_mask.get(),
            }
        }
        (WqeOpcode::ATOMIC_MASKED_FA, OPMOD_MASKED_4_BYTES) => {
            let operands = rest.take::<MaskedFa32Seg>()?;
            AtomicOp::MaskedFetchAdd {
                bytes: 4,
                add: operands.add.get().into(),
                boundary: operands.field_boundary.get().into(),
            }
        }
        (WqeOpcode::ATOMIC_MASKED_FA, OPMOD_MASKED_8_BYTES) => {
            let operands = rest.take::<MaskedFa64Seg>()?;
            AtomicOp::MaskedFetchAdd {
                bytes: 8,
                add: operands.add.get(),
                boundary: operands.field_boundary.get(),
            }
        }
        (_, opmod) => return Err(DecodeError::OpMod(opmod)),
    };
    Ok(AtomicEth {
        va: at.raddr.get(),
        rkey: at.rkey.get(),
        op,
    })
}

/// The segments after the control segment.
struct Segments<'a> {
    wqe: &'a [u8],
    at: usize,
}

impl Segments<'_> {
    /// Takes the next segment, whose size is a multiple of 16 bytes.
    fn take<T: bytemuck::AnyBitPattern>(&mut self) -> Result<T, DecodeError> {
        let end = self.at + size_of::<T>();
        let short = DecodeError::Short {
            ds: self.wqe.len() / SEG_BYTES,
            need: end / SEG_BYTES,
        };
        let bytes = self.wqe.get(self.at..end).ok_or(short)?;
        self.at = end;
        bytemuck::try_pod_read_unaligned(bytes).map_err(|_| short)
    }

    /// Takes all that is left: data segments and inline data, in any order. Returns the data and their length.
    fn data(mut self) -> Result<(Local, u64), DecodeError> {
        if self.at == self.wqe.len() {
            return Ok((Local::Nothing, 0));
        }
        let first = self.piece()?;
        let mut bytes = first.bytes();
        if self.at == self.wqe.len() {
            return Ok((first.into(), bytes));
        }
        let mut pieces = vec![first];
        while self.at < self.wqe.len() {
            let piece = self.piece()?;
            bytes += piece.bytes();
            pieces.push(piece);
        }
        Ok((Local::of(pieces), bytes))
    }

    /// Takes a data segment or an inline segment: bit 31 of the first word distinguishes them.
    fn piece(&mut self) -> Result<Piece, DecodeError> {
        let start = self.at;
        let data: DataSeg = self.take()?;
        let count = data.byte_count.get();
        if count & InlineHeader::INLINE != 0 {
            self.at = start;
            let data = self.inline_data(count & InlineHeader::LENGTH_MASK)?;
            return Ok(Piece::Inline(InlineBytes::new(data)));
        }
        Ok(Piece::Memory(Segment {
            lkey: data.lkey.get(),
            address: data.addr.get(),
            // A length of 0 stands for 2^31. `check_length` refuses that as too long.
            bytes: match count {
                0 => 1 << 31,
                count => count.into(),
            },
        }))
    }

    /// Takes inline data at the current unit: header and payload, padded to whole units.
    fn inline_data(&mut self, bytes: u32) -> Result<&[u8], DecodeError> {
        let bytes = bytes as usize;
        let start = self.at + size_of::<InlineHeader>();
        let room = self.wqe.len() - start;
        if bytes > room {
            return Err(DecodeError::InlineBeyondEnd { bytes, room });
        }
        self.at = (start + bytes).next_multiple_of(SEG_BYTES);
        Ok(&self.wqe[start..start + bytes])
    }
}

#[cfg(test)]
mod tests;
