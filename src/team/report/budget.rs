//! The ring space that a launch needs, computed before it starts: a kernel that never polls must not run out of space.

use std::collections::BTreeMap;

use crate::abi::MAX_PUT_BYTES;
use crate::team::error::TeamError;
use crate::team::parts::Parts;
use crate::team::qps::counters::{Ring, ring};

/// The kind of posts that one call of the device library makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostOp {
    /// `put`, `get`, `put_imm`: one WQEBB for each active thread and started GiB of its bytes.
    Put {
        /// Most bytes of one thread.
        bytes: u64,
    },
    /// `put_two`: one WQEBB for each active thread.
    PutTwo,
    /// `put_value`: one WQEBB for each active thread, fewer where a warp combines neighbours.
    PutValue,
    /// `signal`: one WQEBB.
    Signal,
    /// `put_signal`: as `Put`, and one more for the signal.
    PutSignal {
        /// Most bytes of one thread.
        bytes: u64,
    },
    /// `amo` of 32 bits, and of 64 bits fetch-add, compare-swap and xor: one WQEBB for each active thread.
    Amo,
    /// `amo` of 64 bits by the masked compare-and-swap (swap, and, or): two WQEBBs for each active thread, and one NOP.
    AmoWide,
    /// `flush`, `fence`, `quiet`: one WQEBB.
    Flush,
}

impl PostOp {
    fn name(self) -> &'static str {
        match self {
            Self::Put { .. } => "put",
            Self::PutTwo => "put_two",
            Self::PutValue => "put_value",
            Self::Signal => "signal",
            Self::PutSignal { .. } => "put_signal",
            Self::Amo | Self::AmoWide => "amo",
            Self::Flush => "flush",
        }
    }

    /// Returns the WQEBBs that one call takes in which `threads` threads are active.
    fn wqebbs(self, threads: u32) -> u64 {
        let threads = u64::from(threads);
        let pieces = |bytes: u64| bytes.div_ceil(u64::from(MAX_PUT_BYTES)).max(1);
        match self {
            Self::Put { bytes } => threads.saturating_mul(pieces(bytes)),
            Self::PutSignal { bytes } => threads.saturating_mul(pieces(bytes)).saturating_add(1),
            Self::PutTwo | Self::PutValue | Self::Amo => threads,
            Self::AmoWide => 2 * threads + 1,
            Self::Signal | Self::Flush => 1,
        }
    }
}

/// Calls of one kind that a launch makes on one QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posts {
    /// The rank at the other end.
    pub peer: u32,
    /// The number of the QP.
    pub qp: u32,
    /// The kind of posts that each call makes.
    pub op: PostOp,
    /// The most active threads of a call: 1 at thread scope, up to 32 at warp scope, up to the block's threads at block scope.
    pub threads: u32,
    /// The number of calls in the whole launch.
    pub calls: u64,
}

/// Proves that a launch that makes no other posts than `posts` finds ring space at once.
pub(in crate::team) fn check_no_poll(own: &Parts, posts: &[Posts]) -> Result<(), TeamError> {
    let mut needs: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for posts in posts {
        let qp = carrier_of(own, posts.peer, posts.qp)?;
        let depth = ring_of(own, posts.peer, qp)?.depth;
        if posts.threads == 0 {
            return Err(TeamError::limit("threads of a call", 0, "at least 1"));
        }
        let (each, limit) = (posts.op.wqebbs(posts.threads), u64::from(depth / 4));
        if each > limit {
            return Err(TeamError::Batch {
                op: posts.op.name(),
                peer: posts.peer,
                qp: posts.qp,
                need: each,
                limit,
            });
        }
        let need = needs.entry((posts.peer, qp)).or_default();
        *need = need.saturating_add(each.saturating_mul(posts.calls));
    }
    for ((peer, qp), need) in needs {
        let Ring { depth, free } = ring_of(own, peer, qp)?;
        if need > free {
            return Err(TeamError::RingSpace {
                peer,
                qp,
                need,
                free,
                depth,
            });
        }
    }
    Ok(())
}

/// Returns the QP that carries what is posted to QP `i`.
fn carrier_of(own: &Parts, peer: u32, i: u32) -> Result<u32, TeamError> {
    let state = own.peers.get(peer)?.state();
    state.qps.get(i)?;
    Ok(state.qps.carriers().qp(i, own.config.qps_per_peer))
}

fn ring_of(own: &Parts, peer: u32, qp: u32) -> Result<Ring, TeamError> {
    let state = own.peers.get(peer)?.state();
    ring(own.gpu.as_ref(), state.qps.get(qp)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_take_the_wqebbs_that_the_device_library_reserves() {
        let gib = u64::from(MAX_PUT_BYTES);
        let cases = [
            (PostOp::Put { bytes: 1 }, 1, 1),
            (PostOp::Put { bytes: gib }, 32, 32),
            (PostOp::Put { bytes: gib + 1 }, 3, 6),
            (PostOp::PutSignal { bytes: 8 }, 32, 33),
            (PostOp::PutTwo, 5, 5),
            (PostOp::PutValue, 32, 32),
            (PostOp::Signal, 32, 1),
            (PostOp::Amo, 7, 7),
            (PostOp::AmoWide, 7, 15),
            (PostOp::Flush, 128, 1),
        ];
        for (op, threads, wqebbs) in cases {
            assert_eq!(op.wqebbs(threads), wqebbs, "{op:?}");
        }
        // 2^66 and a bit: more than any ring, and no wrap.
        assert_eq!(PostOp::Put { bytes: u64::MAX }.wqebbs(u32::MAX), u64::MAX);
    }
}
