//! What a configuration says, the configurations, and mutants with the property that each breaks.

use super::property::{Mutant, Property};

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
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

const fn of(notices: u8, room: u8, streams: u8) -> Stream {
    Stream {
        notices,
        room,
        streams,
        mutant: None,
    }
}

/// Returns the configurations that every run checks.
pub fn configurations() -> Vec<Stream> {
    vec![of(4, 2, 1), of(3, 1, 2), of(3, 2, 2)]
}

/// Returns the configurations that are also checked with `WV_TEST_FULL=1`.
pub fn larger() -> Vec<Stream> {
    vec![of(5, 2, 2), of(2, 1, 3)]
}

/// Returns a mutant that breaks no property: the rule that it leaves out only saves cost.
pub fn harmless() -> Vec<Stream> {
    vec![Stream {
        mutant: Some(Mutant::AllStreamsCarry),
        ..of(3, 2, 2)
    }]
}

/// Returns the mutants, each with the property that it breaks.
pub fn mutants() -> Vec<(Stream, Property)> {
    let all = [
        (Mutant::RoomNotLookedAt, Property::Room),
        (Mutant::ForgottenOnceSent, Property::Room),
        (Mutant::OldNumberAccepted, Property::Once),
        (Mutant::ResumedAtTheLastSent, Property::Ends),
        (Mutant::ResumedBeforeTheKept, Property::Rules),
        (Mutant::CountStoredNotRaised, Property::Ends),
        (Mutant::EndedStreamCarries, Property::Ends),
    ];
    let of = |mutant| Stream {
        mutant: Some(mutant),
        ..of(3, 1, 2)
    };
    all.map(|(mutant, property)| (of(mutant), property)).into()
}
