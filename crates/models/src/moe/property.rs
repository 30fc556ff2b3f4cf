//! The properties of the MoE protocol that must hold, by the names that its rules use.

/// What a step returns that breaks a property.
pub(super) type Broken = crate::explore::Broken<Property>;

/// A property that must hold, and that a mutant breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// A payload never lands in a slot whose earlier call is not released.
    C1,
    /// An accepted word says what the slot holds.
    E1,
    /// Nothing of a dropped generation lands in a slot in use, and no rank commits a view before it has fenced that generation.
    E2,
    /// Each call runs in one view.
    E3,
    /// No rank has fenced a rank that the new epoch keeps.
    E6,
    /// A call that is reported as not sent was not sent.
    K1,
    /// `token_valid` says what was really processed and added.
    M3,
    /// Without clocks no rank is stuck.
    DL,
    /// No rank gives up on a healthy rank.
    P4,
    /// A call is the same invocation on all ranks.
    AL,
    /// Every living member can go on.
    L,
    /// A device always finds its view.
    VT,
    /// As long as nothing has failed since two ranks were united, every call is whole at both.
    W,
    /// A rank that awaits no member begins one call in each deadline, so that it does not run ahead of the others.
    PA,
    /// The rows that land under the word of a call are the rows of that call.
    S1,
    /// The own rows that a rank reads in a call are the rows of that call.
    S2,
    /// A rank that is late or dead, or that no packet reaches, delays no other rank and makes it lose nothing.
    S3,
    /// At most one phase waits for the same work in flight.
    S4,
    /// A rank that is back waits for no rank that has passed it.
    S5,
    /// A peer that has sent in time is never taken for late.
    T1,
    /// A rank that waits beats to every peer whose QPs are open before a quarter of a deadline has passed.
    T2,
    /// A call that is held for long is not waited for again and again.
    T3,
}

impl Property {
    /// All properties. For each, some mutant must break it.
    pub const ALL: [Self; 22] = [
        Self::C1,
        Self::E1,
        Self::E2,
        Self::E3,
        Self::E6,
        Self::K1,
        Self::M3,
        Self::DL,
        Self::P4,
        Self::AL,
        Self::L,
        Self::VT,
        Self::W,
        Self::PA,
        Self::S1,
        Self::S2,
        Self::S3,
        Self::S4,
        Self::S5,
        Self::T1,
        Self::T2,
        Self::T3,
    ];
}
