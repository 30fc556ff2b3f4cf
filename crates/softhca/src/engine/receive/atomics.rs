//! What atomics do to their operand.

use crate::device::memory::Region;
use crate::wire::headers::AtomicOp;
use file_memory::Gone;

/// Carries out `op` on the operand at the start of `operand`. Returns the value that the operand had before.
///
/// # Errors
///
/// The page of the operand is gone.
///
/// # Panics
///
/// If `operand` is shorter than the operand of `op`, or not aligned to its size: a bug of the caller.
pub(super) fn apply(op: &AtomicOp, operand: &Region) -> Result<u64, Gone> {
    match *op {
        AtomicOp::MaskedCompareSwap { bytes: 4, .. }
        | AtomicOp::MaskedFetchAdd { bytes: 4, .. } => {
            let old = operand.update32(|old| low(result(op, old.into())))?;
            Ok(old.into())
        }
        _ => operand.update64(|old| result(op, old)),
    }
}

/// Returns the value that `op` makes of `old`. An operand of 4 bytes is in the low half of both.
fn result(op: &AtomicOp, old: u64) -> u64 {
    match *op {
        AtomicOp::CompareSwap { compare, swap } => {
            if old == compare {
                swap
            } else {
                old
            }
        }
        AtomicOp::FetchAdd { add } => old.wrapping_add(add),
        AtomicOp::MaskedCompareSwap {
            compare,
            swap,
            compare_mask,
            swap_mask,
            ..
        } => {
            if (old ^ compare) & compare_mask == 0 {
                old & !swap_mask | swap & swap_mask
            } else {
                old
            }
        }
        AtomicOp::MaskedFetchAdd { add, boundary, .. } => add_fields(old, add, boundary),
    }
}

/// Returns the sum of `old` and `add`. No carry leaves a bit that `boundary` has set.
fn add_fields(old: u64, add: u64, boundary: u64) -> u64 {
    // With the boundary bits cleared no carry passes them. The sum of the boundary bits themselves is their exclusive or.
    let sum = (old & !boundary).wrapping_add(add & !boundary);
    sum ^ (old & boundary) ^ (add & boundary)
}

/// Returns the low half of `value`.
fn low(value: u64) -> u32 {
    let [_, _, _, _, a, b, c, d] = value.to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::tests_memory;
    use proptest::prelude::*;

    /// Computes the sum one bit at a time.
    fn oracle(old: u64, add: u64, boundary: u64) -> u64 {
        let mut carry = 0;
        (0..64).fold(0, |sum, bit| {
            let total = (old >> bit & 1) + (add >> bit & 1) + carry;
            carry = if boundary >> bit & 1 == 1 {
                0
            } else {
                total >> 1
            };
            sum | (total & 1) << bit
        })
    }

    proptest! {
        #[test]
        fn masked_addition_agrees_with_the_bitwise_oracle(old: u64, add: u64, boundary: u64) {
            prop_assert_eq!(add_fields(old, add, boundary), oracle(old, add, boundary));
        }
    }

    #[test]
    fn each_operation_changes_memory_and_gives_the_old_value() {
        let cases = [
            (AtomicOp::FetchAdd { add: 3 }, u64::MAX, 2),
            (
                AtomicOp::CompareSwap {
                    compare: 5,
                    swap: 9,
                },
                5,
                9,
            ),
            (
                AtomicOp::CompareSwap {
                    compare: 6,
                    swap: 9,
                },
                5,
                5,
            ),
            (
                AtomicOp::MaskedCompareSwap {
                    bytes: 8,
                    compare: 0xff,
                    swap: 0x1234,
                    compare_mask: 0,
                    swap_mask: 0xff00,
                },
                0xabcd,
                0x12cd,
            ),
            (
                AtomicOp::MaskedFetchAdd {
                    bytes: 4,
                    add: 1,
                    boundary: 0x8000,
                },
                0x7777_7777_0000_ffff,
                0x7777_7777_0000_0000,
            ),
        ];
        for (op, before, after) in cases {
            let mut memory = [before];
            let operand = tests_memory(&mut memory);
            let old = apply(&op, &operand).unwrap();
            let mut bytes = [0; 8];
            operand.read(0, &mut bytes);
            assert_eq!(u64::from_ne_bytes(bytes), after, "{op:?}");
            let four = matches!(op, AtomicOp::MaskedFetchAdd { bytes: 4, .. });
            assert_eq!(
                old,
                if four { before & 0xffff_ffff } else { before },
                "{op:?}"
            );
        }
    }

    #[test]
    fn a_carry_out_of_a_narrow_operand_stays_out_of_its_neighbour() {
        let mut memory = [0x1111_1111_ffff_ffff];
        let operand = tests_memory(&mut memory).part(0, 4).unwrap();
        let op = AtomicOp::MaskedFetchAdd {
            bytes: 4,
            add: 1,
            boundary: 0,
        };
        assert_eq!(apply(&op, &operand), Ok(0xffff_ffff));
        let mut bytes = [0; 4];
        operand.read(0, &mut bytes);
        assert_eq!(bytes, [0; 4]);
        assert_eq!(memory[0], 0x1111_1111_0000_0000);
    }
}
