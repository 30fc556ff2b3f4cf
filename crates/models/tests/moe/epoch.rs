//! The configurations of the protocol's table, and the mutants of membership with the property that each breaks.

use models::moe::Property;
use models::moe::epoch::{Epoch, Mutant};

const ONE_DEATH: Epoch = Epoch {
    ranks: 3,
    calls: 2,
    deaths: 1,
    suspicions: 0,
    aborts: 0,
    evidence: false,
    join: false,
    mutant: None,
    states: Some(59_416),
};

/// Members die, or are taken for dead.
pub(crate) fn deaths() -> Vec<Epoch> {
    vec![
        ONE_DEATH,
        Epoch {
            deaths: 2,
            states: Some(460_810),
            ..ONE_DEATH
        },
        Epoch {
            deaths: 0,
            suspicions: 1,
            aborts: 1,
            states: Some(252_259),
            ..ONE_DEATH
        },
        Epoch {
            ranks: 2,
            calls: 3,
            suspicions: 1,
            aborts: 1,
            states: Some(21_220),
            ..ONE_DEATH
        },
        Epoch {
            evidence: true,
            states: None,
            ..ONE_DEATH
        },
    ]
}

/// Calls end aborted; a rank joins.
pub(crate) fn aborts_and_joins() -> Vec<Epoch> {
    vec![
        Epoch {
            calls: 3,
            aborts: 1,
            states: Some(644_380),
            ..ONE_DEATH
        },
        Epoch {
            join: true,
            states: Some(339_377),
            ..ONE_DEATH
        },
    ]
}

/// With `WV_TEST_FULL=1`.
pub(crate) fn larger() -> Vec<Epoch> {
    vec![
        Epoch {
            suspicions: 1,
            states: Some(1_304_086),
            ..ONE_DEATH
        },
        Epoch {
            calls: 3,
            join: true,
            states: Some(1_296_764),
            ..ONE_DEATH
        },
        Epoch {
            calls: 3,
            deaths: 2,
            states: Some(1_667_980),
            ..ONE_DEATH
        },
    ]
}

/// Each breaks the property named with it.
pub(crate) fn mutants() -> Vec<(Epoch, Property)> {
    let joins = Epoch {
        join: true,
        ..ONE_DEATH
    };
    let evidence = Epoch {
        evidence: true,
        suspicions: 1,
        ..ONE_DEATH
    };
    let two_deaths = Epoch {
        calls: 3,
        deaths: 2,
        ..ONE_DEATH
    };
    [
        (
            ONE_DEATH,
            Mutant::StartedReadBeforeLimitClosed,
            Property::E3,
        ),
        (
            ONE_DEATH,
            Mutant::LimitLoadedBeforeStartedStored,
            Property::E3,
        ),
        (ONE_DEATH, Mutant::FirstIsLargestPromise, Property::E3),
        (ONE_DEATH, Mutant::OwnPromiseOnly, Property::E3),
        (ONE_DEATH, Mutant::LimitOpenedBeforeView, Property::E3),
        (joins, Mutant::CommitByMajority, Property::E3),
        (joins, Mutant::PromiseBeforeApply, Property::E3),
        (ONE_DEATH, Mutant::FenceAfterCommit, Property::E2),
        (
            Epoch {
                suspicions: 1,
                ..ONE_DEATH
            },
            Mutant::ProposalGrows,
            Property::E6,
        ),
        (
            Epoch {
                aborts: 1,
                ..ONE_DEATH
            },
            Mutant::AbortKeepsNumber,
            Property::AL,
        ),
        (evidence, Mutant::EndsAtTheDeadline, Property::E6),
        (two_deaths, Mutant::LimitNotOpenedToFirst, Property::L),
        (two_deaths, Mutant::ViewOverwritten, Property::VT),
    ]
    .map(|(epoch, mutant, property)| {
        let model = Epoch {
            mutant: Some(mutant),
            states: None,
            ..epoch
        };
        (model, property)
    })
    .into()
}
