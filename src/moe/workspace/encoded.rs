//! Tokens in the format of a layer, in bytes, and the BF16 numbers that they stand for.

use super::buffers::{Buffer, Buffers};
use crate::moe::tokens::batch::check_arrays;
use crate::moe::tokens::fp8;
use crate::moe::{Format, Moe, MoeConfig, MoeError, RowLayout, check_routing};

/// The input of one rank's dispatch in the format of its layer: FP8 with its scales, opaque bytes, or BF16.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Encoded {
    /// Tokens, `[tokens, row bytes]`.
    pub x: Vec<u8>,
    /// Scales of the tokens, `[tokens, scale bytes]`.
    pub scales: Vec<u8>,
    /// Chosen experts, `[tokens, top_k]`; -1 is no choice.
    pub experts: Vec<i32>,
    /// Weights of the choices, `[tokens, top_k]`.
    pub weights: Vec<f32>,
}

impl Encoded {
    /// Checks lengths, number of tokens and every expert id against the layer.
    pub(super) fn check(&self, moe: &Moe) -> Result<(), MoeError> {
        let (config, (row, scales)) = (moe.config(), bytes_of(moe));
        let arrays = [
            ("the tokens, in bytes,", self.x.len(), row),
            ("the scales, in bytes,", self.scales.len(), scales),
        ];
        check_arrays(config, self.experts.len(), self.weights.len(), &arrays)?;
        check_routing(&self.experts, config.top_k, config.experts)
    }
}

/// One received row, as dispatch wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRow {
    /// The token.
    pub x: Vec<u8>,
    /// The scales of the token, as dispatch wrote them.
    pub scales: Vec<u8>,
}

impl EncodedRow {
    /// Reads row `place` of `recv_x` and its scales, even if dispatch has not written that row.
    pub(super) fn read(moe: &Moe, buffers: &Buffers, place: u64) -> Result<Self, MoeError> {
        let mut rows = Self::read_rows(moe, buffers, place, 1)?;
        Ok(rows.pop().expect("a row was asked for"))
    }

    /// Reads `count` rows from `place` on; by expert, all of them belong to one expert. The tokens come from the device in one
    /// copy. So do scales that lie row after row. If an expert's scales lie word by word, it takes one copy for each word of a
    /// row's scales.
    pub(super) fn read_rows(
        moe: &Moe,
        buffers: &Buffers,
        place: u64,
        count: usize,
    ) -> Result<Vec<Self>, MoeError> {
        let (gpu, (row, scales)) = (moe.team().gpu().as_ref(), bytes_of(moe));
        let x: Vec<u8> = buffers.read(gpu, Buffer::RecvX, place * row as u64, count * row)?;
        let scales_of: Vec<Vec<u8>> = if is_spread(moe.config()) {
            let room = u64::from(moe.team().ranks()) * u64::from(moe.config().max_tokens);
            let (expert, first, words) = (place / room, place % room, scales as u64 / 4);
            let mut all = vec![Vec::with_capacity(scales); count];
            for word in 0..words {
                let at = (expert * words + word) * room + first;
                let strip: Vec<u32> = buffers.read(gpu, Buffer::RecvScales, at, count)?;
                for (scales, word) in all.iter_mut().zip(strip) {
                    scales.extend(word.to_ne_bytes());
                }
            }
            all
        } else {
            let at = place * scales as u64;
            let all: Vec<u8> = buffers.read(gpu, Buffer::RecvScales, at, count * scales)?;
            let of = |number: usize| all[number * scales..][..scales].to_vec();
            (0..count).map(of).collect()
        };
        let rows = x.chunks_exact(row).zip(scales_of);
        Ok(rows
            .map(|(x, scales)| Self {
                x: x.to_vec(),
                scales,
            })
            .collect())
    }

    /// Returns the BF16 bits that the row stands for. FP8 times its scales is rounded to BF16.
    ///
    /// # Errors
    /// [`MoeError::Option`] for opaque bytes.
    pub fn to_bf16(&self, format: Format) -> Result<Vec<u16>, MoeError> {
        match format {
            Format::Bf16 => {
                let pairs = self.x.chunks_exact(2);
                Ok(pairs
                    .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
                    .collect())
            }
            Format::Fp8(kind) => Ok(fp8::dequantize(kind, &self.x, &self.scales)),
            Format::Opaque { .. } => Err(needs_bf16()),
        }
    }
}

/// Returns the error for BF16 tokens in a layer of opaque tokens.
pub(super) fn needs_bf16() -> MoeError {
    MoeError::Option {
        what: "tokens in BF16",
        needs: "a layer of BF16 or FP8; opaque ones are given and taken in bytes",
    }
}

/// Returns whether the scales of an expert's rows lie word by word: first word 0 of all rows, then word 1 of all rows.
fn is_spread(config: &MoeConfig) -> bool {
    config.layout == RowLayout::ExpertMajor && matches!(config.format, Format::Fp8(_))
}

/// Returns the bytes of a token, and the bytes of its scales.
fn bytes_of(moe: &Moe) -> (usize, usize) {
    let bytes = |bytes: u64| usize::try_from(bytes).expect("at most 32,768");
    (
        bytes(moe.layout().row_bytes),
        bytes(moe.layout().scale_bytes),
    )
}
