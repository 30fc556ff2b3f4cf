//! How a range of bytes is cut into slices: by block and fragment.
//!
//! As long as more than a block and a fragment remain, a slice is one block; what remains is the last slice. So no slice is longer
//! than a block and a fragment, and the last of several is longer than a fragment. Nothing here counts in 32 bits but the length
//! of a slice, which one WQE carries.

use std::ops::Range;

use crate::engine::error::EngineError;
use crate::engine::limits::{LEAST_BLOCK, MOST_SLICE_BYTES};

/// The rule, by its two lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    block: u32,
    fragment: u32,
}

impl Cut {
    /// One slice, of the longest length.
    pub(in crate::engine) const WHOLE: Self = Self {
        block: MOST_SLICE_BYTES,
        fragment: 0,
    };

    /// Slices of `block` bytes, with a last one of up to `fragment` more, for a port whose messages have `port_most` bytes at most.
    ///
    /// # Errors
    /// [`EngineError::Block`], [`EngineError::Fragment`]: outside their limits; [`EngineError::SliceBytes`]: too long together.
    pub fn new(block: u32, fragment: u32, port_most: u32) -> Result<Self, EngineError> {
        if !(LEAST_BLOCK..=MOST_SLICE_BYTES).contains(&block) {
            return Err(EngineError::Block { block });
        }
        if fragment > block {
            return Err(EngineError::Fragment { fragment, block });
        }
        let most = port_most.min(MOST_SLICE_BYTES);
        match block + fragment <= most {
            true => Ok(Self { block, fragment }),
            false => Err(EngineError::SliceBytes {
                block,
                fragment,
                most,
            }),
        }
    }

    /// Bytes of every slice but the last.
    #[must_use]
    pub const fn block(self) -> u32 {
        self.block
    }

    /// Most bytes of a slice.
    #[must_use]
    pub const fn most(self) -> u32 {
        self.block + self.fragment
    }

    /// Into how many slices `bytes` are cut; none of no bytes.
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

    /// The range of slice `number` within `bytes`. None if `bytes` has fewer slices.
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
