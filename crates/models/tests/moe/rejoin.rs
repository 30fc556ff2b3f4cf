//! The mutants of rejoin with the property that each breaks.

use models::moe::Property;
use models::moe::rejoin::{Mutant, Rejoin};

/// Each breaks the property named with it.
pub(crate) fn mutants() -> Vec<(Rejoin, Property)> {
    [
        (Mutant::NotCleared, Property::K1),
        (Mutant::CreditNotCleared, Property::C1),
        (Mutant::SkipNotCleared, Property::K1),
        (Mutant::LastKept, Property::L),
        (Mutant::NoFence, Property::E2),
        (Mutant::ClearBeforeFence, Property::K1),
        (Mutant::JoinerCountsFromOne, Property::K1),
    ]
    .map(|(mutant, property)| {
        let model = Rejoin {
            calls: 5,
            mutant: Some(mutant),
        };
        (model, property)
    })
    .into()
}
