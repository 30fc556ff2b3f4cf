//! Two ranks that part and unite: configurations, and mutants with the property that each breaks.
//!
//! The first calls of the two views fall on every call that interleavings allow. So they fall on both sets, at distances of 0 to
//! all calls. A leap stands for the calls of a pair that is parted for long. Of 256 numbers it passes all but a few, so leftover
//! words look new (`words.cuh` has 2^32).
//!
//! Without a leap words and `last` of before the parting do no harm. Both ends have promised the view that parts them, so all
//! that they say is older than its first call. A lap of the numbers must pass before it looks new. Suspicion, and rows that land
//! late, harm at once.
//!
//! Where a call ends aborted, the next call of that rank that runs says so again, to each rank that has become a member since. Without that two
//! healthy ranks wait for each other until a deadline, and nothing else ends it: the mutants that leave it out break `DL`.

use models::moe::Property;
use models::moe::parted::{Mutant, Parted};
use models::moe::signals::pattern::Pattern::{self, DispatchOnly, Fused, Hook, Split};

fn of(pattern: Pattern, calls: u8) -> Parted {
    Parted::new(pattern, calls)
}

fn only(calls: u8) -> Parted {
    of(DispatchOnly, calls)
}

pub(crate) fn holds() -> Vec<Parted> {
    vec![
        of(Split, 3),
        of(Fused, 2),
        Parted {
            later: 1,
            first: 254,
            ..only(4)
        },
        Parted {
            first: 126,
            ..of(Split, 3)
        },
        Parted {
            leap: 130,
            ..only(3)
        },
        Parted {
            leap: 252,
            ..only(4)
        },
        Parted {
            timeouts: 1,
            ..only(3)
        },
        Parted {
            aborts: 1,
            ..only(3)
        },
        Parted {
            aborts: 1,
            first: 254,
            ..only(3)
        },
        Parted {
            retries: 1,
            ..only(2)
        },
        Parted {
            breaks: 2,
            ..only(2)
        },
        Parted {
            third: true,
            ..only(3)
        },
    ]
}

/// With `WV_TEST_FULL=1`.
pub(crate) fn larger() -> Vec<Parted> {
    vec![
        of(Split, 4),
        of(Fused, 4),
        of(Hook, 3),
        Parted {
            leap: 200,
            timeouts: 1,
            ..only(4)
        },
        Parted {
            aborts: 1,
            ..of(Split, 3)
        },
        Parted {
            aborts: 1,
            ..of(Fused, 3)
        },
        Parted {
            aborts: 2,
            first: 254,
            ..only(4)
        },
        Parted {
            aborts: 2,
            ..of(Fused, 3)
        },
        Parted {
            timeouts: 1,
            ..of(Split, 3)
        },
        Parted {
            retries: 1,
            ..only(3)
        },
        Parted {
            breaks: 2,
            ..only(3)
        },
        Parted {
            breaks: 2,
            ..of(Split, 4)
        },
        Parted {
            third: true,
            ..only(4)
        },
        Parted {
            third: true,
            aborts: 1,
            ..only(3)
        },
        Parted {
            third: true,
            ..of(Split, 3)
        },
    ]
}

/// Returns what the search does not need, each left out alone.
pub(crate) fn second_lines() -> Vec<Parted> {
    let leap = Parted {
        leap: 252,
        ..only(4)
    };
    [
        (Mutant::SkipNotCleared, leap.clone()),
        (Mutant::ToldNotCleared, leap),
        (Mutant::PromisesBeforeErr, only(3)),
    ]
    .map(|(mutant, model)| Parted {
        mutant: Some(mutant),
        ..model
    })
    .into()
}

/// Each breaks the property named with it.
pub(crate) fn mutants() -> Vec<(Parted, Property)> {
    let leap = Parted {
        leap: 252,
        ..only(4)
    };
    let timeout = Parted {
        timeouts: 1,
        ..only(3)
    };
    let retry = Parted {
        retries: 1,
        ..only(3)
    };
    let twice = Parted {
        breaks: 2,
        ..only(2)
    };
    let untold = |mutant, aborts, model| {
        let model = Parted {
            aborts,
            mutant: Some(mutant),
            ..model
        };
        (model, Property::DL)
    };
    let mut mutants: Vec<(Parted, Property)> = [
        (Mutant::WordsNotCleared, leap.clone(), Property::K1),
        (Mutant::LastNotCleared, leap, Property::DL),
        (Mutant::SuspectNotCleared, only(3), Property::W),
        (Mutant::OwnStateNotCleared, only(3), Property::W),
        (Mutant::OneEndClears, only(3), Property::W),
        (Mutant::ClearedBeforeCallsEnded, only(3), Property::W),
        (Mutant::ClearedBeforeErr, timeout, Property::E2),
        (Mutant::UnitedWhenOneSays, only(3), Property::W),
        (Mutant::SendsBeforeTheView, only(3), Property::E2),
        (Mutant::OldPacketNumbers, only(3), Property::E2),
        (Mutant::StaysConnected, twice, Property::W),
        (Mutant::UnconnectedIsUnited, retry, Property::DL),
        (Mutant::OldTicketsFly, only(4), Property::DL),
    ]
    .map(|(mutant, model, property)| {
        let model = Parted {
            mutant: Some(mutant),
            ..model
        };
        (model, property)
    })
    .into();
    mutants.extend([
        untold(Mutant::AbortsToldOnce, 1, only(3)),
        untold(Mutant::AbortsToldOnce, 1, of(Split, 3)),
        untold(Mutant::OneAbortTold, 2, of(Fused, 4)),
    ]);
    mutants
}
