//! A model of notices as the engine sends them: over control streams, of which several may be open and any may end, between the same two
//! lives.
//!
//! The sender keeps each notice until the receiver's program has taken it, and keeps no more than the inbox has room for. One stream at a
//! time carries notices. A new stream begins with the number for which the receiver has said it waits. The receiver takes the notice whose
//! number is due, drops one with a lower number, and reports how many its program has taken. A stream keeps its order. When it ends, it
//! loses what is under way.
//!
//! Module `state` has the state, `steps` the steps, and `configurations` what is checked.

mod configurations;
mod state;
mod steps;

pub use configurations::{configurations, harmless, larger, mutants};
pub use state::State;

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

type Broken = crate::explore::Broken<Property>;

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

/// A configuration of the model.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The number of notices that are sent, at most 6.
    pub notices: u8,
    /// The number of notices that the inbox has room for.
    pub room: u8,
    /// The number of streams that are made, at most 3.
    pub streams: u8,
    /// The rule that the model breaks; None: it keeps all rules.
    pub mutant: Option<Mutant>,
}

impl Stream {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
