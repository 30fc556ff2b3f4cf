//! What can go wrong in a team.

use std::time::Duration;

use rendezvous::{StoreError, printable};

use crate::config::SignalOrder;
use crate::error::{Error, Part};
use crate::fabric::{FabricError, Matter, RefusedStep, every};
use crate::gpu::GpuError;
use crate::verbs::VerbsError;

/// An error that refuses or ends a team, with the rank, the value and the limit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TeamError {
    /// A rank that the team does not have.
    #[error("rank {rank} is unknown: the team has ranks 0 to {}", ranks.saturating_sub(1))]
    UnknownRank {
        /// The rank that the caller gave.
        rank: u32,
        /// The number of ranks of the team.
        ranks: u32,
    },
    /// A value outside its limits.
    #[error("{what} is {value}; it must be {limit}")]
    Limit {
        /// The name of the value.
        what: &'static str,
        /// The value that was given, in words.
        value: String,
        /// The limit, in words.
        limit: String,
    },
    /// Another process has this rank already in the store.
    #[error(
        "rank {rank} has joined already: another process has this rank, or the store belongs to an earlier run. The other ranks do not hear of this start"
    )]
    RankTaken {
        /// The rank that another process has.
        rank: u32,
    },
    /// Ranks were started with different settings.
    #[error(
        "{} is {} at rank {first_rank} but {} at rank {second_rank}",
        printable(what),
        printable(first),
        printable(second)
    )]
    Mismatch {
        /// The name of the setting.
        what: String,
        /// A rank that has the first of the two values.
        first_rank: u32,
        /// The value of the rank `first_rank`.
        first: String,
        /// A rank that has the second value.
        second_rank: u32,
        /// The value of the rank `second_rank`.
        second: String,
    },
    /// The program of this rank makes something with the others, and another rank is in a call with other arguments.
    #[error(
        "{} is {} at rank {first_rank} but {} at rank {second_rank}: call {call} of one rank stands against what the other one makes",
        printable(argument),
        printable(first),
        printable(second)
    )]
    Differs {
        /// The name of the argument.
        argument: String,
        /// A rank that has the first of the two values.
        first_rank: u32,
        /// The value of the rank `first_rank`.
        first: String,
        /// A rank that has the second value.
        second_rank: u32,
        /// The value of the rank `second_rank`.
        second: String,
        /// The number of the call.
        call: u32,
        /// The layer of the call.
        layer: String,
    },
    /// Another rank gave up, and has published its error.
    #[error("rank {rank} failed: {}", printable(message))]
    PeerFailed {
        /// The rank that gave up.
        rank: u32,
        /// The error of that rank.
        message: String,
    },
    /// The process of a founder on this machine has ended, and it published no error.
    #[error(
        "rank {rank} has ended: its process {} is gone and left no reason",
        printable(process)
    )]
    PeerEnded {
        /// The rank whose process has ended.
        rank: u32,
        /// The process that held that rank.
        process: String,
    },
    /// A founder has closed its team ([`Team::tell_closed`](super::Team::tell_closed)).
    #[error("rank {rank} has closed its team, and takes part in nothing any more")]
    PeerClosed {
        /// The rank that has closed its team.
        rank: u32,
    },
    /// Ranks did not come in time.
    #[error("{} within {waited:.1?} ({topic})", Self::absent(.missing))]
    Absent {
        /// The ranks that did not come.
        missing: Vec<u32>,
        /// The topic of the records that are missing.
        topic: String,
        /// The time that this rank waited.
        waited: Duration,
    },
    /// The others have agreed to go on without this rank.
    #[error("rank {rank} was given up: {} without it", Self::going_on(.others))]
    LeftOut {
        /// This rank.
        rank: u32,
        /// The ranks that go on.
        others: Vec<u32>,
    },
    /// A record in the store holds a value that no rank writes.
    #[error(
        "invalid record '{}' from rank {rank}: {}",
        printable(topic),
        printable(reason)
    )]
    Record {
        /// The rank whose record it is.
        rank: u32,
        /// Key or topic of the record.
        topic: String,
        /// The reason why it is invalid, in words.
        reason: String,
    },
    /// Kernels do not drop their guards of a peer in time.
    #[error(
        "rank {peer} cannot be recovered: {readers} guards of it are still held after {waited:.1?}; a kernel does not drop \
         or refresh its guard"
    )]
    Guarded {
        /// The rank whose guards are held.
        peer: u32,
        /// The number of guards that kernels still hold.
        readers: u64,
        /// The time that this rank waited.
        waited: Duration,
    },
    /// The generation of a peer is over, or the QPs are for another one.
    #[error(
        "rank {peer} of generation {generation} is over for this rank: it comes back as generation {least} or later"
    )]
    Generation {
        /// The rank that the generation is of.
        peer: u32,
        /// The generation that the caller asked for.
        generation: u32,
        /// The first generation that is accepted.
        least: u32,
    },
    /// A new generation would replace one that may still store into memory of this rank.
    #[error(
        "rank {peer} of generation {generation} may still store into windows of this rank: process {process} must end before \
         another takes its place"
    )]
    StillRuns {
        /// The rank whose old generation may still store.
        peer: u32,
        /// The former generation, which may still store.
        generation: u32,
        /// The process of the former generation.
        process: String,
    },
    /// The QPs to a peer have never been connected, or are being connected to another generation.
    #[error(
        "rank {peer} is not connected: it has not joined, or a new generation of it is being connected"
    )]
    NotConnected {
        /// The rank without connected QPs.
        peer: u32,
    },
    /// A rank that joined later asked for something that only founders do, together.
    #[error("{what} is for those who founded the team; rank {rank} joined later")]
    Late {
        /// The thing that the rank asked for, in words.
        what: &'static str,
        /// The rank of this process.
        rank: u32,
    },
    /// Another thread recovers the same peer now.
    #[error("rank {peer} is being recovered by another thread")]
    Recovering {
        /// The rank that the other thread recovers.
        peer: u32,
    },
    /// Two ranks tried to come together, and the first write of this rank failed.
    #[error(
        "rank {peer} was not reached in attempt {attempt} to come together: QP {qp} has failed with vendor syndrome and \
         syndrome {syndrome:#06x}; try again"
    )]
    Unreached {
        /// The rank that was not reached.
        peer: u32,
        /// The number of the attempt, from 1; 0 for the first proof of a newcomer.
        attempt: u64,
        /// The place of the QP among the QPs to that peer.
        qp: u32,
        /// vendor_err_synd << 8 | syndrome of the error CQE.
        syndrome: u32,
    },
    /// A launch posts more than the ring has room for. A kernel that does not poll would wait for space, or overrun the ring.
    #[error(
        "QP {qp} to rank {peer} has room for {free} of its {depth} WQEBBs, and the launch posts {need}; a kernel that does \
         not poll would wait for space"
    )]
    RingSpace {
        /// The rank at the other end of the QP.
        peer: u32,
        /// The place of the QP among the QPs to that peer.
        qp: u32,
        /// WQEBBs that the launch posts.
        need: u64,
        /// WQEBBs that are free, as kernels would find them.
        free: u64,
        /// The length of the ring in WQEBBs.
        depth: u32,
    },
    /// One call posts more than a quarter of the ring.
    #[error(
        "one {op} on QP {qp} to rank {peer} takes {need} WQEBBs; a call may take {limit}, a quarter of the ring"
    )]
    Batch {
        /// The operation of the device library.
        op: &'static str,
        /// The rank at the other end of the QP.
        peer: u32,
        /// The place of the QP among the QPs to that peer.
        qp: u32,
        /// The number of WQEBBs of the call.
        need: u64,
        /// The most WQEBBs that one call may take.
        limit: u64,
    },
    /// A device of this rank does not keep signals after data in the way that was asked for.
    #[error(
        "the order of signals is to be {asked}, but {reason}; the cheapest that works there is {best} \
         (WARPVERBS_MOE_ORDER)"
    )]
    Order {
        /// The order that was asked for.
        asked: SignalOrder,
        /// The reason why the device does not keep the order.
        reason: String,
        /// The cheapest order that the devices of this rank keep.
        best: SignalOrder,
    },
    /// No path to a peer is found.
    #[error("rank {peer} is not reached: {source}")]
    NoPath {
        /// The rank to which no path leads.
        peer: u32,
        /// The error of the HCA or the system.
        source: VerbsError,
    },
    /// The devices of this rank refuse every step of a ladder that was allowed.
    #[error("no way for {matter}: {}", every(.refused))]
    NoWay {
        /// The matter that the ladder is about.
        matter: Matter,
        /// The steps that were allowed, each with the reason.
        refused: Vec<RefusedStep>,
    },
    /// The GPU or the HCAs of this rank that a configuration names are not found or do not open.
    #[error(transparent)]
    Device(Error),
    /// The store that the ranks meet in has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An error of the HCA.
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    /// An error of the device that runs kernels.
    #[error(transparent)]
    Gpu(#[from] GpuError),
}

impl TeamError {
    /// Returns the error of a device that was to be opened.
    pub(in crate::team) fn device(error: impl Into<Error>) -> Self {
        Self::Device(error.into())
    }

    pub(crate) fn limit(what: &'static str, value: impl ToString, limit: impl ToString) -> Self {
        Self::Limit {
            what,
            value: value.to_string(),
            limit: limit.to_string(),
        }
    }

    /// Returns whether the error began at another rank, which has published it.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        matches!(self, Self::PeerFailed { .. })
    }

    /// Returns whether the error is a record whose value no rank writes. Such a record counts as missing until its rank writes it
    /// again.
    pub(crate) fn counts_as_missing(&self) -> bool {
        match self {
            Self::Record { .. } => true,
            Self::Store(error) => error.is_unreadable(),
            _ => false,
        }
    }

    fn absent(missing: &[u32]) -> String {
        let verb = if missing.len() == 1 { "has" } else { "have" };
        format!("{} {verb} not come", Self::named(missing))
    }

    fn going_on(others: &[u32]) -> String {
        let verb = if others.len() == 1 { "goes" } else { "go" };
        format!("{} {verb} on", Self::named(others))
    }

    fn named(ranks: &[u32]) -> String {
        let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let word = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{word} {}", names.join(", "))
    }
}

impl From<FabricError> for TeamError {
    fn from(error: FabricError) -> Self {
        match error {
            FabricError::Verbs(error) => Self::Verbs(error),
            FabricError::Gpu(error) => Self::Gpu(error),
            FabricError::Step(error) => (*error).into(),
            FabricError::NoStep { matter, refused } => Self::NoWay { matter, refused },
            FabricError::NotOffered(what) => Self::Gpu(GpuError::BadArgument {
                what: "device memory",
                value: "not exported".to_owned(),
                limit: format!("of a device with {what}"),
            }),
        }
    }
}

impl From<TeamError> for Error {
    fn from(error: TeamError) -> Self {
        match error {
            TeamError::Device(error) => error,
            other => Self::new(Part::Team, other),
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::new(Part::Team, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_ranks_have_written_is_shown_as_one_plain_line() {
        const TEXT: &str = "a\nERROR b\u{1b}[2J\u{202e}c\u{85}";
        let text = || TEXT.to_owned();
        for error in [
            TeamError::Mismatch {
                what: text(),
                first_rank: 0,
                first: text(),
                second_rank: 1,
                second: text(),
            },
            TeamError::Differs {
                argument: text(),
                first_rank: 0,
                first: text(),
                second_rank: 1,
                second: text(),
                call: 1,
                layer: String::new(),
            },
            TeamError::PeerFailed {
                rank: 1,
                message: text(),
            },
            TeamError::PeerEnded {
                rank: 1,
                process: text(),
            },
            TeamError::Record {
                rank: 1,
                topic: text(),
                reason: text(),
            },
        ] {
            let shown = error.to_string();
            assert_eq!(shown, printable(&shown), "{shown:?}");
            assert!(shown.contains("a\\nERROR b\\u{1b}[2J"), "{shown}");
        }
    }
}
