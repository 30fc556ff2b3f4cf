//! The configurations of the ends of calls, and the mutants with the property that each breaks.

use models::moe::Property;
use models::moe::ends::{Ends, Mutant};

const FEW: Ends = Ends {
    calls: 4,
    changes: 4,
    mutant: None,
};

pub(crate) fn holds() -> Vec<Ends> {
    vec![
        Ends { calls: 1, ..FEW },
        FEW,
        Ends {
            calls: 5,
            changes: 4,
            ..FEW
        },
    ]
}

/// Each breaks the property named with it.
pub(crate) fn mutants() -> Vec<(Ends, Property)> {
    [
        (Mutant::AbandonEndsNothing, Property::L),
        (Mutant::AbandonBeforeReceived, Property::VT),
        (Mutant::CombineOfAbandoned, Property::VT),
        (Mutant::AbandonOfReplaced, Property::L),
        (Mutant::LaterCombineEndsNothing, Property::L),
        (Mutant::FinishedSkips, Property::VT),
        (Mutant::HostDoesNotWait, Property::VT),
    ]
    .map(|(mutant, property)| {
        let model = Ends {
            mutant: Some(mutant),
            ..FEW
        };
        (model, property)
    })
    .into()
}
