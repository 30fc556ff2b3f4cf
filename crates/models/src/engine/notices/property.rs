//! The properties that must hold, and the defects of mutants that break them.

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

pub(super) type Broken = crate::explore::Broken<Property>;

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
