//! The bytes of one row: the token as it was given, or its FP8 with scales, which are computed again here.
//!
//! The oracle judges the cast and does not repeat it. A scale is the largest magnitude of its 128 channels (at least 1e-4) over 448, up to
//! the last bits of an f32. Or it is exactly the smallest power of two that is not below that. A number is the FP8 nearest to input /
//! scale, up to rounding of that quotient. So another order of f32 operations passes, and another rounding mode does not.

use super::{Case, Finding, Wire};
use crate::format::Scales;
use crate::homes::number;
use crate::power::power_of_two;

/// The number of channels of a scale.
const GROUP: usize = 128;
/// The largest e4m3 number.
const LARGEST: f64 = 448.0;

/// One row at the place where it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrived<'a> {
    /// `expert` or `rank`.
    pub place: &'static str,
    /// The number of the expert or rank.
    pub index: usize,
    /// The row in the output of the expert or rank.
    pub row: usize,
    /// The bytes of the row.
    pub x: &'a [u8],
    /// The bytes of its scales.
    pub scales: &'a [u8],
}

/// Returns the number of bytes of a row and of its scales, as they arrive.
#[must_use]
pub fn arrives(case: &Case) -> (usize, usize) {
    let groups = case.hidden / GROUP;
    match case.wire {
        Wire::AsIs {
            row_bytes,
            scale_bytes,
            ..
        } => (row_bytes, scale_bytes),
        Wire::Cast(Scales::Ue8m0) => (case.hidden, groups.next_multiple_of(4)),
        Wire::Cast(_) => (case.hidden, groups * 4),
    }
}

/// Returns whether scales by expert have the first word of all rows, then the second word of all rows, and so on. Those of FP8 do.
#[must_use]
pub fn scales_are_transposed(case: &Case) -> bool {
    match case.wire {
        Wire::Cast(_) => true,
        Wire::AsIs { fp8, .. } => fp8,
    }
}

/// Checks that a row is token `token` of `source`.
///
/// # Errors
/// [`Finding::Payload`], [`Finding::Scale`], [`Finding::Cast`].
pub fn check(case: &Case, source: usize, token: usize, row: &Arrived<'_>) -> Result<(), Finding> {
    let input = &case.inputs[source];
    match case.wire {
        Wire::AsIs {
            row_bytes,
            scale_bytes,
            ..
        } => {
            let same = |got: &[u8], want: &[u8]| {
                let byte = got.iter().zip(want).position(|(got, want)| got != want);
                byte.map_or(Ok(()), |byte| {
                    Err(Finding::Payload {
                        place: row.place,
                        index: row.index,
                        row: row.row,
                        rank: number(source),
                        token: number(token),
                        byte,
                        got: got[byte],
                        want: want[byte],
                    })
                })
            };
            same(row.x, &input.x[token * row_bytes..][..row_bytes])?;
            same(
                row.scales,
                &input.scales[token * scale_bytes..][..scale_bytes],
            )
        }
        Wire::Cast(scales) => {
            let x = &input.x[token * case.hidden * 2..][..case.hidden * 2];
            let x: Vec<f64> = x
                .chunks_exact(2)
                .map(|bits| f64::from(bf16(u16::from_le_bytes([bits[0], bits[1]]))))
                .collect();
            cast(&x, scales, row).map_err(|found| found.at(source, token))
        }
    }
}

/// Returns the numbers of a row as experts see them: BF16, or FP8 times its scale. Opaque bytes are taken for BF16. An input that is sent
/// as it is can be passed as a row too.
#[must_use]
pub fn values(case: &Case, x: &[u8], scales: &[u8]) -> Vec<f32> {
    let kind = match case.wire {
        Wire::AsIs { fp8: false, .. } => {
            let pairs = x.chunks_exact(2).take(case.hidden);
            return pairs
                .map(|pair| bf16(u16::from_le_bytes([pair[0], pair[1]])))
                .collect();
        }
        Wire::AsIs { fp8: true, .. } => Scales::F32,
        Wire::Cast(kind) => kind,
    };
    let channels = x.iter().take(case.hidden).enumerate();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "11 significant bits and more, as an f32 has them"
    )]
    let value = |(i, bits): (usize, &u8)| (e4m3(*bits) * scale(kind, scales, i / GROUP)) as f32;
    channels.map(value).collect()
}

/// A finding in one token.
enum Found {
    Scale(usize, f64, f64),
    Cast(usize, f64, f64),
}

impl Found {
    fn at(self, source: usize, token: usize) -> Finding {
        let (rank, token) = (number(source), number(token));
        match self {
            Self::Scale(group, got, want) => Finding::Scale {
                rank,
                token,
                group,
                got,
                want,
            },
            Self::Cast(channel, got, want) => Finding::Cast {
                rank,
                token,
                channel,
                got,
                want,
            },
        }
    }
}

fn cast(x: &[f64], scales: Scales, row: &Arrived<'_>) -> Result<(), Found> {
    for (group, channels) in x.chunks(GROUP).enumerate() {
        let largest = channels
            .iter()
            .fold(f64::from(1e-4_f32), |most, x| most.max(x.abs()));
        let (exact, got) = (largest / LARGEST, scale(scales, row.scales, group));
        let want = match scales {
            Scales::F32 => exact,
            Scales::PowerOfTwo | Scales::Ue8m0 => power_above(exact),
        };
        let slack = if scales == Scales::F32 {
            want * power_of_two(-22)
        } else {
            0.0
        };
        // The second condition holds if `got` is not a number.
        if (got - want).abs() > slack || got.is_nan() {
            return Err(Found::Scale(group, got, want));
        }
        for (i, x) in channels.iter().enumerate() {
            let channel = group * GROUP + i;
            let (got, want) = (e4m3(row.x[channel]), (x / got).clamp(-LARGEST, LARGEST));
            if (got - want).abs() > half_step(want) * (1.0 + power_of_two(-16)) || got.is_nan() {
                return Err(Found::Cast(channel, got, want));
            }
        }
    }
    let groups = x.len() / GROUP;
    let used = if scales == Scales::Ue8m0 {
        groups
    } else {
        groups * 4
    };
    match row.scales[used..].iter().position(|byte| *byte != 0) {
        Some(at) => Err(Found::Scale(groups + at, row.scales[used + at].into(), 0.0)),
        None => Ok(()),
    }
}

/// Returns scale `group` of a row as a number.
fn scale(scales: Scales, bytes: &[u8], group: usize) -> f64 {
    match scales {
        Scales::Ue8m0 => power_of_two(i32::from(bytes[group]) - 127),
        Scales::F32 | Scales::PowerOfTwo => {
            let word = [0, 1, 2, 3].map(|i| bytes[group * 4 + i]);
            f32::from_le_bytes(word).into()
        }
    }
}

/// Returns the smallest power of two that is not below `value`.
fn power_above(value: f64) -> f64 {
    let down = f64::from_bits(value.to_bits() & !((1 << 52) - 1));
    if down < value { down * 2.0 } else { down }
}

/// Returns half the distance of e4m3 numbers around `value`.
fn half_step(value: f64) -> f64 {
    let magnitude = value.abs().max(power_of_two(-6));
    let power = f64::from_bits(magnitude.to_bits() & !((1 << 52) - 1));
    power / 16.0
}

/// Returns the number of an FP8 (e4m3, finite).
#[must_use]
pub fn e4m3(bits: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f64::from(bits & 7));
    let magnitude = match (exponent, bits & 7) {
        (15, 7) => f64::NAN,
        (0, _) => mantissa / 8.0 * power_of_two(-6),
        _ => (1.0 + mantissa / 8.0) * power_of_two(exponent - 7),
    };
    if bits & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }
}

/// Returns the number of a BF16.
pub(super) fn bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}
