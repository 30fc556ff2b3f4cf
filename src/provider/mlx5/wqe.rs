//! The bytes of a WQE that moves memory: a control segment, a remote address segment, then a data segment for each local range or the bytes
//! themselves.

use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::wqe::{CtrlSeg, DataSeg, InlineHeader, RaddrSeg, SEG_BYTES, WQEBB_BYTES, WqeOpcode};

use crate::provider::{LocalRange, Verb, Work};

/// The most local ranges of a WQE.
pub(super) const MOST_RANGES: usize = 16;
/// The number of segments before the data.
const HEAD: usize = 2;
/// The most bytes that a WQE of one WQEBB carries.
pub(super) const MOST_INLINE: usize = WQEBB_BYTES - HEAD * SEG_BYTES - size_of::<InlineHeader>();
/// The most bytes of a WQE, rounded up to WQEBBs.
const MOST_BYTES: usize = ((HEAD + MOST_RANGES) * SEG_BYTES).next_multiple_of(WQEBB_BYTES);

/// Returns the number of WQEBBs of a WQE over so many local ranges.
pub(super) fn blocks(ranges: usize) -> usize {
    ((HEAD + ranges) * SEG_BYTES).div_ceil(WQEBB_BYTES)
}

/// The place of a WQE's bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Payload<'a> {
    /// The bytes are in registered memory.
    Ranges(&'a [LocalRange]),
    /// The bytes are in the WQE itself.
    Inline(&'a [u8]),
}

impl Payload<'_> {
    fn segments(self) -> usize {
        match self {
            Self::Ranges(ranges) => ranges.len(),
            Self::Inline(bytes) => (size_of::<InlineHeader>() + bytes.len()).div_ceil(SEG_BYTES),
        }
    }
}

/// One WQE, in memory of the posting thread.
pub(super) struct Wqe {
    bytes: [u8; MOST_BYTES],
    blocks: usize,
}

impl Wqe {
    /// Returns the WQE of `work` at WQEBB `index` of the QP `qpn`. The bytes after its last segment are zeros.
    ///
    /// # Panics
    /// For more than [`MOST_RANGES`] segments of payload.
    pub(super) fn new(
        work: &Work,
        payload: Payload<'_>,
        qpn: u32,
        index: u16,
        is_signalled: bool,
    ) -> Self {
        let segments = payload.segments();
        assert!(segments <= MOST_RANGES, "{segments} segments");
        let (opcode, immediate) = match work.verb {
            Verb::Write => (WqeOpcode::RDMA_WRITE, 0),
            Verb::WriteImmediate(word) => (WqeOpcode::RDMA_WRITE_IMM, word),
            Verb::Read => (WqeOpcode::RDMA_READ, 0),
        };
        #[expect(clippy::cast_possible_truncation, reason = "at most 18")]
        let ds = (HEAD + segments) as u8;
        let control = CtrlSeg {
            fm_ce_se: if is_signalled {
                CtrlSeg::CE_ALWAYS
            } else {
                CtrlSeg::CE_ON_ERROR
            },
            imm: Be32::new(immediate),
            ..CtrlSeg::new(opcode, index, qpn, ds)
        };
        let remote = RaddrSeg {
            raddr: Be64::new(work.remote),
            rkey: Be32::new(work.key),
            ..RaddrSeg::default()
        };
        let mut wqe = Self {
            bytes: [0; MOST_BYTES],
            blocks: blocks(segments),
        };
        wqe.put(0, bytemuck::bytes_of(&control));
        wqe.put(1, bytemuck::bytes_of(&remote));
        match payload {
            Payload::Ranges(ranges) => {
                for (nth, range) in ranges.iter().enumerate() {
                    let data = DataSeg {
                        byte_count: Be32::new(range.bytes),
                        lkey: Be32::new(range.key),
                        addr: Be64::new(range.address),
                    };
                    wqe.put(HEAD + nth, bytemuck::bytes_of(&data));
                }
            }
            Payload::Inline(bytes) => wqe.put_inline(bytes),
        }
        wqe
    }

    fn put_inline(&mut self, bytes: &[u8]) {
        #[expect(clippy::cast_possible_truncation, reason = "at most 16 segments")]
        let header = InlineHeader::new(bytes.len() as u32);
        let header = bytemuck::bytes_of(&header);
        let (place, rest) = self.bytes[HEAD * SEG_BYTES..].split_at_mut(header.len());
        place.copy_from_slice(header);
        rest[..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns the bytes of the WQE, whole WQEBBs.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.blocks * WQEBB_BYTES]
    }

    fn put(&mut self, segment: usize, bytes: &[u8]) {
        self.bytes[segment * SEG_BYTES..][..SEG_BYTES].copy_from_slice(bytes);
    }
}
