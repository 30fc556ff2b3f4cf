//! Packet sequence numbers: 24 bits, compared modulo 2^24.

/// The number of packet sequence numbers, one more than the largest.
pub const PSN_MODULUS: u32 = 1 << 24;
const MASK: u32 = PSN_MODULUS - 1;

/// A packet sequence number (PSN): 24 bits, wraps.
///
/// Two PSNs can be ordered only relative to a window: a PSN that is less than 2^23 ahead is "after", all others are "before". That is why
/// this type has no `Ord`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Psn(u32);

impl Psn {
    /// Takes the low 24 bits of `value`.
    pub const fn new(value: u32) -> Self {
        Self(value & MASK)
    }

    /// Returns the number itself, which is below 2^24.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns the PSN that is `packets` further on.
    pub const fn add(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_add(packets))
    }

    /// Returns the PSN that is `packets` further back.
    pub const fn sub(self, packets: u32) -> Self {
        Self::new(self.0.wrapping_sub(packets))
    }

    /// Returns how far `self` lies after `base`, below 2^24. A PSN that lies before `base` gives 2^23 or more.
    pub const fn distance_from(self, base: Self) -> u32 {
        self.0.wrapping_sub(base.0) & MASK
    }

    /// Returns whether `self` comes before `other`: it lies in the half of the number circle that ends at `other`.
    pub const fn is_before(self, other: Self) -> bool {
        self.distance_from(other) >= PSN_MODULUS / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_wrap_at_two_to_the_24() {
        assert_eq!(Psn::new(0xff_ffff).add(1), Psn::new(0));
        assert_eq!(Psn::new(0).sub(1), Psn::new(0xff_ffff));
        assert_eq!(Psn::new(5).distance_from(Psn::new(0xff_fffb)), 10);
        assert_eq!(Psn::new(0x1234_5678).value(), 0x34_5678);
    }

    #[test]
    fn order_is_seen_across_the_wrap() {
        assert!(Psn::new(0xff_ffff).is_before(Psn::new(0)));
        assert!(!Psn::new(0).is_before(Psn::new(0xff_ffff)));
        assert!(!Psn::new(7).is_before(Psn::new(7)));
    }

    proptest! {
        #[test]
        fn a_step_forward_is_undone_by_a_step_back(start in 0..PSN_MODULUS, step in 0u32..PSN_MODULUS / 2) {
            let psn = Psn::new(start);
            prop_assert_eq!(psn.add(step).sub(step), psn);
            prop_assert_eq!(psn.add(step).distance_from(psn), step);
            prop_assert_eq!(psn.is_before(psn.add(step)), step != 0);
        }
    }
}
