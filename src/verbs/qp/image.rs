//! The bytes that the control memory of a QP must hold before the QP leaves Reset. [`Qp::write_image`](crate::verbs::Qp::write_image)
//! writes them into host memory itself, and the owner of device memory writes them there.

use bytemuck::Zeroable;
use mlx5_prm::be::Be32;
use mlx5_prm::cqe::Cqe64;
use mlx5_prm::doorbell::qp_record;
use mlx5_prm::wqe::DataSeg;

use crate::abi::{self, DevicePtr, EMPTY_BYTE, MODE_WIDE_CQ, QpContext, WQEBB_BYTES};
use crate::config::setters;
use crate::verbs::limits::{CQE_BYTES, LINE_BYTES, RECORDS_BYTES};

/// Numbers of bytes, as lengths in memory of this process.
const CQE: usize = size_of::<Cqe64>();
const LINE: usize = 128;
const RECORDS: usize = 2 * LINE;
const _: () = {
    assert!(CQE as u64 == CQE_BYTES && LINE as u64 == LINE_BYTES);
    assert!(RECORDS as u64 == RECORDS_BYTES);
};

/// The addresses of a QP's parts. Kernels use these addresses, and so does the HCA for parts in device memory. The doorbell's addresses are
/// those of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpLayout {
    /// QP number.
    pub qpn: u32,
    /// CQ number.
    pub cqn: u32,
    /// Ring length in WQEBBs.
    pub depth: u32,
    /// The 896-byte context, aligned to 128.
    pub context_addr: u64,
    /// The context's offset in the control heap.
    pub context_offset: u64,
    /// The flag words, 8 bytes per WQEBB.
    pub flags_addr: u64,
    /// The send queue, 64 bytes per WQEBB.
    pub sq_addr: u64,
    /// The collapsed CQE, or the first of `depth` CQEs.
    pub cqe_addr: u64,
    /// The doorbell record of send and receive queue; 0 if neither has one.
    pub dbrec_addr: u64,
    /// The doorbell register, in this process.
    pub doorbell_addr: u64,
    /// The register's page, in this process: what `Gpu::map_mmio` takes.
    pub doorbell_page_addr: u64,
    /// The mailbox, if the QP is rung by one.
    pub mailbox_addr: Option<u64>,
    /// CQE line and doorbell records with host queues, laid out as in the context.
    pub records_addr: Option<u64>,
    /// The receive queue, if the QP has one.
    pub recv: Option<RecvLayout>,
    /// Number of completions that a wide CQ held before, modulo 2^24. A reset of the QP does not set the CQ back.
    pub produced: u32,
    /// Bits of [`QpContext::mode`].
    pub mode: u32,
    /// The atomics that the device can do: bits of [`QpContext::atomics`].
    pub atomics: u32,
}

/// The addresses of the receive queue and its CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvLayout {
    /// Number of the receive queue's CQ.
    pub cqn: u32,
    /// Number of entries of the receive queue, and of its CQ.
    pub depth: u32,
    /// The receive WQEs, 16 bytes each, directly in front of the send queue.
    pub rq_addr: u64,
    /// The first CQE. The CQ's record lies after the last CQE.
    pub cqe_addr: u64,
    /// Number of completions that the CQ held before, modulo 2^24.
    pub produced: u32,
}

/// The values of a QP context besides its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageAttr {
    /// The doorbell register's address for kernels. Ignored with a mailbox.
    pub doorbell: u64,
    /// The HCA's address of eight bytes that take unwanted results of atomics. 0 if no kernel does atomics.
    pub atomic_sink: u64,
    /// lkey of the memory at `atomic_sink`.
    pub atomic_sink_lkey: u32,
    /// The life of the QP: 0 at first, and one more with each recovery.
    pub life: u32,
    /// First index of this life, a multiple of 65,536, since the HCA counts WQEBBs from 0 after a reset.
    pub base: u64,
}

setters! {
    const ImageAttr {
        with_doorbell(doorbell: u64),
        with_atomic_sink(atomic_sink: u64),
        with_atomic_sink_lkey(atomic_sink_lkey: u32),
        with_life(life: u32),
        with_base(base: u64),
    }
}

impl ImageAttr {
    /// Returns the values for the first life of a QP on which no kernel does atomics.
    #[must_use]
    pub const fn new(doorbell: u64) -> Self {
        Self {
            doorbell,
            atomic_sink: 0,
            atomic_sink_lkey: 0,
            life: 0,
            base: 0,
        }
    }
}

/// The bytes for one place in the memory of a QP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePart {
    /// Address of the first byte for kernels.
    pub addr: u64,
    /// The bytes of that place, a multiple of 8 in number.
    pub bytes: Vec<u8>,
}

impl QpLayout {
    /// Returns the context of a QP that has posted nothing since `attr.base`.
    ///
    /// # Panics
    ///
    /// If `attr.base` is not a multiple of 65,536: then slot, 16-bit index and CQE would disagree with the hardware.
    #[must_use]
    pub fn context(&self, attr: &ImageAttr) -> QpContext {
        assert!(attr.base.is_multiple_of(1 << 16), "base {:#x}", attr.base);
        let recv = self.recv.as_ref();
        let consumed = recv.map_or(0, |recv| recv.produced.into());
        QpContext {
            sq: DevicePtr::new(self.sq_addr),
            flags: DevicePtr::new(self.flags_addr),
            dbrec: DevicePtr::new(self.dbrec_addr),
            doorbell: DevicePtr::new(self.mailbox_addr.unwrap_or(attr.doorbell)),
            cqe: DevicePtr::new(self.cqe_addr),
            atomic_sink: DevicePtr::new(attr.atomic_sink),
            qpn_be: (self.qpn << 8).to_be(),
            qpn: self.qpn,
            mask: self.depth - 1,
            depth: self.depth,
            mode: self.mode,
            atomics: self.atomics,
            atomic_sink_lkey_be: attr.atomic_sink_lkey.to_be(),
            life: attr.life,
            recv_cqe: DevicePtr::new(recv.map_or(0, |recv| recv.cqe_addr)),
            recv_mask: recv.map_or(0, |recv| recv.depth - 1),
            recv_base: consumed,
            claim: attr.base,
            resv: attr.base,
            cons: attr.base,
            doorbell_index: attr.base,
            base: attr.base,
            cq_consumed: self.produced.into(),
            recv_consumed: consumed,
            cqe_line: [EMPTY_BYTE; 128],
            sq_dbrec: self.dbrec(),
            ..QpContext::zeroed()
        }
    }

    /// Returns everything that must be in memory before the QP leaves Reset: context, flags, send queue, and what else the QP has.
    ///
    /// # Panics
    ///
    /// As [`QpLayout::context`].
    #[must_use]
    pub fn image(&self, attr: &ImageAttr) -> Vec<ImagePart> {
        let depth = self.depth as usize;
        let mut flags = vec![EMPTY_BYTE; depth * size_of::<u64>()];
        // `base` is a multiple of the depth, so the token is parked in the first flag.
        flags[..size_of::<u64>()].copy_from_slice(&abi::parked(attr.base).to_le_bytes());
        let context = self.context(attr);
        let context = bytemuck::bytes_of(&context);
        let part = |addr, bytes| ImagePart { addr, bytes };
        let mut parts = vec![
            part(self.context_addr, context.to_vec()),
            part(self.flags_addr, flags),
            part(self.sq_addr, vec![EMPTY_BYTE; depth * WQEBB_BYTES as usize]),
        ];
        if let Some(addr) = self.records_addr {
            let first = QpContext::CQE_OFFSET;
            let records = &context[first..first + RECORDS];
            parts.push(part(addr, records.to_vec()));
        }
        if self.mode & MODE_WIDE_CQ != 0 {
            parts.push(part(self.cqe_addr, empty_ring(self.depth, self.produced)));
        }
        if let Some(recv) = &self.recv {
            parts.push(part(recv.rq_addr, null_receives(recv.depth)));
            let mut cqes = empty_ring(recv.depth, recv.produced);
            // The CQ's record says that nothing was consumed and that the CQ was never armed.
            cqes.resize(cqes.len() + LINE, 0);
            parts.push(part(recv.cqe_addr, cqes));
        }
        parts
    }

    /// Returns the doorbell record in which all receive WQEs are posted and nothing is sent.
    pub(in crate::verbs) fn dbrec(&self) -> [u32; 2] {
        let mut record = [0; 2];
        let posted = self.recv.as_ref().map_or(0, |recv| recv.depth);
        record[qp_record::RCV / 4] = posted.to_be();
        record
    }
}

/// Returns a ring of CQEs after `produced` completions in which no CQE looks valid: the opcode is 15, and the owner bit is not the bit of
/// the lap that writes the entry next.
fn empty_ring(depth: u32, produced: u32) -> Vec<u8> {
    let mut ring = vec![EMPTY_BYTE; depth as usize * CQE];
    let next = produced & (depth - 1);
    let lap = (produced / depth) & 1;
    for (at, entry) in (0..).zip(ring.chunks_exact_mut(CQE)) {
        let due = if at < next { lap ^ 1 } else { lap };
        // The owner bit is bit 0 of the last byte.
        entry[CQE - 1] = if due == 0 { EMPTY_BYTE } else { EMPTY_BYTE - 1 };
    }
    ring
}

/// Returns receive WQEs that take no data, since a write with immediate brings its own address.
pub(in crate::verbs) fn null_receives(depth: u32) -> Vec<u8> {
    let nothing = DataSeg {
        lkey: Be32::new(DataSeg::INVALID_LKEY),
        ..DataSeg::default()
    };
    bytemuck::bytes_of(&nothing).repeat(depth as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: QpLayout = QpLayout {
        qpn: 0x00ab_cdef,
        cqn: 5,
        depth: 256,
        context_addr: 0x10_0000,
        context_offset: 0,
        flags_addr: 0x10_1000,
        sq_addr: 0x10_2000,
        cqe_addr: 0x10_0000 + QpContext::CQE_OFFSET as u64,
        dbrec_addr: 0x10_0000 + QpContext::SQ_DBREC_OFFSET as u64,
        doorbell_addr: 0x7000_0800,
        doorbell_page_addr: 0x7000_0000,
        mailbox_addr: None,
        records_addr: None,
        recv: None,
        produced: 0,
        mode: 0,
        atomics: abi::ATOMIC_64,
    };

    fn attr(base: u64) -> ImageAttr {
        ImageAttr {
            doorbell: 0xd000_0800,
            atomic_sink: 0,
            atomic_sink_lkey: 0x1122_3344,
            life: 3,
            base,
        }
    }

    #[test]
    fn ring_flags_and_cqe_start_empty_and_the_token_is_parked_at_the_base() {
        for base in [0, 65_536, 1 << 40] {
            let parts = LAYOUT.image(&attr(base));
            let [context, flags, sq] = &parts[..] else {
                panic!("{} parts", parts.len());
            };
            assert_eq!(
                (context.addr, context.bytes.len()),
                (LAYOUT.context_addr, size_of::<QpContext>())
            );
            assert!(
                context.bytes[512..576].iter().all(|byte| *byte == 0xff),
                "CQE"
            );
            assert!(
                context.bytes[640..768].iter().all(|byte| *byte == 0),
                "doorbell records"
            );
            assert_eq!(flags.bytes[..8], (base << 1 | 1).to_le_bytes());
            assert!(flags.bytes[8..].iter().all(|byte| *byte == 0xff));
            assert_eq!((flags.bytes.len(), sq.bytes.len()), (2048, 16384));
            assert!(sq.bytes.iter().all(|byte| *byte == 0xff));
            let read: QpContext = bytemuck::pod_read_unaligned(&context.bytes);
            assert_eq!(
                [
                    read.claim,
                    read.resv,
                    read.cons,
                    read.doorbell_index,
                    read.base
                ],
                [base; 5]
            );
        }
    }

    #[test]
    fn words_for_the_control_segment_are_big_endian_in_memory() {
        let context = LAYOUT.context(&attr(0));
        assert_eq!(bytemuck::bytes_of(&context.qpn_be), [0xab, 0xcd, 0xef, 0]);
        assert_eq!(
            bytemuck::bytes_of(&context.atomic_sink_lkey_be),
            [0x11, 0x22, 0x33, 0x44]
        );
        assert_eq!((context.mask, context.depth, context.life), (255, 256, 3));
    }

    #[test]
    #[should_panic(expected = "base 0x100")]
    fn a_base_that_the_hardware_would_not_agree_with_is_a_bug() {
        let _ = LAYOUT.context(&attr(256));
    }

    /// Returns whether an entry looks valid to libmlx5 (by the owner bit of the lap) and to kernels (by the opcode).
    fn looks_valid(ring: &[u8], depth: u32, consumed: u32) -> (bool, bool) {
        let last = ring[(consumed % depth) as usize * 64 + 63];
        let lap = u8::try_from((consumed / depth) & 1).unwrap();
        (last & 1 == lap, last >> 4 != 15)
    }

    #[test]
    fn no_entry_of_a_fresh_ring_looks_valid_wherever_the_device_goes_on() {
        for depth in [16, 256] {
            for produced in [0, 1, 15, 255, 256, 257, 511, 512, 0xff_ffff] {
                let ring = empty_ring(depth, produced);
                for ahead in 0..depth {
                    let looks = looks_valid(&ring, depth, produced.wrapping_add(ahead));
                    assert_eq!(looks, (false, false), "{depth} {produced} +{ahead}");
                }
            }
        }
    }

    #[test]
    fn receive_queue_and_wide_ring_have_parts_and_the_record_counts_receives() {
        let layout = QpLayout {
            cqe_addr: 0x20_0000,
            mode: MODE_WIDE_CQ,
            produced: 300,
            recv: Some(RecvLayout {
                cqn: 6,
                depth: 64,
                rq_addr: 0x30_0000,
                cqe_addr: 0x31_0000,
                produced: 70,
            }),
            ..LAYOUT
        };
        let parts = layout.image(&attr(65_536));
        let places: Vec<_> = parts.iter().map(|p| (p.addr, p.bytes.len())).collect();
        assert_eq!(
            places[3..],
            [
                (0x20_0000, 256 * 64),
                (0x30_0000, 64 * 16),
                (0x31_0000, 64 * 64 + 128)
            ]
        );
        assert_eq!(parts[0].bytes[640..648], [0, 0, 0, 64, 0, 0, 0, 0]);
        assert_eq!(parts[4].bytes[..8], [0, 0, 0, 0, 0, 0, 1, 0]);
        let context = layout.context(&attr(65_536));
        assert_eq!(
            (
                context.cq_consumed,
                context.recv_consumed,
                context.recv_base
            ),
            (300, 70, 70)
        );
        assert_eq!(context.recv_mask, 63);
        assert!(parts.iter().all(|part| part.bytes.len() % 8 == 0));
    }

    #[test]
    fn host_queues_have_line_and_records_in_a_part_of_their_own() {
        let layout = QpLayout {
            records_addr: Some(0x40_0000),
            mailbox_addr: Some(0x50_0040),
            mode: abi::MODE_MAILBOX,
            ..LAYOUT
        };
        let parts = layout.image(&attr(0));
        let records = &parts[3];
        assert_eq!((records.addr, records.bytes.len()), (0x40_0000, 256));
        assert!(records.bytes[..64].iter().all(|byte| *byte == 0xff));
        assert!(records.bytes[128..].iter().all(|byte| *byte == 0));
        let doorbell = layout.context(&attr(0)).doorbell;
        assert_eq!(doorbell, DevicePtr::new(0x50_0040));
    }
}
