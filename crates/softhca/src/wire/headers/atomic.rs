//! Headers of atomics: the standard headers, and the form of masked atomics between softhcas.

use super::fields::{be32, be64};
use crate::transport::{AtomicEth, AtomicOp};
use crate::wire::opcode::BthOpcode;

impl AtomicEth {
    /// Length of the header on the wire.
    pub const BYTES: usize = 28;

    pub(crate) fn parse(bytes: &[u8; Self::BYTES], opcode: BthOpcode) -> Self {
        let (first, second) = (be64(bytes, 12), be64(bytes, 20));
        let op = if opcode == BthOpcode::FETCH_ADD {
            AtomicOp::FetchAdd { add: first }
        } else {
            AtomicOp::CompareSwap {
                swap: first,
                compare: second,
            }
        };
        Self {
            va: be64(bytes, 0),
            rkey: be32(bytes, 8),
            op,
        }
    }

    /// Writes the header to `out`. Returns its length: 28 or, for masked operations, 48.
    pub(crate) fn emit(&self, out: &mut [u8]) -> usize {
        out[..8].copy_from_slice(&self.va.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        match self.op {
            AtomicOp::CompareSwap { compare, swap } => {
                put_words(&mut out[12..28], &[swap, compare])
            }
            AtomicOp::FetchAdd { add } => put_words(&mut out[12..28], &[add, 0]),
            AtomicOp::MaskedCompareSwap {
                bytes,
                compare,
                swap,
                compare_mask,
                swap_mask,
            } => {
                out[12..16].copy_from_slice(&[bytes, 0, 0, 0]);
                put_words(&mut out[16..48], &[swap, compare, swap_mask, compare_mask]);
            }
            AtomicOp::MaskedFetchAdd {
                bytes,
                add,
                boundary,
            } => {
                out[12..16].copy_from_slice(&[bytes, 0, 0, 0]);
                put_words(&mut out[16..48], &[add, 0, boundary, 0]);
            }
        }
        self.wire_bytes()
    }

    /// Returns the length of this header on the wire.
    pub const fn wire_bytes(&self) -> usize {
        match self.op {
            AtomicOp::CompareSwap { .. } | AtomicOp::FetchAdd { .. } => Self::BYTES,
            AtomicOp::MaskedCompareSwap { .. } | AtomicOp::MaskedFetchAdd { .. } => {
                MaskedAtomicEth::BYTES
            }
        }
    }

    /// Returns the length of the operand: 8, or 4 for some masked operations.
    pub const fn operand_bytes(&self) -> u8 {
        match self.op {
            AtomicOp::CompareSwap { .. } | AtomicOp::FetchAdd { .. } => 8,
            AtomicOp::MaskedCompareSwap { bytes, .. } | AtomicOp::MaskedFetchAdd { bytes, .. } => {
                bytes
            }
        }
    }

    /// Returns the opcode of packets with this header.
    pub const fn opcode(&self) -> BthOpcode {
        match self.op {
            AtomicOp::CompareSwap { .. } => BthOpcode::COMPARE_SWAP,
            AtomicOp::FetchAdd { .. } => BthOpcode::FETCH_ADD,
            AtomicOp::MaskedCompareSwap { .. } => BthOpcode::MASKED_COMPARE_SWAP,
            AtomicOp::MaskedFetchAdd { .. } => BthOpcode::MASKED_FETCH_ADD,
        }
    }
}

/// Wire form of masked atomics, which only softhcas use among each other.
///
/// `va 8 | rkey 4 | operand bytes 1 | zero 3 | swap or add 8 | compare 8 | swap mask or boundary 8 | compare mask 8`. A fetch and add
/// leaves `compare` and `compare mask` zero. The answer is an ordinary ATOMIC ACKNOWLEDGE. If the operand has 4 bytes, its original value
/// stands in the low 32 bits.
#[derive(Clone, Copy, Debug)]
pub struct MaskedAtomicEth;

impl MaskedAtomicEth {
    /// Length of the header on the wire.
    pub const BYTES: usize = 48;

    /// Reads the header. If the operand size is neither 4 nor 8, returns that size as an error.
    pub(crate) fn parse(raw: &[u8; Self::BYTES], opcode: BthOpcode) -> Result<AtomicEth, u8> {
        let bytes = raw[12];
        if bytes != 4 && bytes != 8 {
            return Err(bytes);
        }
        let op = if opcode == BthOpcode::MASKED_FETCH_ADD {
            AtomicOp::MaskedFetchAdd {
                bytes,
                add: be64(raw, 16),
                boundary: be64(raw, 32),
            }
        } else {
            AtomicOp::MaskedCompareSwap {
                bytes,
                swap: be64(raw, 16),
                compare: be64(raw, 24),
                swap_mask: be64(raw, 32),
                compare_mask: be64(raw, 40),
            }
        };
        Ok(AtomicEth {
            va: be64(raw, 0),
            rkey: be32(raw, 8),
            op,
        })
    }
}

fn put_words(out: &mut [u8], words: &[u64]) {
    for (chunk, word) in out.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn atomic_headers_put_swap_before_compare() {
        let eth = AtomicEth {
            va: 0x1122_3344_5566_7788,
            rkey: 0x99aa_bbcc,
            op: AtomicOp::CompareSwap {
                compare: 2,
                swap: 1,
            },
        };
        let mut out = [0xee; 28];
        assert_eq!(eth.emit(&mut out), 28);
        let literal = [
            0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0, 0, 0, 0, 0,
            0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2,
        ];
        assert_eq!(out, literal);
        assert_eq!(AtomicEth::parse(&literal, BthOpcode::COMPARE_SWAP), eth);
    }

    #[test]
    fn a_masked_operand_of_three_bytes_is_refused() {
        let mut raw = [0; MaskedAtomicEth::BYTES];
        raw[12] = 3;
        assert_eq!(
            MaskedAtomicEth::parse(&raw, BthOpcode::MASKED_FETCH_ADD),
            Err(3)
        );
    }
}
