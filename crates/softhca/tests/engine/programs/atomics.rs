//! What atomics make of their operand, from the specification's words.

use super::program::Atomic;

/// Bytes of memory; `None` where the specification leaves them open.
pub(super) type Bytes = Vec<Option<u8>>;

pub(super) fn known(data: Vec<u8>) -> Bytes {
    data.into_iter().map(Some).collect()
}

/// The operand after the atomic. Little-endian, as the host; unknown operands stay unknown.
pub(super) fn apply(atomic: &Atomic, old: &[Option<u8>]) -> Bytes {
    let Some(bytes) = old.iter().copied().collect::<Option<Vec<u8>>>() else {
        return vec![None; old.len()];
    };
    let old = bytes
        .iter()
        .rev()
        .fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    let new = match *atomic {
        Atomic::CompareSwap { compare, swap } => {
            if old == compare {
                swap
            } else {
                old
            }
        }
        Atomic::FetchAdd { add } => old.wrapping_add(add),
        Atomic::MaskedCompareSwap {
            compare,
            swap,
            compare_mask,
            swap_mask,
            ..
        } => {
            if old & compare_mask == compare & compare_mask {
                old & !swap_mask | swap & swap_mask
            } else {
                old
            }
        }
        Atomic::MaskedFetchAdd {
            bytes,
            add,
            boundary,
        } => {
            // Bit by bit, as an adder does it.
            let mut carry = 0;
            (0..bytes * 8).fold(0, |sum, bit| {
                let ones = (old >> bit & 1) + (add >> bit & 1) + carry;
                carry = if boundary >> bit & 1 == 1 {
                    0
                } else {
                    ones >> 1
                };
                sum | (ones & 1) << bit
            })
        }
    };
    known(new.to_le_bytes()[..bytes.len()].to_vec())
}
