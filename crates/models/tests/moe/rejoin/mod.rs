//! What a rejoin must do with words, credits and slots.
//!
//! A survivor S and one peer slot: incarnation A (epoch 1) is dropped, B joins (epoch 2, from call `first`). Dispatch only, two
//! sets, a QP per set. A runs at any speed and gives up freely, so it may be far ahead, and its packets may be late. S runs
//! calls of the old epoch, fences A, commits, finishes all old calls, clears what A left, connects B. In epoch 2 both send the
//! next dispatch before they receive this one and tell credits after each release; nobody may be stuck (rules J1 to J3).

mod state;
mod steps;

use crate::property::Property;

/// What goes wrong in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    NotCleared,
    CreditNotCleared,
    SkipNotCleared,
    LastKept,
    NoFence,
    ClearBeforeFence,
    JoinerCountsFromOne,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rejoin {
    pub(crate) calls: u8,
    pub(crate) mutant: Option<Mutant>,
}

impl Rejoin {
    fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

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
