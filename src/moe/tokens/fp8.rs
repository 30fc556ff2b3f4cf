//! The numbers that FP8 and its scales stand for, for experts that compute on the host in BF16.
//!
//! The crate `moe-reference` reads and makes FP8 by its own code: code that judges the library shares none with it.

use crate::abi::SCALE_CHANNELS;
use crate::moe::{Scales, bf16};

/// Returns the BF16 bits nearest to what codes and scales of a token stand for.
///
/// # Panics
/// If scales are missing.
pub(in crate::moe) fn dequantize(kind: Scales, codes: &[u8], scales: &[u8]) -> Vec<u16> {
    let one = |(channel, &code): (usize, &u8)| {
        bf16::from_f32(
            e4m3_to_f32(code) * scale_at(kind, scales, channel / SCALE_CHANNELS as usize),
        )
    };
    codes.iter().enumerate().map(one).collect()
}

/// Returns scale `group` out of the bytes of a token's scales.
fn scale_at(kind: Scales, scales: &[u8], group: usize) -> f32 {
    match kind {
        Scales::Ue8m0 => f32::from_bits(u32::from(scales[group]) << 23),
        Scales::F32 | Scales::PowerOfTwo => {
            let word = [0, 1, 2, 3].map(|i| scales[group * 4 + i]);
            f32::from_bits(u32::from_le_bytes(word))
        }
    }
}

/// Returns the number that an e4m3 code stands for.
fn e4m3_to_f32(code: u8) -> f32 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_the_number_of_its_definition() {
        for code in 0..=u8::MAX {
            let (sign, fraction) = (
                if code < 0x80 { 1.0 } else { -1.0 },
                f64::from(code & 7) / 8.0,
            );
            // 4 bits of exponent, bias 7, 3 bits of fraction.
            let magnitude = match i32::from(code >> 3 & 15) {
                0 => fraction * 2f64.powi(-6),
                exponent => (1.0 + fraction) * 2f64.powi(exponent - 7),
            };
            let number = f64::from(e4m3_to_f32(code));
            match code & 0x7f {
                0x7f => assert!(number.is_nan()),
                _ => assert_eq!(number, sign * magnitude, "{code:#x}"),
            }
        }
    }

    #[test]
    fn each_kind_of_scale_is_read_at_its_group() {
        let codes = [0x38_u8; 256]; // 1
        let words: Vec<u8> = [3.0f32, 0.5]
            .into_iter()
            .flat_map(f32::to_le_bytes)
            .collect();
        for (kind, scales, want) in [
            (Scales::F32, &words[..], [3.0, 0.5]),
            (Scales::PowerOfTwo, &words[..], [3.0, 0.5]),
            (Scales::Ue8m0, &[128, 126, 0, 0][..], [2.0, 0.5]),
        ] {
            let numbers = dequantize(kind, &codes, scales);
            assert_eq!(numbers.len(), 256);
            assert_eq!([numbers[127], numbers[128]].map(bf16::to_f32), want);
        }
    }
}
