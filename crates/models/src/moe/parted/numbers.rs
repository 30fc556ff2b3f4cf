//! How call numbers compare: as in `kernels/moe/words.cuh`, but with 8 bits instead of 32, so every constant is 2^24 times smaller.

/// The number of sets of slots.
pub(super) const SETS: u8 = 2;
/// The constant `RENEWAL`, which is 2^28 in the kernels.
pub(super) const RENEWAL: u8 = 1 << 4;

/// Returns whether call `a` is newer than call `b`.
pub(super) fn newer(a: u8, b: u8) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}

/// Returns whether `a` is a call that a peer may have come to while this rank is in call `b`.
pub(super) fn ahead(a: u8, b: u8) -> bool {
    a.wrapping_sub(b).wrapping_sub(1) < 1 << 6
}

/// Returns whether this is a call in which every signal is written again.
pub(super) fn renews(call: u8) -> bool {
    ((call ^ (RENEWAL / 2)) & (RENEWAL - 1)) < SETS
}

/// A run of calls of one set that were not sent: `number` of them from `first`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) first: u8,
    pub(super) number: u8,
}

impl Run {
    /// Returns the first call of the set after the run.
    pub(super) fn end(self) -> u8 {
        self.first.wrapping_add(SETS.wrapping_mul(self.number))
    }

    pub(super) fn names(self, call: u8) -> bool {
        call.wrapping_sub(self.first) < SETS.wrapping_mul(self.number)
    }
}
