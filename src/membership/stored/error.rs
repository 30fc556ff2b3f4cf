//! Why a value that was read from the store is not one that a group writes.

use membership_rules::record::Refused;
use rendezvous::printable;

/// Why a record or a row cannot be read, with the name of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::membership) enum Unreadable {
    /// The value is no JSON object with the required fields.
    #[error("{}", printable(.0))]
    Json(String),
    /// The value is of a team with another number of slots.
    #[error("it is of {found} slots; there are {slots}")]
    Slots { found: u32, slots: u32 },
    /// A text that should be a number is none.
    #[error("{field}: '{}' is no number up to {}", printable(found), u32::MAX)]
    Number { field: &'static str, found: String },
    /// A slot that the team has not.
    #[error("{field}: slot {slot}; there are {slots}")]
    Slot {
        field: &'static str,
        slot: u32,
        slots: u32,
    },
    /// The slots of a set do not ascend.
    #[error("{field}: slot {slot} does not come after slot {before}")]
    Order {
        field: &'static str,
        slot: u32,
        before: u32,
    },
    /// A set in digits does not have one digit for each four slots.
    #[error("{field}: {found} digits; a set of {slots} slots has {digits}")]
    Length {
        field: &'static str,
        found: usize,
        digits: usize,
        slots: u32,
    },
    /// A text that should be hexadecimal digits is none.
    #[error("{field}: '{}' are no hexadecimal digits", printable(found))]
    Digits { field: &'static str, found: String },
    /// A list does not have as many numbers as its set has slots.
    #[error("{field}: {found} numbers for {slots} slots")]
    Numbers {
        field: &'static str,
        found: u64,
        slots: u32,
    },
    /// A generation is 0. Generations begin at 1.
    #[error("{field}: generation 0 of slot {slot}")]
    Generation { field: &'static str, slot: u32 },
    /// Something between separators is missing or too much.
    #[error("{field}: '{}' is not {form}", printable(found))]
    Form {
        field: &'static str,
        found: String,
        form: &'static str,
    },
    /// A slot stands in the field twice.
    #[error("{field}: slot {slot} comes twice")]
    Twice { field: &'static str, slot: u32 },
    /// A view has no number that views have, or no members. Views begin at 1 and end below the largest number.
    #[error("view {epoch} of {members} members")]
    View { epoch: u32, members: usize },
    /// A record breaks the rules, so no rank has written it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Unreadable {
    /// Returns the beginning of the text that was found, so that a message stays short.
    pub(super) fn shown(found: &str) -> String {
        found.chars().take(32).collect()
    }
}
