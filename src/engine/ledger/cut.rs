//! How a range of bytes is cut into slices, by block and fragment.
//!
//! As long as more than a block and a fragment remain, a slice is one block. What remains then is the last slice. So no slice is
//! longer than a block and a fragment together, and the last of several is longer than a fragment. Only the length of a slice,
//! which one WQE carries, is counted in 32 bits.

use std::ops::Range;

use crate::engine::error::EngineError;
use crate::engine::limits::{LEAST_BLOCK, MOST_SLICE_BYTES};

/// The lengths of block and fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    block: u32,
    fragment: u32,
}

impl Cut {
    /// Cuts nothing: any range is one slice.
    pub(in crate::engine) const WHOLE: Self = Self {
        block: MOST_SLICE_BYTES,
        fragment: 0,
    };

    /// Returns the rule for slices of `block` bytes, of which the last has up to `fragment` bytes more. A message of the port has
    /// at most `port_most` bytes.
    ///
    /// # Errors
    /// [`EngineError::Block`], [`EngineError::Fragment`]: a length is outside its limits; [`EngineError::SliceBytes`]: both
    /// together are too long.
    pub fn new(block: u32, fragment: u32, port_most: u32) -> Result<Self, EngineError> {
        if !(LEAST_BLOCK..=MOST_SLICE_BYTES).contains(&block) {
            return Err(EngineError::Block { block });
        }
        if fragment > block {
            return Err(EngineError::Fragment { fragment, block });
        }
        let most = port_most.min(MOST_SLICE_BYTES);
        if block + fragment > most {
            return Err(EngineError::SliceBytes {
                block,
                fragment,
                most,
            });
        }
        Ok(Self { block, fragment })
    }

    /// Returns the bytes of every slice but the last.
    #[must_use]
    pub const fn block(self) -> u32 {
        self.block
    }

    /// Returns the most bytes of a slice.
    #[must_use]
    pub const fn most(self) -> u32 {
        self.block + self.fragment
    }

    /// Returns into how many slices `bytes` are cut. No bytes are no slices.
    #[must_use]
    pub fn slices(self, bytes: u64) -> u64 {
        match bytes {
            0 => 0,
            _ => {
                1 + bytes
                    .saturating_sub(self.most().into())
                    .div_ceil(self.block.into())
            }
        }
    }

    /// Returns the range of slice `number` within `bytes`. None: `bytes` has fewer slices.
    #[must_use]
    pub fn slice(self, bytes: u64, number: u64) -> Option<Range<u64>> {
        let last = self.slices(bytes).checked_sub(1)?;
        let start = number.checked_mul(self.block.into())?;
        match number {
            _ if number < last => Some(start..start + u64::from(self.block)),
            _ if number == last => Some(start..bytes),
            _ => None,
        }
    }
}
