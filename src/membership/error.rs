//! Errors of a group.

use std::time::Duration;

use rendezvous::printable;

use super::{GroupState, LayerError};
use crate::error::{ThreadPanicked, ThreadRefused};
use crate::team::{StoreError, TeamError};

/// Why a group refuses or ends, with the rank, the value and the limit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// A bound is outside its limits.
    #[error("{what} is {value:?}; it must be {}", limits(*.least, *.most))]
    Bound {
        /// Name of the bound in `GroupConfig`.
        what: &'static str,
        /// The value given.
        value: Duration,
        /// Least value allowed.
        least: Duration,
        /// Greatest value allowed.
        most: Duration,
    },
    /// This generation has its group already, or had one.
    #[error(
        "generation {generation} of rank {rank} has had its group: one group serves one layer, and a rank that has left comes \
         back with a new generation"
    )]
    Taken {
        /// Slot of the rank.
        rank: u32,
        /// Generation of the rank.
        generation: u32,
    },
    /// The bounds of this rank differ from those of the group.
    #[error(
        "this rank's group has {own}, and others have {}; give all ranks the same GroupConfig",
        printable(theirs)
    )]
    Differs {
        /// The bounds of this rank, in words.
        own: String,
        /// The bounds in the store, in words.
        theirs: String,
    },
    /// A record in the store is not one that a group writes.
    #[error(
        "invalid record '{}' of the group: {}",
        printable(key),
        printable(reason)
    )]
    Record {
        /// Key of the record.
        key: String,
        /// The reason why it is invalid, in words.
        reason: String,
    },
    /// The rank has not come to the awaited state.
    #[error("the rank is {state:?} after {waited:.1?}, not {wanted:?}{}", said(.why))]
    State {
        /// The state of the rank.
        state: GroupState,
        /// The state for which the call waited.
        wanted: GroupState,
        /// How long the call waited.
        waited: Duration,
        /// The newest event that holds the rank up, in words. None: no event does, and the rank only needs more time.
        why: Option<String>,
    },
    /// The caller suspects a rank that the team does not have, or this rank itself.
    #[error(
        "rank {rank} cannot be suspected here: the team has {ranks} slots, and this is rank {own}"
    )]
    Suspect {
        /// The rank that the caller gave.
        rank: u32,
        /// Number of slots of the team.
        ranks: u32,
        /// Slot of this rank.
        own: u32,
    },
    /// A thread could not be started.
    #[error(transparent)]
    Thread(#[from] ThreadRefused),
    /// A thread of the group has panicked.
    #[error(transparent)]
    Panicked(#[from] ThreadPanicked),
    /// The MoE layer of the group has failed.
    #[error("the layer: {0}")]
    Layer(LayerError),
    /// The team of the group has failed.
    #[error(transparent)]
    Team(#[from] TeamError),
    /// The store that the ranks meet in has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn said(why: &Option<String>) -> String {
    why.as_ref()
        .map_or_else(String::new, |why| format!(": {why}"))
}

fn limits(least: Duration, most: Duration) -> String {
    if most == Duration::MAX {
        format!("at least {least:?}")
    } else {
        format!("{least:?} to {most:?}")
    }
}
