//! FP8 as the kernels make it, bit for bit. kernels/moe/format.cuh has the same rules.
//!
//! A scale is the largest magnitude of its 128 channels, at least 1e-4, over 448. If it is to be a power of two it is rounded up. A channel
//! becomes the FP8 (e4m3) nearest to channel · (1 / scale). For the scale, infinities and NaNs count as the largest BF16. An infinity
//! becomes the largest FP8, and a NaN stays a NaN.

use crate::bf16;

/// The largest FP8 number.
pub const E4M3_MAX: f32 = 448.0;
/// The code of NaN.
pub const E4M3_NAN: u8 = 0x7f;
/// The least magnitude of a group: a smaller one counts as this.
const LEAST_MAGNITUDE: f32 = 1e-4;
/// The largest finite BF16, without its sign.
const BF16_MAX_CODE: u16 = 0x7f7f;
/// The number of channels of a scale.
const CHANNELS: usize = 128;

/// The format of the scales of FP8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scales {
    /// An f32.
    #[default]
    F32,
    /// An f32, rounded up to a power of two.
    PowerOfTwo,
    /// The exponent byte of such a power (UE8M0), four bytes to a 32-bit word.
    Ue8m0,
}

/// Returns the code of the FP8 (e4m3, no infinities) nearest to `value`, ties to even. Too large becomes the largest, and NaN stays NaN.
#[must_use]
pub fn e4m3_from_f32(value: f32) -> u8 {
    let bits = value.to_bits();
    let (sign, magnitude) = ((bits >> 24 & 0x80) as u8, bits & 0x7fff_ffff);
    if magnitude > 0x7f80_0000 {
        return E4M3_NAN;
    }
    if magnitude >= E4M3_MAX.to_bits() {
        return sign | 0x7e;
    }
    let code = if magnitude < 121 << 23 {
        // Below 2^-6 FP8 numbers lie 2^-9 apart, as f32 numbers from 2^14 on do. So this sum rounds to FP8 numbers.
        (f32::from_bits(magnitude) + 16_384.0).to_bits() - 16_384f32.to_bits()
    } else {
        ((magnitude + 0x7_ffff + (magnitude >> 20 & 1)) >> 20) - (120 << 3)
    };
    #[expect(clippy::cast_possible_truncation, reason = "at most 0x7e")]
    let code = code as u8;
    sign | code
}

/// Returns the number of a code.
#[must_use]
pub fn e4m3_to_f32(code: u8) -> f32 {
    let (exponent, fraction) = (u32::from(code >> 3 & 15), u32::from(code & 7));
    let magnitude = match (exponent, fraction) {
        (15, 7) => f32::NAN,
        (0, _) => fraction as f32 / 512.0,
        _ => f32::from_bits((exponent + 120) << 23 | fraction << 20),
    };
    if code & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// Returns the scale of `channels`, BF16 bits, and the factor with which they are multiplied.
#[must_use]
pub fn group_scale(kind: Scales, channels: &[u16]) -> (f32, f32) {
    let largest = channels.iter().map(|bits| bits & 0x7fff).max().unwrap_or(0);
    let largest = bf16::to_f32(largest.min(BF16_MAX_CODE));
    let magnitude = if largest > LEAST_MAGNITUDE {
        largest
    } else {
        LEAST_MAGNITUDE
    };
    let scale = magnitude / E4M3_MAX;
    if kind == Scales::F32 {
        return (scale, E4M3_MAX / magnitude);
    }
    let exponent = (scale.to_bits() >> 23) + u32::from(scale.to_bits() & 0x7f_ffff != 0);
    (
        f32::from_bits(exponent << 23),
        f32::from_bits((254 - exponent) << 23),
    )
}

/// Returns the FP8 codes of a token, BF16 bits, and the bytes of its scales in the format that is sent.
#[must_use]
pub fn quantize(kind: Scales, token: &[u16]) -> (Vec<u8>, Vec<u8>) {
    let (mut codes, mut scales) = (Vec::with_capacity(token.len()), Vec::new());
    for channels in token.chunks(CHANNELS) {
        let (scale, inverse) = group_scale(kind, channels);
        let code = |&bits: &u16| e4m3_from_f32(bf16::to_f32(bits) * inverse);
        codes.extend(channels.iter().map(code));
        match kind {
            Scales::Ue8m0 => scales.push((scale.to_bits() >> 23 & 0xff) as u8),
            Scales::F32 | Scales::PowerOfTwo => scales.extend(scale.to_bits().to_le_bytes()),
        }
    }
    scales.resize(scales.len().next_multiple_of(4), 0);
    (codes, scales)
}

/// Returns scale `group` from the bytes of a token's scales.
///
/// # Panics
/// If `scales` has no scale `group`.
#[must_use]
pub fn scale_at(kind: Scales, scales: &[u8], group: usize) -> f32 {
    match kind {
        Scales::Ue8m0 => f32::from_bits(u32::from(scales[group]) << 23),
        Scales::F32 | Scales::PowerOfTwo => {
            let word = [0, 1, 2, 3].map(|i| scales[group * 4 + i]);
            f32::from_bits(u32::from_le_bytes(word))
        }
    }
}

/// Returns the BF16 bits nearest to the numbers of a token's codes and scales.
///
/// # Panics
/// If scales are missing.
#[must_use]
pub fn dequantize(kind: Scales, codes: &[u8], scales: &[u8]) -> Vec<u16> {
    let one = |(channel, &code): (usize, &u8)| {
        bf16::from_f32(e4m3_to_f32(code) * scale_at(kind, scales, channel / CHANNELS))
    };
    codes.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::power::power_of_two;

    /// Returns the number of each code that is not negative, by the definition: 4 bits of exponent, bias 7, 3 bits of fraction.
    fn table() -> Vec<f64> {
        let number = |code: i32| match code >> 3 {
            0 => f64::from(code & 7) * power_of_two(-9),
            exponent => (1.0 + f64::from(code & 7) / 8.0) * power_of_two(exponent - 7),
        };
        (0..=0x7e).map(number).collect()
    }

    /// Returns the code nearest to `value`, which is not negative. It compares all codes. Of two equally near it returns the even one.
    fn nearest(table: &[f64], value: f64) -> u8 {
        let distance = |code: u8| (table[usize::from(code)] - value).abs();
        (0..=0x7e)
            .min_by(|&a, &b| {
                let order = distance(a).total_cmp(&distance(b));
                order.then((a & 1).cmp(&(b & 1)))
            })
            .unwrap()
    }

    #[test]
    fn every_code_is_its_number_and_comes_back() {
        let table = table();
        for code in 0..=u8::MAX {
            let number = e4m3_to_f32(code);
            if code & 0x7f == 0x7f {
                assert!(number.is_nan());
                assert_eq!(e4m3_from_f32(number), 0x7f);
                continue;
            }
            let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
            let want = sign * table[usize::from(code & 0x7f)];
            assert_eq!(f64::from(number), want, "{code:#x}");
            assert_eq!(e4m3_from_f32(number), code, "{code:#x}");
        }
    }

    #[test]
    fn a_halfway_value_takes_the_even_code_and_other_values_the_nearest_code() {
        let table = table();
        for code in 0..0x7e_u8 {
            let (below, above) = (table[usize::from(code)], table[usize::from(code) + 1]);
            let half = (e4m3_to_f32(code) + e4m3_to_f32(code + 1)) / 2.0;
            assert_eq!(f64::from(half) * 2.0, below + above, "exact in f32");
            let even = code + (code & 1);
            for (value, want) in [
                (half, even),
                (half.next_down(), code),
                (half.next_up(), code + 1),
            ] {
                assert_eq!(e4m3_from_f32(value), want, "{value:e}");
                assert_eq!(e4m3_from_f32(-value), want | 0x80, "-{value:e}");
            }
        }
    }

    #[test]
    fn every_bfloat16_becomes_the_nearest_code() {
        let table = table();
        // Miri takes half an hour for all of them, and looks for other faults than wrong codes.
        for bits in (0..=0x7f80_u16).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let value = bf16::to_f32(bits);
            let want = nearest(&table, f64::from(value).min(448.0));
            assert_eq!(e4m3_from_f32(value), want, "{value:e}");
            assert_eq!(e4m3_from_f32(-value), want | 0x80, "-{value:e}");
        }
    }

    #[test]
    fn what_is_too_large_becomes_the_largest_number() {
        for value in [
            448.0,
            448.1,
            463.9,
            464.0,
            480.0,
            1e30,
            f32::MAX,
            f32::INFINITY,
        ] {
            assert_eq!(e4m3_from_f32(value), 0x7e, "{value:e}");
            assert_eq!(e4m3_from_f32(-value), 0xfe, "-{value:e}");
        }
        for value in [0.0, f32::MIN_POSITIVE, 1.0 / 1024.0] {
            assert_eq!(e4m3_from_f32(value), 0, "{value:e}");
            assert_eq!(e4m3_from_f32(-value), 0x80, "-{value:e}");
        }
    }

    #[test]
    fn a_power_of_two_is_the_smallest_that_is_not_below_the_scale() {
        let mut exact = 0;
        for largest in 0..=0x7f7f_u16 {
            let (scale, inverse) = group_scale(Scales::F32, &[largest]);
            let (power, one) = group_scale(Scales::PowerOfTwo, &[largest, largest | 0x8000]);
            let wanted = f64::from(bf16::to_f32(largest)).max(f64::from(1e-4_f32)) / 448.0;
            assert!((f64::from(scale) / wanted - 1.0).abs() < 1e-7);
            assert!((f64::from(scale) * f64::from(inverse) - 1.0).abs() < 3e-7);
            assert_eq!(power.to_bits() & 0x7f_ffff, 0, "a power of two");
            assert_eq!(power * one, 1.0);
            let power = f64::from(power);
            assert!(
                power >= wanted && power / 2.0 < wanted,
                "{largest:#x}: {power:e}"
            );
            exact += i32::from(power == wanted);
        }
        // These values are 448 · 2^n, down to the least magnitude.
        assert!(exact > 100, "{exact}");
    }

    #[test]
    fn one_outlier_sets_the_scale_of_its_group_only() {
        let mut token = vec![bf16::from_f32(1.0); 256];
        token[7] = bf16::from_f32(-448.0);
        for kind in [Scales::F32, Scales::PowerOfTwo, Scales::Ue8m0] {
            let (codes, scales) = quantize(kind, &token);
            assert_eq!((codes[7], scale_at(kind, &scales, 0)), (0xfe, 1.0));
            assert_eq!(codes[8], 0x38, "1");
            let second = scale_at(kind, &scales, 1);
            assert!((1.0 / 448.0..=1.0 / 256.0).contains(&second), "{second}");
            let back = dequantize(kind, &codes, &scales);
            assert_eq!((back[7], back[8]), (token[7], token[8]));
        }
    }

    #[test]
    fn packed_exponents_fill_their_last_word_with_zeros() {
        let token = vec![bf16::from_f32(448.0); 5 * 128];
        let (_, scales) = quantize(Scales::Ue8m0, &token);
        assert_eq!(scales, [127, 127, 127, 127, 127, 0, 0, 0]);
    }

    #[test]
    fn a_group_without_a_number_keeps_a_finite_scale() {
        let mut token = vec![0u16; 128];
        let (codes, scales) = quantize(Scales::F32, &token);
        assert_eq!(codes, [0; 128]);
        assert_eq!(scale_at(Scales::F32, &scales, 0), 1e-4 / 448.0);
        token[0] = 0x7f80;
        token[1] = 0xffc0;
        let (codes, scales) = quantize(Scales::PowerOfTwo, &token);
        assert_eq!(codes[..3], [0x7e, E4M3_NAN, 0]);
        assert!(scale_at(Scales::PowerOfTwo, &scales, 0).is_finite());
    }
}
