//! Bfloat16 as the kernels do it: the upper half of an f32, rounded to nearest, ties to even.

/// Returns the f32 of the bits of a bfloat16. The conversion is exact.
#[must_use]
pub const fn to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// Returns the bits of the bfloat16 nearest to `value`, ties to even. A too large value becomes infinite, and a NaN stays a NaN.
#[must_use]
pub const fn from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let high = (bits >> 16) as u16;
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        return high | 0x40;
    }
    // The largest finite f32 rounds up into the pattern of infinity; larger patterns were handled above.
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Returns whether two bfloat16 are the same number: equal bits, or both NaN.
#[must_use]
pub const fn same(a: u16, b: u16) -> bool {
    a == b || (a & 0x7fff > 0x7f80 && b & 0x7fff > 0x7f80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bfloat16_survives_the_way_through_f32() {
        for bits in 0..=u16::MAX {
            assert!(same(from_f32(to_f32(bits)), bits), "{bits:#06x}");
        }
    }

    #[test]
    fn halfway_cases_go_to_the_even_neighbour() {
        assert_eq!(from_f32(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(from_f32(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(from_f32(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert_eq!(from_f32(f32::from_bits(0xbf80_7fff)), 0xbf80);
    }

    #[test]
    fn the_largest_f32_becomes_infinite_and_a_nan_stays_a_nan() {
        assert_eq!(from_f32(f32::MAX), 0x7f80);
        assert_eq!(from_f32(f32::NEG_INFINITY), 0xff80);
        assert!(to_f32(from_f32(f32::from_bits(0x7f80_0001))).is_nan());
    }
}
