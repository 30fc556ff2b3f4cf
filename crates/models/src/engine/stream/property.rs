//! The properties that must hold, and the defects of mutants that break them.

/// The properties that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Each notice is delivered once and in order.
    Once,
    /// The inbox never has more notices than it has room for.
    Room,
    /// Neither end takes the other for one that breaks the rules.
    Rules,
    /// No notice is lost, and none waits for ever.
    Ends,
}

impl Property {
    /// All properties. For each, some mutant must break it.
    pub const ALL: [Self; 4] = [Self::Once, Self::Room, Self::Rules, Self::Ends];
}

pub(super) type Broken = crate::explore::Broken<Property>;

/// The defect of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the name of each says what is done wrong")]
pub enum Mutant {
    RoomNotLookedAt,
    ForgottenOnceSent,
    OldNumberAccepted,
    ResumedAtTheLastSent,
    /// A stream that waits for its turn begins with the number that was accepted when the stream was made, though by then the sender no
    /// longer keeps that notice.
    ResumedBeforeTheKept,
    CountStoredNotRaised,
    /// A stream that has ended stays the one that carries.
    EndedStreamCarries,
    /// Every stream carries all notices. This breaks no property, and only costs more.
    AllStreamsCarry,
}
