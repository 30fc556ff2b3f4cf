//! The ways to post that are measured, and the setting that they have in common.

use std::fmt;
use std::time::Duration;

use crate::error::BenchError;
use warpverbs::abi::{MAX_DEPTH, MAX_PUT_BYTES, MIN_DEPTH, MODE_EXCLUSIVE, MODE_NO_RECORD};

/// The number of lanes of a block: one warp.
pub(super) const LANES: u32 = 32;
/// The most posters of a case. They must all be resident beside the sink.
const MAX_BLOCKS: u32 = 1024;

/// How posters share QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// All posters post to one QP.
    Shared,
    /// Each poster has a QP of its own.
    Exclusive,
}

/// The threads that post together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One thread, with one put for each call.
    Thread,
    /// A warp, with 32 puts and one doorbell for each call.
    Warp,
}

/// One way to post that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// How posters share QPs.
    pub sharing: Sharing,
    /// The threads that post together.
    pub scope: Scope,
    /// The number of posters, each of which is one block.
    pub blocks: u32,
    /// True if the QP has a doorbell record (and a second fence).
    pub record: bool,
}

/// The setting that all cases have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostOptions {
    /// The number of calls of each poster, at least 1.
    pub calls: u32,
    /// The length of a ring in WQEBBs, a power of two.
    pub depth: u32,
    /// The number of bytes that each WQE names.
    pub bytes: u32,
    /// How many calls share one completion. The last call always asks for one; with 0 only that does.
    pub signal_every: u32,
    /// True if the doorbell register is a word of host memory instead of device memory. Then the store crosses PCIe as it does to a NIC,
    /// and the sink sees it as late.
    pub host_doorbell: bool,
    /// True if the sink looks at every WQE whose doorbell was rung. That tests the protocol, and is slower.
    pub check: bool,
    /// The bound of one case.
    pub deadline: Duration,
}

impl Sharing {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Exclusive => "exclusive",
        }
    }

    /// Returns the number of QPs of `posters` posters.
    pub(super) fn qps(self, posters: u32) -> u32 {
        match self {
            Self::Shared => 1,
            Self::Exclusive => posters,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let blocks = self.blocks;
        write!(f, "{} with {blocks} blocks", self.kernel())
    }
}

impl Case {
    /// Returns the name of the kernel that measures this case.
    #[must_use]
    pub fn kernel(&self) -> String {
        let sharing = self.sharing.name();
        let scope = match self.scope {
            Scope::Thread => "thread",
            Scope::Warp => "warp",
        };
        let record = if self.record { "" } else { "no_record_" };
        format!("wv_bench_post_{sharing}_{record}{scope}")
    }

    pub(super) fn mode(&self) -> u32 {
        let exclusive = match self.sharing {
            Sharing::Shared => 0,
            Sharing::Exclusive => MODE_EXCLUSIVE,
        };
        exclusive | if self.record { 0 } else { MODE_NO_RECORD }
    }

    /// Returns the number of WQEs of one call.
    pub(super) fn batch(&self) -> u32 {
        match self.scope {
            Scope::Thread => 1,
            Scope::Warp => LANES,
        }
    }

    pub(super) fn wrong(&self, detail: String) -> BenchError {
        BenchError::Wrong {
            case: self.to_string(),
            detail,
        }
    }
}

impl PostOptions {
    /// Returns the memory of the register, `host` or `device`.
    pub(super) fn doorbell(&self) -> &'static str {
        if self.host_doorbell { "host" } else { "device" }
    }

    pub(super) fn with_bytes(self, bytes: u32) -> Self {
        Self { bytes, ..self }
    }

    pub(super) fn check(&self, blocks: impl IntoIterator<Item = u32>) -> Result<(), BenchError> {
        let in_range = |what: &'static str, value: u32, least: u32, most: u32| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(BenchError::Option {
                what,
                value: value.to_string(),
                limit: format!("{least} to {most}"),
            })
        };
        in_range("calls", self.calls, 1, 1 << 24)?;
        in_range("depth", self.depth, MIN_DEPTH, MAX_DEPTH)?;
        in_range("bytes", self.bytes, 1, MAX_PUT_BYTES)?;
        if !self.depth.is_power_of_two() {
            return Err(BenchError::Option {
                what: "depth",
                value: self.depth.to_string(),
                limit: "a power of two".to_owned(),
            });
        }
        blocks
            .into_iter()
            .try_for_each(|blocks| in_range("blocks", blocks, 1, MAX_BLOCKS))
    }
}

/// Returns every combination of sharing, scope and record, for each number of blocks.
#[must_use]
pub fn all_cases(blocks: &[u32]) -> Vec<Case> {
    let mut cases = Vec::new();
    for sharing in [Sharing::Exclusive, Sharing::Shared] {
        for scope in [Scope::Thread, Scope::Warp] {
            for record in [true, false] {
                let case = |&blocks| Case {
                    sharing,
                    scope,
                    blocks,
                    record,
                };
                cases.extend(blocks.iter().map(case));
            }
        }
    }
    cases
}
