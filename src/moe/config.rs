//! The shape of a MoE layer.

use super::MoeError;
use super::limits::{
    MAX_EXPERT_SLOTS, MAX_EXPERTS, MAX_FAILING_LINKS, MAX_PAYLOAD_BYTES, MAX_RANKS, MAX_SCALE_BYTES,
};
use crate::abi::{
    MAX_HIDDEN, MAX_MOE_TOKENS, MAX_TOP_K, MoeFormat, MoeLayout, MoeReturns, MoeScales,
    SCALE_CHANNELS, SETS,
};
use crate::config::setters;

/// The format of a token on its way to the experts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// BF16.
    #[default]
    Bf16,
    /// FP8 (e4m3) with one scale for each 128 channels. Dispatch casts BF16 to it, or the caller gives it.
    Fp8(Scales),
    /// Bytes that the library does not interpret, FP4 for example.
    Opaque {
        /// Bytes of a token: a multiple of 16, 16 to 32,768.
        payload_bytes: u32,
        /// Bytes of the token's scales: a multiple of 4, 0 to 4096.
        scale_bytes: u32,
    },
}

impl Format {
    pub(super) fn code(self) -> MoeFormat {
        match self {
            Self::Bf16 => MoeFormat::BF16,
            Self::Fp8(_) => MoeFormat::FP8,
            Self::Opaque { .. } => MoeFormat::OPAQUE,
        }
    }

    pub(super) fn scales_code(self) -> MoeScales {
        match self {
            Self::Fp8(Scales::PowerOfTwo) => MoeScales::POWER_OF_TWO,
            Self::Fp8(Scales::Ue8m0) => MoeScales::UE8M0,
            _ => MoeScales::F32,
        }
    }
}

/// The format of the scales of FP8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scales {
    /// f32.
    #[default]
    F32,
    /// f32, rounded up to a power of two.
    PowerOfTwo,
    /// The exponent byte of a power of two (UE8M0), four of them in a 32-bit word.
    Ue8m0,
}

/// How dispatch lays out the rows that it received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RowLayout {
    /// Rows by local expert, `[local experts, ranks · max_tokens]`.
    #[default]
    ExpertMajor,
    /// Rows by source, `[ranks, max_tokens]`: each token once.
    RankMajor,
}

impl RowLayout {
    pub(super) fn code(self) -> MoeLayout {
        match self {
            Self::ExpertMajor => MoeLayout::EXPERT_MAJOR,
            Self::RankMajor => MoeLayout::RANK_MAJOR,
        }
    }
}

/// The rows that combine sends back for a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Returns {
    /// One row for each rank: the sum over its experts.
    #[default]
    Sums,
    /// One row for each expert, for callers that know the weights only at combine.
    Rows,
}

impl Returns {
    pub(super) fn code(self) -> MoeReturns {
        match self {
            Self::Sums => MoeReturns::SUMS,
            Self::Rows => MoeReturns::ROWS,
        }
    }
}

/// The shape of one MoE layer. It is the same at every rank, except for `failing_links` and `grid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MoeConfig {
    /// BF16 elements of a token: a multiple of 8, of 128 for FP8, at most 16,384.
    pub hidden: u32,
    /// Number of experts of all ranks together.
    pub experts: u32,
    /// Number of experts that a token may choose, 1 to 32.
    pub top_k: u32,
    /// The most tokens that a rank dispatches in one call, 1 to 65,534.
    pub max_tokens: u32,
    /// The format of a token.
    pub format: Format,
    /// How dispatch lays out the rows that it received.
    pub layout: RowLayout,
    /// The rows that combine sends back.
    pub returns: Returns,
    /// Expert slots that each rank has room for; 0: as many as the placement uses.
    pub local_experts: u32,
    /// Number of links from this rank to peers that may fail one after the other within the patience of its HCA, while its calls
    /// with all other peers go on, 0 to 14. Each takes two more send buffers of dispatch, of `max_tokens` slots. Ranks may have
    /// different numbers.
    pub failing_links: u32,
    /// Blocks and threads of the kernels at this rank; ranks may have different grids. `None`: as many blocks as the device runs at
    /// once, shared evenly with the other ranks of this process on it.
    pub grid: Option<Grid>,
}

/// Blocks and threads of the MoE kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Number of blocks; all of them must fit on the device at once.
    pub blocks: u32,
    /// Number of threads of a block, a multiple of 32.
    pub threads: u32,
}

setters! {
    const MoeConfig {
        with_hidden(hidden: u32),
        with_experts(experts: u32),
        with_top_k(top_k: u32),
        with_max_tokens(max_tokens: u32),
        with_format(format: Format),
        with_layout(layout: RowLayout),
        with_returns(returns: Returns),
        with_local_experts(local_experts: u32),
        with_failing_links(failing_links: u32),
        with_grid(grid: Option<Grid>),
    }
}

impl MoeConfig {
    /// A layer of BF16, laid out by expert, that sends sums back. The numbers of the shape are still to be filled in.
    pub const BF16: Self = Self {
        hidden: 0,
        experts: 0,
        top_k: 0,
        max_tokens: 0,
        format: Format::Bf16,
        layout: RowLayout::ExpertMajor,
        returns: Returns::Sums,
        local_experts: 0,
        failing_links: 1,
        grid: None,
    };

    /// Refuses a shape beyond the limits, for a team of `ranks` ranks.
    pub fn check(&self, ranks: u32) -> Result<(), MoeError> {
        let limits = [
            ("ranks", ranks, 1, MAX_RANKS),
            ("hidden", self.hidden, 8, MAX_HIDDEN),
            ("experts", self.experts, 1, MAX_EXPERTS),
            ("top-k", self.top_k, 1, MAX_TOP_K),
            ("max_tokens", self.max_tokens, 1, MAX_MOE_TOKENS),
            ("failing_links", self.failing_links, 0, MAX_FAILING_LINKS),
        ];
        for (name, value, least, most) in limits {
            within(name, value, least, most)?;
        }
        multiple("hidden", self.hidden, 8)?;
        self.check_format()?;
        if self.top_k > self.experts {
            return Err(MoeError::Shape {
                name: "top-k",
                value: self.top_k,
                least: 1,
                most: self.experts,
            });
        }
        if self.layout == RowLayout::RankMajor && self.returns == Returns::Rows {
            return Err(MoeError::Option {
                what: "returning every expert's row",
                needs: "the expert-major layout",
            });
        }
        let room = self.local_experts;
        let most = (MAX_EXPERT_SLOTS / ranks).min(self.experts);
        if room > most {
            return Err(MoeError::Shape {
                name: "local_experts",
                value: room,
                least: 0,
                most,
            });
        }
        Ok(())
    }

    fn check_format(&self) -> Result<(), MoeError> {
        match self.format {
            Format::Bf16 => Ok(()),
            Format::Fp8(_) => multiple("hidden", self.hidden, SCALE_CHANNELS),
            Format::Opaque {
                payload_bytes,
                scale_bytes,
            } => {
                within("payload_bytes", payload_bytes, 16, MAX_PAYLOAD_BYTES)?;
                multiple("payload_bytes", payload_bytes, 16)?;
                within("scale_bytes", scale_bytes, 0, MAX_SCALE_BYTES)?;
                multiple("scale_bytes", scale_bytes, 4)
            }
        }
    }

    /// Refuses zero-copy in a layer whose combine itself makes the rows that it sends back.
    pub(super) fn check_zero_copy(&self) -> Result<(), MoeError> {
        if (self.layout, self.returns) != (RowLayout::ExpertMajor, Returns::Sums) {
            return Ok(());
        }
        Err(MoeError::Option {
            what: "zero-copy",
            needs: "a layer that sends rows as they are: rank-major, or one that returns every expert's row",
        })
    }

    /// Returns the number of send buffers of dispatch: one for each set, and one more for each set and link that may fail.
    pub(super) fn buffers(&self) -> u32 {
        SETS * (1 + self.failing_links)
    }

    /// Returns the number of expert slots that each of `ranks` ranks has room for.
    #[must_use]
    pub fn room(&self, ranks: u32) -> u32 {
        match self.local_experts {
            0 => self.experts.div_ceil(ranks),
            room => room,
        }
    }
}

fn within(name: &'static str, value: u32, least: u32, most: u32) -> Result<(), MoeError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(MoeError::Shape {
        name,
        value,
        least,
        most,
    })
}

fn multiple(name: &'static str, value: u32, of: u32) -> Result<(), MoeError> {
    if value.is_multiple_of(of) {
        return Ok(());
    }
    Err(MoeError::Multiple { name, value, of })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: MoeConfig = MoeConfig {
        hidden: 384,
        experts: 64,
        top_k: 8,
        max_tokens: 128,
        ..MoeConfig::BF16
    };

    #[test]
    fn a_shape_beyond_a_limit_is_refused_by_name_value_and_limit() {
        let message = |shape: MoeConfig| shape.check(4).unwrap_err().to_string();
        assert_eq!(SHAPE.check(4).ok(), Some(()));
        assert_eq!(
            message(MoeConfig {
                hidden: 380,
                ..SHAPE
            }),
            "hidden is 380, which is not a multiple of 8"
        );
        assert_eq!(
            message(MoeConfig { top_k: 33, ..SHAPE }),
            "top-k is 33; it must be 1 to 32"
        );
        assert_eq!(
            message(MoeConfig {
                max_tokens: 65_535,
                ..SHAPE
            }),
            "max_tokens is 65535; it must be 1 to 65534"
        );
        assert_eq!(
            message(MoeConfig {
                experts: 4,
                ..SHAPE
            }),
            "top-k is 8; it must be 1 to 4"
        );
        assert_eq!(
            message(SHAPE.with_failing_links(15)),
            "failing_links is 15; it must be 0 to 14"
        );
        assert_eq!(
            SHAPE.check(0).unwrap_err().to_string(),
            "ranks is 0; it must be 1 to 1024"
        );
    }
}
