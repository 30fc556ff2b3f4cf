//! Notices as the engine sends them: over control streams, of which several may be open and any may end, between the same two lives.
//!
//! The sender keeps each notice until the receiver's program has taken it, and keeps no more than the inbox has room for. One
//! stream at a time carries; a new one begins with the number for which the receiver has said it waits. The receiver takes the
//! number that is due, drops a lower one, and reports how many its program has taken. A stream keeps its order, and loses what is
//! under way when it ends.
//!
//! `state` has the state, `steps` its steps, `configurations` the worlds to check.

mod configurations;
mod state;
mod steps;

pub use configurations::{configurations, harmless, larger, mutants};
pub use state::State;

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// A notice is delivered once and in order.
    Once,
    /// The inbox never has more than its room.
    Room,
    /// No end is taken for one that breaks the rules.
    Rules,
    /// None is lost, and none waits for ever.
    Ends,
}

impl Property {
    /// Those that some mutant must break.
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
    /// A stream that waits its turn begins with the number that was accepted when it was made, though less is kept by then.
    ResumedBeforeTheKept,
    CountStoredNotRaised,
    /// A stream that has ended goes on to be the one that carries.
    EndedStreamCarries,
    /// Every stream carries all: only dear.
    AllStreamsCarry,
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// Notices that are sent, at most 6.
    pub notices: u8,
    /// Notices that the inbox has room for.
    pub room: u8,
    /// Streams that are made, at most 3.
    pub streams: u8,
    /// The rule that it breaks; none: it keeps all.
    pub mutant: Option<Mutant>,
}

impl Stream {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}
