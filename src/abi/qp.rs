//! The context of one QP in device memory, and the words of its ring.

use super::{DevicePtr, Status};

abi_const! {
    /// Bytes of a WQEBB, the unit of the send queue. PRM "WQE Basic Block".
    pub const WQEBB_BYTES: u32 = 64;
    /// Least depth of a send queue, WQEBBs. A quarter of it is the most that one call may post, and holds a put and a signal of a
    /// warp.
    pub const MIN_DEPTH: u32 = 256;
    /// Greatest depth of a send queue, WQEBBs: half the range of the 16-bit WQE counter.
    pub const MAX_DEPTH: u32 = 32768;
    /// Most bytes of one inline put: what fits into one WQEBB after control, address and inline header.
    pub const MAX_INLINE_BYTES: u32 = 28;
    /// Most bytes of one put. PRM "max_msg_sz" of an RC QP.
    pub const MAX_PUT_BYTES: u32 = 1 << 30;
    /// Rounds that a holder of the doorbell token serves others before it leaves.
    pub const SERVICE_ROUNDS: u32 = 64;
    /// `QpContext::mode` bit: one thread or one warp at a time uses the QP; no flags, no atomics.
    pub const MODE_EXCLUSIVE: u32 = 1;
    /// `QpContext::mode` bit: the threads of one block use the QP; flags and atomics of block scope.
    pub const MODE_CTA: u32 = 2;
    /// `QpContext::mode` bit: the QP has no doorbell record, and the doorbell says how far to run. PRM "send_dbr_mode".
    pub const MODE_NO_RECORD: u32 = 4;
    /// `QpContext::mode` bit: `doorbell` is a word of host memory, from which a host thread rings.
    pub const MODE_MAILBOX: u32 = 8;
    /// `QpContext::mode` bit: ring, doorbell record and CQEs lie in host memory.
    pub const MODE_HOST_QUEUES: u32 = 16;
    /// `QpContext::mode` bit: the CQ has `depth` entries, so that the first error completion is never overwritten.
    pub const MODE_WIDE_CQ: u32 = 32;
    /// `QpContext::atomics` bit: fetch-and-add and compare-and-swap of 8 bytes.
    pub const ATOMIC_64: u32 = 1;
    /// `QpContext::atomics` bit: the masked forms of 4 bytes.
    pub const ATOMIC_MASKED_32: u32 = 2;
    /// `QpContext::atomics` bit: the masked forms of 8 bytes.
    pub const ATOMIC_MASKED_64: u32 = 4;
    /// `QpContext::atomics` bit: results of 8 bytes are big-endian; those of 4 bytes always are.
    pub const ATOMIC_RESULT_BE: u32 = 8;
    /// What the host fills the ring, the flags and the CQE with before a QP leaves Reset.
    pub const EMPTY_BYTE: u8 = 0xff;
}

abi_struct! {
    /// One QP as kernels see it: 896 bytes of the control heap, in lines of 128 bytes by their writer.
    ///
    /// A line that the NIC reads or writes holds no word that SMs change by atomics. Indices count WQEBBs, are 64 bits wide
    /// and never wrap; ring position = index & mask, 16-bit WQE index = low half.
    align(128)
    pub struct QpContext {
        /// The send queue: `depth` WQEBBs. Line 0 is constant while the team lives, except `life`.
        pub sq: DevicePtr<u8>,
        /// One flag word per WQEBB: where the doorbell token is parked, which batches are written.
        pub flags: DevicePtr<u64>,
        /// The doorbell record: big-endian receive counter, then send counter, u32 each. PRM "Doorbell Record".
        pub dbrec: DevicePtr<u32>,
        /// The doorbell register of this QP: 8 bytes of the UAR, write-only. PRM "DoorBell Register".
        pub doorbell: DevicePtr<u64>,
        /// The one collapsed CQE: 64 bytes, overwritten by the NIC at every completion. With MODE_WIDE_CQ, the first of
        /// `depth` CQEs.
        pub cqe: DevicePtr<u8>,
        /// Where results of atomics go that no caller asked for: 8 bytes. Never read.
        pub atomic_sink: DevicePtr<u64>,
        /// QP number, 24 bits, as big-endian `qpn << 8`: second word of a doorbell and, with ds in its last byte, of a control
        /// segment.
        pub qpn_be: u32,
        /// depth - 1.
        pub mask: u32,
        /// Ring length in WQEBBs: a power of two, MIN_DEPTH to MAX_DEPTH.
        pub depth: u32,
        /// Bits MODE_EXCLUSIVE to MODE_WIDE_CQ.
        pub mode: u32,
        /// lkey of `atomic_sink`, big-endian.
        pub atomic_sink_lkey_be: u32,
        /// Grows with each recovery. Written by the host inside the grace period.
        pub life: u32,
        /// QP number, 24 bits, for dumps.
        pub qpn: u32,
        /// Rank at the other end.
        pub peer: u32,
        /// The first CQE of the receive queue, `recv_mask + 1` of 64 bytes; null without a receive queue.
        pub recv_cqe: DevicePtr<u8>,
        /// Entries of the receive queue - 1.
        pub recv_mask: u32,
        /// Rail of this QP: its number among the HCAs of the rank.
        pub rail: u32,
        /// Bits ATOMIC_64 to ATOMIC_RESULT_BE: what the device can do.
        pub atomics: u32,
        /// Reserved, zero.
        pub reserved0: u32,
        /// A word of host memory that a kernel sets to 1 after `err`. By it the host need not look at QPs that work. The QPs to 64
        /// peers share one word. Null: no host looks.
        pub failed: DevicePtr<u32>,
        /// Reserved, zero.
        pub reserved7: [u32; 2],
        /// `recv_consumed` at which this life of the receive queue began: its receive counter is, modulo 2^16,
        /// recv_consumed - recv_base + recv_mask + 1.
        pub recv_base: u64,

        /// Ring space asked for, WQEBBs: grants plus refusals not yet undone. Line 1: posters, by atomics.
        pub claim: u64,
        /// Next index; advanced only by a thread whose claim was granted.
        pub resv: u64,
        /// Reserved, zero.
        pub reserved1: [u64; 14],

        /// Every index below it has completed without error. Line 2: pollers.
        pub cons: u64,
        /// Index of the last doorbell; monotone, exact up to a doorbell in flight.
        pub doorbell_index: u64,
        /// Index at which this life of the QP began: a ticket at or below it is stale.
        pub base: u64,
        /// `Status` of the first failure that was seen; sticky until recovery.
        pub err: Status,
        /// vendor_err_synd << 8 | syndrome of the error CQE behind `err`, big-endian fields already swapped. A cause only if `err`
        /// is `cqe_error`: with `flushed` it is that of a WQE after the one that failed.
        pub syndrome: u32,
        /// CQEs taken from the CQ, with MODE_WIDE_CQ.
        pub cq_consumed: u64,
        /// CQEs taken from the receive queue's CQ.
        pub recv_consumed: u64,
        /// Receive WQEs given back since the QP left Reset; the record's receive counter is this plus the queue's length.
        pub recv_posted: u64,
        /// CQEs that were taken and whose WQEs are not given back yet.
        pub recv_owed: u64,
        /// Reserved, zero.
        pub reserved2: [u64; 8],

        /// Nonzero: calls on this QP end `aborted`. Line 3: written by the host.
        pub abort: u32,
        /// Reserved, zero.
        pub reserved3: [u32; 31],

        /// The collapsed CQE itself. Line 4: written by the NIC.
        pub cqe_line: [u8; 128],

        /// Doorbell record of the send queue. Line 5: read by the NIC, written by the holder of the token.
        pub sq_dbrec: [u32; 2],
        /// Reserved, zero.
        pub reserved4: [u32; 14],
        /// Doorbell record of the CQ, at +64. Never written after creation: the CQ ignores overrun.
        pub cq_dbrec: [u32; 2],
        /// Reserved, zero.
        pub reserved5: [u32; 14],

        /// Doorbells rung, by kernels or by the host for them. Line 6: counters, kept through recoveries; the host reads them
        /// while kernels run.
        pub doorbells: u64,
        /// Time that calls have waited for ring space, ns, summed over all callers.
        pub full_ring_ns: u64,
        /// Failures latched in `err`.
        pub errors: u64,
        /// Reserved, zero.
        pub reserved6: [u64; 13],
    }
}

const _: () = {
    assert!(size_of::<QpContext>() == 896 && align_of::<QpContext>() == 128);
    assert!(core::mem::offset_of!(QpContext, claim) == 128);
    assert!(core::mem::offset_of!(QpContext, cons) == 256);
    assert!(core::mem::offset_of!(QpContext, abort) == 384);
    assert!(core::mem::offset_of!(QpContext, cqe_line) == QpContext::CQE_OFFSET);
    assert!(core::mem::offset_of!(QpContext, sq_dbrec) == QpContext::SQ_DBREC_OFFSET);
    assert!(core::mem::offset_of!(QpContext, cq_dbrec) == QpContext::CQ_DBREC_OFFSET);
    assert!(core::mem::offset_of!(QpContext, doorbells) == 768);
};

impl QpContext {
    /// Byte offset of the CQE in the context.
    pub const CQE_OFFSET: usize = 512;
    /// Byte offset of the send queue's doorbell record.
    pub const SQ_DBREC_OFFSET: usize = 640;
    /// Byte offset of the CQ's doorbell record.
    pub const CQ_DBREC_OFFSET: usize = 704;
}

/// Returns the flag word S(index, 0): the doorbell token is parked at `index`, and nothing is owed. A flag word holds the low 47 bits of
/// the index. A fresh QP has `parked(0)` in flag 0.
#[must_use]
pub const fn parked(index: u64) -> u64 {
    (index << 1 | 1) & ((1 << 48) - 1)
}

/// Bytes of control heap that a QP of `depth` WQEBBs takes: context, flags and send queue.
#[must_use]
pub const fn control_bytes(depth: u32) -> u64 {
    size_of::<QpContext>() as u64 + depth as u64 * (size_of::<u64>() as u64 + WQEBB_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qp_of_depth_1024_takes_about_73_kib() {
        assert_eq!(control_bytes(1024), 74_624);
    }

    #[test]
    fn a_parked_token_is_an_odd_word_that_holds_its_index() {
        assert_eq!(parked(0), 1);
        assert_eq!(parked(65_536), 0x2_0001);
        assert_eq!(parked((1 << 47) + 3), 7, "the low 47 bits");
    }
}
