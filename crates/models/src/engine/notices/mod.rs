//! A model of notices: a ring of records in the receiver's memory, over a connection that breaks and is made again.
//!
//! The sender writes a record's body, then its header with its absolute number, in order on one QP. The receiver takes the record that is
//! due, and writes credit back: an absolute count of records. The connection may break at any moment, between the same two incarnations.
//! The receiver then resets its end, takes every whole record, clears the ring, and reports how many records it has accepted. The sender
//! goes on from that number.
//!
//! The reference implementation has a model in Python with the same states. Module `state` holds what the model remembers,
//! `steps` what may happen, and `configurations` what is checked.

mod configurations;
mod state;
mod steps;

pub use configurations::{configurations, harmless, larger, mutants};
pub use state::State;

/// The properties that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// A record is delivered once, in order, whole.
    N1,
    /// No record is overwritten before it is taken.
    N2,
    /// No write or credit of an old connection counts in a new one.
    N3,
    /// No record is lost, and none waits for ever.
    N4,
}

impl Property {
    /// All properties. For each, some mutant must break it.
    pub const ALL: [Self; 4] = [Self::N1, Self::N2, Self::N3, Self::N4];
}

type Broken = crate::explore::Broken<Property>;

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    CreditNotLookedAt,
    HeaderBeforeTheBody,
    HeaderWithoutNumber,
    CreditStoredNotRaised,
    EndNotReset,
    ResumedAtTheLastPost,
    ResumedAtTheLastCompletion,
    /// The ring is cleared before all whole records were taken.
    RingClearedUntaken,
    OldCreditTaken,
}

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Notices {
    /// The number of records that are sent, at most 7.
    pub records: u8,
    /// The number of records of the ring, at most 3.
    pub ring: u8,
    /// How often the connection breaks, at most twice.
    pub breaks: u8,
    /// The rules that the model breaks.
    pub mutants: &'static [Mutant],
    /// The number of states that the reference implementation's model found, if known.
    pub states: Option<usize>,
}

impl Notices {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutants.contains(&mutant)
    }
}
