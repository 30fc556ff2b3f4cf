//! The values, besides rows, that ranks write under their own names: JSON objects.

use membership_rules::anew::{Place, Word};
use membership_rules::record::RankGeneration;
use rendezvous::Process;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The value of a living rank's member key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::membership) struct Member {
    pub(in crate::membership) process: Process,
    /// The rank wants to be taken in.
    pub(in crate::membership) asks: bool,
    /// The store does not hold the newest record that this rank has had. Other ranks then look for the rank's `had` key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::membership) lost: bool,
}

/// The value that a member writes when it wants to leave. `last` is the last call that it starts in the view of `epoch`. The
/// goodbye holds in that view only. If a change keeps the member meanwhile, the member writes a new goodbye.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::membership) struct Goodbye {
    pub(in crate::membership) epoch: u32,
    pub(in crate::membership) last: u32,
}

/// The value of a rank's `had` key: what it knows of the record that the store has lost. The rank writes it again and again, so that
/// a reader tells the word of a living rank from one that an earlier store has kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::membership) struct Had {
    pub(in crate::membership) epoch: u32,
    pub(in crate::membership) number: u64,
    /// The record that the store has lost, as it stood in the store.
    pub(in crate::membership) record: String,
    /// The rank was in touch with the store, not longer ago than the group takes to be founded anew.
    pub(in crate::membership) touched: bool,
    /// Ranks that have ended for certain, as this rank has seen.
    pub(in crate::membership) ended: Vec<RankGeneration>,
    /// Time for which the record has been lost, ms.
    pub(in crate::membership) lost_ms: u64,
    /// What the rank waits for, in words, for the reports of others.
    pub(in crate::membership) waits: String,
}

impl Had {
    pub(in crate::membership) fn word(&self) -> Word {
        Word {
            place: Place {
                epoch: self.epoch,
                number: self.number,
            },
            touched: self.touched,
        }
    }
}

pub(in crate::membership) fn text(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("numbers and words")
}

pub(in crate::membership) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    serde_json::from_slice(text).map_err(|error| error.to_string())
}
