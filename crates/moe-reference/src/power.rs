//! Powers of two.

/// Returns 2 to the power `exponent`, -1022 to 1023. The result is exact; that of `powi` need not be, as Miri shows.
pub(crate) fn power_of_two(exponent: i32) -> f64 {
    let biased = u64::try_from(1023 + exponent).expect("an exponent of a normal number");
    f64::from_bits(biased << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_double_from_one_to_the_next() {
        assert_eq!(power_of_two(0).to_bits(), 1f64.to_bits());
        for exponent in -1022..1023 {
            assert_eq!(
                (power_of_two(exponent) * 2.0).to_bits(),
                power_of_two(exponent + 1).to_bits()
            );
        }
    }
}
