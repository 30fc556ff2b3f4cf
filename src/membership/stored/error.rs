//! Why a value that was read cannot be.

use membership_rules::record::Refused;
use rendezvous::printable;

/// Why a record or a row cannot be read. It names the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::membership) enum Unreadable {
    /// It is no JSON object of the fields that it has to have.
    #[error("{}", printable(.0))]
    Json(String),
    /// It is that of another team.
    #[error("it is of {found} slots; there are {slots}")]
    Slots { found: u32, slots: u32 },
    /// What should be a number is none.
    #[error("{field}: '{}' is no number up to {}", printable(found), u32::MAX)]
    Number { field: &'static str, found: String },
    /// A slot that the team has not.
    #[error("{field}: slot {slot}; there are {slots}")]
    Slot {
        field: &'static str,
        slot: u32,
        slots: u32,
    },
    /// Slots of a set ascend.
    #[error("{field}: slot {slot} does not come behind slot {before}")]
    Order {
        field: &'static str,
        slot: u32,
        before: u32,
    },
    /// A set in digits has one for each four slots.
    #[error("{field}: {found} digits; a set of {slots} slots has {digits}")]
    Length {
        field: &'static str,
        found: usize,
        digits: usize,
        slots: u32,
    },
    /// A digit that is none.
    #[error("{field}: '{}' are no hexadecimal digits", printable(found))]
    Digits { field: &'static str, found: String },
    /// The list has more numbers than slots, or fewer.
    #[error("{field}: {found} numbers for {slots} slots")]
    Numbers {
        field: &'static str,
        found: u64,
        slots: u32,
    },
    /// Generations begin at 1.
    #[error("{field}: generation 0 of slot {slot}")]
    Generation { field: &'static str, slot: u32 },
    /// Something between separators is missing, or too much.
    #[error("{field}: '{}' is not {form}", printable(found))]
    Form {
        field: &'static str,
        found: String,
        form: &'static str,
    },
    /// A slot stands in it twice.
    #[error("{field}: slot {slot} comes twice")]
    Twice { field: &'static str, slot: u32 },
    /// Views begin at 1, end below the largest number, and have members.
    #[error("view {epoch} of {members} members")]
    View { epoch: u32, members: usize },
    /// A record that no rank by these rules writes.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Unreadable {
    /// Returns the beginning of what was found, so that a message stays short.
    pub(super) fn shown(found: &str) -> String {
        found.chars().take(32).collect()
    }
}
