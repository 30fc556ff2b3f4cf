//! What the control memory of a QP must hold before the QP leaves Reset. `verbs` says what to write; the owner of the
//! memory writes it.

use bytemuck::Zeroable;

use crate::abi::{self, DevicePtr, EMPTY_BYTE, QpContext, WQEBB_BYTES};

/// Where everything of a QP lies. Addresses are those of the control heap's region, as kernels and the HCA use them, except
/// the doorbell's, which is of this process.
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
    /// Its offset in the control heap.
    pub context_offset: u64,
    /// The flag words, 8 bytes per WQEBB.
    pub flags_addr: u64,
    /// The send queue, 64 bytes per WQEBB.
    pub sq_addr: u64,
    /// The CQE, inside the context.
    pub cqe_addr: u64,
    /// The send queue's doorbell record, inside the context.
    pub dbrec_addr: u64,
    /// The doorbell register, in this process.
    pub doorbell_addr: u64,
    /// The register's page, in this process: what `Gpu::map_mmio` takes.
    pub doorbell_page_addr: u64,
    /// Bits of [`QpContext::mode`].
    pub mode: u32,
    /// What the device can do of atomics: bits of [`QpContext::atomics`].
    pub atomics: u32,
}

/// What a QP context holds besides its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageAttr {
    /// The doorbell register as kernels address it.
    pub doorbell: u64,
    /// Eight bytes that swallow the results of atomics, as kernels and the HCA address them; 0 if no kernel does atomics.
    pub atomic_sink: u64,
    /// lkey of the sink.
    pub atomic_sink_lkey: u32,
    /// Generation of the QP: 0 at first, one more with each recovery.
    pub generation: u32,
    /// First index of this life, a multiple of 65,536: after a reset the HCA counts WQEBBs from 0.
    pub base: u64,
}

/// Bytes for one place in the control heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePart {
    /// First byte, as the region's owner addresses it.
    pub addr: u64,
    /// What belongs there.
    pub bytes: Vec<u8>,
}

impl QpLayout {
    /// The context of a QP that has posted nothing since `attr.base`.
    ///
    /// # Panics
    ///
    /// If `attr.base` is not a multiple of 65,536: slot, 16-bit index and CQE would disagree with the hardware.
    #[must_use]
    pub fn context(&self, attr: &ImageAttr) -> QpContext {
        assert!(attr.base.is_multiple_of(1 << 16), "base {:#x}", attr.base);
        QpContext {
            sq: DevicePtr::new(self.sq_addr),
            flags: DevicePtr::new(self.flags_addr),
            dbrec: DevicePtr::new(self.dbrec_addr),
            doorbell: DevicePtr::new(attr.doorbell),
            cqe: DevicePtr::new(self.cqe_addr),
            atomic_sink: DevicePtr::new(attr.atomic_sink),
            qpn_be: (self.qpn << 8).to_be(),
            qpn: self.qpn,
            mask: self.depth - 1,
            depth: self.depth,
            mode: self.mode,
            atomics: self.atomics,
            atomic_sink_lkey_be: attr.atomic_sink_lkey.to_be(),
            generation: attr.generation,
            claim: attr.base,
            resv: attr.base,
            cons: attr.base,
            doorbell_index: attr.base,
            base: attr.base,
            cqe_line: [EMPTY_BYTE; 128],
            ..QpContext::zeroed()
        }
    }

    /// Everything that must be in memory before the QP leaves Reset: context, flags, send queue.
    ///
    /// # Panics
    ///
    /// As [`QpLayout::context`].
    #[must_use]
    pub fn image(&self, attr: &ImageAttr) -> [ImagePart; 3] {
        let depth = self.depth as usize;
        let mut flags = vec![EMPTY_BYTE; depth * size_of::<u64>()];
        // `base` is a multiple of the depth, so the token is parked in the first flag.
        flags[..size_of::<u64>()].copy_from_slice(&abi::parked(attr.base).to_le_bytes());
        [
            ImagePart {
                addr: self.context_addr,
                bytes: bytemuck::bytes_of(&self.context(attr)).to_vec(),
            },
            ImagePart {
                addr: self.flags_addr,
                bytes: flags,
            },
            ImagePart {
                addr: self.sq_addr,
                bytes: vec![EMPTY_BYTE; depth * WQEBB_BYTES as usize],
            },
        ]
    }
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
        mode: 0,
        atomics: abi::ATOMIC_64,
    };

    fn attr(base: u64) -> ImageAttr {
        ImageAttr {
            doorbell: 0xd000_0800,
            atomic_sink: 0,
            atomic_sink_lkey: 0x1122_3344,
            generation: 3,
            base,
        }
    }

    #[test]
    fn ring_flags_and_cqe_start_empty_and_the_token_is_parked_at_the_base() {
        for base in [0, 65_536, 1 << 40] {
            let [context, flags, sq] = LAYOUT.image(&attr(base));
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
        assert_eq!(
            (context.mask, context.depth, context.generation),
            (255, 256, 3)
        );
    }

    #[test]
    #[should_panic(expected = "base 0x100")]
    fn a_base_that_the_hardware_would_not_agree_with_is_a_bug() {
        let _ = LAYOUT.context(&attr(256));
    }
}
