//! What a configuration says, the configurations with the numbers of states that the reference implementation's model in Python found, and
//! mutants with the property that each breaks.

use super::property::{Mutant, Property};

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
    pub(super) fn is(&self, mutant: Mutant) -> bool {
        self.mutants.contains(&mutant)
    }
}

/// Returns a configuration with `records` records and a ring of 2.
fn of(records: u8) -> Notices {
    Notices {
        records,
        ring: 2,
        breaks: 1,
        mutants: &[],
        states: None,
    }
}

/// Returns the configurations that every run checks.
pub fn configurations() -> Vec<Notices> {
    let counted = |states, notices| Notices {
        states: Some(states),
        ..notices
    };
    vec![
        counted(313, Notices { breaks: 0, ..of(6) }),
        counted(266, Notices { ring: 1, ..of(4) }),
        counted(3_243, of(5)),
        counted(36_730, Notices { ring: 3, ..of(7) }),
        Notices { breaks: 2, ..of(5) },
    ]
}

/// Returns the configurations that are also checked with `WV_TEST_FULL=1`.
pub fn larger() -> Vec<Notices> {
    vec![Notices {
        ring: 3,
        breaks: 2,
        ..of(7)
    }]
}

/// Returns mutants that break no property. Each leaves one rule out, which is not needed because numbers are absolute.
pub fn harmless() -> Vec<Notices> {
    let without = |states, mutants| Notices {
        mutants,
        states: Some(states),
        ..of(5)
    };
    vec![
        without(3_376, &[Mutant::ResumedAtTheLastCompletion]),
        without(3_297, &[Mutant::RingClearedUntaken]),
        without(4_890, &[Mutant::OldCreditTaken]),
    ]
}

/// Returns the mutants, each with the property that it breaks.
pub fn mutants() -> Vec<(Notices, Property)> {
    let all: [(&'static [Mutant], Property); 7] = [
        (&[Mutant::CreditNotLookedAt], Property::N2),
        (&[Mutant::HeaderBeforeTheBody], Property::N1),
        (&[Mutant::HeaderWithoutNumber], Property::N1),
        (&[Mutant::CreditStoredNotRaised], Property::N4),
        (
            &[
                Mutant::RingClearedUntaken,
                Mutant::ResumedAtTheLastCompletion,
            ],
            Property::N4,
        ),
        (&[Mutant::ResumedAtTheLastPost], Property::N4),
        (&[Mutant::EndNotReset], Property::N3),
    ];
    let of = |mutants| Notices { mutants, ..of(5) };
    all.map(|(mutants, property)| (of(mutants), property))
        .into()
}
