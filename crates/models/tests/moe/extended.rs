//! What the kernels do beyond the rules as first written, and what the protocol's own runs left out.
//!
//! - Skips that cover gaps: a skip names every call of the set since the last data (`mark_skipped`). Where each call is data or
//!   skipped in turn this is rule A5 with the same states. Where calls end aborted or refused the skip names those too.
//! - Aborted calls: they run none of their phases, but both their send phases say at once that nothing comes. If
//!   they do not say so (`AbortNotTold`), nothing wrong is read, but two healthy ranks wait for each other.
//! - Refused calls: dispatch sends nothing, combine goes on. Callers' masks: a peer that is left out gets a word in both send
//!   phases and is not awaited, although it may send.
//! - Pace: a call of a rank that awaits no member begins at its deadline, or when a suspect sends a word (`keep_pace`). If it begins at
//!   once (`DoesNotKeepPace`), nothing wrong is read, but the rank runs ahead of all others. So does one whose calls are held in vain:
//!   after the first, each waits for its deadline (else `HeldInVainOnce`), or until a word says that another rank has reached it (else
//!   `HeldToTheDeadline`, and ranks that wait in this call give it up).
//! - Parallel: a phase waits for all peers at once, as the threads of the kernels do.
//! - Numbers that wrap: modulo 16, so half of them are newer than a given one, as with 32 bits. The states are as many as
//!   without, under three conditions. Words of zero name no call, in credits too (else `ZeroIsCall`). A lap ends with a jump over
//!   0 and 1. No run of skips grows to half of all numbers.
//! - Carried (A11): work in flight is a missing credit. The link of rank 0 is cut as well, in one direction or both, for a while or for
//!   ever. The others lose nothing in any call. Where work in flight to one peer stops the phase for all they do (`FlightStopsAll`).
//! - Passed (A12): a call that a peer has passed by two sets awaits no rank. A healthy rank never takes a call for passed. It does where
//!   one set is enough and a dispatch is sent one call ahead (`PassedBySets`).

use models::moe::Property;
use models::moe::signals::pattern::Pattern::{
    self, DispatchOnly, DroppedHook, EverySecondCombine, Fused, Hook, Split, TwoBatches,
};
use models::moe::signals::{Clock, Cut, Mutant, Signals, Skips};

const ANY: Clock = Clock::Any(1);
const STOPPED: Clock = Clock::Stopped;

fn gaps(pattern: Pattern, ranks: usize, calls: u8, clock: Clock) -> Signals {
    Signals {
        skips: Skips::Gaps,
        ..Signals::new(pattern, ranks, calls, clock)
    }
}

fn with_aborts(aborts: u8, signals: Signals) -> Signals {
    Signals { aborts, ..signals }
}

fn with_refusals(refusals: u8, signals: Signals) -> Signals {
    Signals {
        refusals,
        ..signals
    }
}

fn with_masks(masks: u8, signals: Signals) -> Signals {
    Signals { masks, ..signals }
}

fn parallel(signals: Signals) -> Signals {
    Signals {
        parallel: true,
        ..signals
    }
}

fn overtaken(signals: Signals) -> Signals {
    Signals {
        overtakes: true,
        ..signals
    }
}

fn wraps_from(first: u8, signals: Signals) -> Signals {
    Signals {
        wraps_from: Some(first),
        ..signals
    }
}

/// One call that ends aborted, one that is refused, one mask.
fn each(signals: &Signals) -> [Signals; 3] {
    [
        with_aborts(1, signals.clone()),
        with_refusals(1, signals.clone()),
        with_masks(1, signals.clone()),
    ]
}

/// Calls that do not run, in every order of phases, without a clock.
pub(crate) fn stopped_calls() -> Vec<Signals> {
    let of = |pattern| {
        let calls = if pattern == DroppedHook { 4 } else { 6 };
        gaps(pattern, 2, calls, STOPPED)
    };
    let mut models: Vec<Signals> = Pattern::ALL
        .into_iter()
        .flat_map(|pattern| each(&of(pattern)))
        .collect();
    models.push(with_aborts(2, gaps(Fused, 2, 5, STOPPED)));
    models.push(with_aborts(1, with_masks(1, gaps(Fused, 2, 5, STOPPED))));
    models
}

/// As `stopped_calls`, with a timeout of any rank at any moment.
pub(crate) fn stopped_calls_and_timeouts() -> Vec<Signals> {
    let mut models: Vec<Signals> = each(&gaps(DispatchOnly, 2, 5, ANY)).into();
    models.push(with_aborts(1, gaps(Split, 2, 4, ANY)));
    models
}

/// As `stopped_calls_and_timeouts`, with a rank that is slow or dead.
pub(crate) fn stopped_calls_and_one_slow() -> Vec<Signals> {
    let slow = Clock::Slow;
    let mut models: Vec<Signals> = each(&gaps(Fused, 2, 4, slow)).into();
    models.extend(each(&gaps(Hook, 2, 4, slow)));
    models.extend(each(&gaps(Split, 2, 5, slow)));
    models
}

fn paced(signals: Signals) -> Signals {
    Signals {
        paces: true,
        ..signals
    }
}

/// Calls of a rank that awaits no member begin one by one, and no rank is stuck for that.
pub(crate) fn keeps_pace() -> Vec<Signals> {
    let slow = Clock::Slow;
    let mut models: Vec<Signals> = each(&paced(gaps(Fused, 2, 4, slow))).into();
    models.extend([
        paced(gaps(Fused, 2, 5, slow)),
        paced(gaps(Hook, 2, 5, slow)),
        paced(gaps(Split, 2, 6, slow)),
        paced(gaps(TwoBatches, 2, 4, slow)),
        paced(gaps(Fused, 3, 2, slow)),
        paced(gaps(DispatchOnly, 2, 5, ANY)),
        paced(gaps(Split, 2, 5, ANY)),
        paced(gaps(Fused, 2, 3, ANY)),
    ]);
    models.extend(held_in_vain());
    models
}

/// Calls that are held in vain, several in a row.
fn held_in_vain() -> Vec<Signals> {
    let held = |aborts, signals| with_aborts(aborts, paced(signals));
    vec![
        held(2, gaps(Fused, 2, 4, STOPPED)),
        held(3, gaps(Fused, 2, 5, STOPPED)),
        held(3, gaps(Fused, 2, 4, Clock::Slow)),
        held(3, gaps(Hook, 2, 4, Clock::Slow)),
        held(3, gaps(DroppedHook, 2, 4, Clock::Slow)),
        held(3, gaps(EVERY_SECOND, 2, 4, Clock::Slow)),
        held(2, gaps(TwoBatches, 2, 4, Clock::Slow)),
        held(3, gaps(DispatchOnly, 2, 5, Clock::Slow)),
        held(2, gaps(Split, 2, 5, Clock::Slow)),
        held(2, gaps(Fused, 3, 2, Clock::Slow)),
        held(2, gaps(DispatchOnly, 2, 4, ANY)),
    ]
}

/// Skips that cover gaps in worlds without gaps: as many states as rule A5 has. And all peers waited for at once.
pub(crate) fn gaps_and_parallel() -> Vec<Signals> {
    vec![
        gaps(Split, 2, 5, ANY).states(205_373),
        gaps(EVERY_SECOND, 2, 4, ANY).states(77_728),
        gaps(Split, 2, 6, Clock::Slow).states(15_263),
        parallel(gaps(Fused, 3, 2, STOPPED)),
        parallel(gaps(DispatchOnly, 3, 2, STOPPED)),
    ]
}

const EVERY_SECOND: Pattern = EverySecondCombine;

/// Numbers that wrap, or pass into the half where 0 looks newer: as many states as without.
pub(crate) fn wraps() -> Vec<Signals> {
    let counts = [373, 1_285, 2_661, 181, 1_151, 277, 12_418];
    let mut models = Vec::new();
    for (pattern, states) in Pattern::ALL.into_iter().zip(counts) {
        for first in [7, 13] {
            let model = gaps(pattern, 2, 6, STOPPED).states(states);
            models.push(wraps_from(first, model));
        }
    }
    models.push(wraps_from(13, gaps(Hook, 2, 3, ANY).states(104_061)));
    models.push(wraps_from(7, gaps(Split, 2, 5, ANY).states(205_373)));
    models.push(wraps_from(
        13,
        with_aborts(1, gaps(TwoBatches, 2, 6, STOPPED)),
    ));
    models
}

/// With `WV_TEST_FULL=1`.
pub(crate) fn larger_stopped_calls() -> Vec<Signals> {
    let mut models: Vec<Signals> = each(&gaps(Fused, 2, 3, ANY)).into();
    models.extend(each(&gaps(Hook, 2, 3, ANY)));
    models.extend(each(&gaps(Split, 2, 5, ANY)));
    models.push(with_aborts(1, overtaken(gaps(Split, 2, 4, ANY))));
    models.extend(each(&gaps(Fused, 2, 6, Clock::Slow)));
    models.extend(each(&gaps(DroppedHook, 2, 6, STOPPED)));
    models.extend(each(&gaps(Fused, 3, 2, STOPPED)));
    models.push(parallel(gaps(Split, 3, 2, STOPPED)));
    models.push(wraps_from(13, gaps(Fused, 2, 4, ANY).states(545_900)));
    models
}

/// Each breaks the property named with it.
pub(crate) fn mutants_of_stopped_calls() -> Vec<(Signals, Property)> {
    let of = |signals: Signals, mutant, property| (signals.mutant(mutant), property);
    let (split, only) = (gaps(Split, 2, 5, ANY), gaps(DispatchOnly, 2, 5, ANY));
    vec![
        of(overtaken(split), Mutant::RunFromLast, Property::K1),
        of(
            with_refusals(1, overtaken(only.clone())),
            Mutant::RunOverData,
            Property::K1,
        ),
        of(
            with_aborts(1, gaps(Fused, 2, 4, STOPPED)),
            Mutant::AbortNotTold,
            Property::DL,
        ),
        of(
            with_masks(1, gaps(Fused, 2, 4, STOPPED)),
            Mutant::MaskNotTold,
            Property::DL,
        ),
        of(
            wraps_from(7, only.clone()),
            Mutant::ZeroIsCall,
            Property::C1,
        ),
        of(wraps_from(9, only), Mutant::ZeroIsCall, Property::K1),
        of(
            paced(gaps(Fused, 2, 5, Clock::Slow)),
            Mutant::DoesNotKeepPace,
            Property::PA,
        ),
        of(
            paced(gaps(DispatchOnly, 2, 5, ANY)),
            Mutant::DoesNotKeepPace,
            Property::PA,
        ),
        of(
            with_aborts(2, paced(gaps(Fused, 2, 4, Clock::Slow))),
            Mutant::HeldInVainOnce,
            Property::PA,
        ),
        of(
            with_aborts(2, paced(gaps(Fused, 2, 4, Clock::Slow))),
            Mutant::HeldToTheDeadline,
            Property::P4,
        ),
        of(
            with_aborts(3, paced(gaps(Hook, 2, 4, Clock::Slow))),
            Mutant::AbortedClosesLate,
            Property::P4,
        ),
    ]
}

fn carried(signals: Signals) -> Signals {
    Signals {
        carried: true,
        ..signals
    }
}

/// Work in flight is a missing credit: no rank is stuck, with and without timeouts.
pub(crate) fn work_in_flight() -> Vec<Signals> {
    let of = |pattern, calls, clock| carried(gaps(pattern, 2, calls, clock));
    vec![
        of(Fused, 4, STOPPED),
        of(Hook, 4, STOPPED),
        of(EverySecondCombine, 4, STOPPED),
        of(Split, 5, STOPPED),
        // A call that finds no buffer says what a refused one says.
        with_refusals(1, of(Fused, 3, STOPPED)),
        with_refusals(2, of(Split, 4, STOPPED)),
        of(DispatchOnly, 4, ANY),
        of(Split, 3, ANY),
    ]
}

/// Every way in which the link of rank 0 is cut.
fn cuts(signals: &Signals) -> Vec<Signals> {
    let both = Cut {
        to: true,
        from: true,
        mends: false,
    };
    let ways = [
        both,
        Cut {
            from: false,
            ..both
        },
        Cut { to: false, ..both },
        Cut {
            mends: true,
            ..both
        },
    ];
    ways.map(|cut| {
        carried(Signals {
            clock: Clock::Cut(cut),
            ..signals.clone()
        })
    })
    .into()
}

/// The link of rank 0 is cut.
pub(crate) fn cut() -> Vec<Signals> {
    let of = |pattern, ranks, calls| cuts(&gaps(pattern, ranks, calls, STOPPED));
    [
        of(DispatchOnly, 2, 4),
        of(Fused, 2, 2),
        of(DispatchOnly, 3, 2),
        // A set is used again.
        of(DispatchOnly, 3, 3)[..1].into(),
    ]
    .concat()
}

/// With `WV_TEST_FULL=1`.
pub(crate) fn larger_cut() -> Vec<Signals> {
    let of = |pattern, ranks, calls| cuts(&gaps(pattern, ranks, calls, STOPPED));
    let mut models = [
        of(DispatchOnly, 3, 3),
        of(Split, 3, 2),
        of(Fused, 3, 1),
        of(Hook, 2, 3),
    ]
    .concat();
    models.extend([
        carried(gaps(Split, 2, 4, ANY)),
        carried(gaps(Fused, 2, 2, ANY)),
        carried(gaps(TwoBatches, 2, 4, STOPPED)),
        carried(gaps(DroppedHook, 2, 4, STOPPED)),
        overtaken(carried(gaps(DispatchOnly, 2, 3, ANY))),
    ]);
    models
}

/// Each breaks the property named with it.
pub(crate) fn mutants_of_work_in_flight() -> Vec<(Signals, Property)> {
    let only = gaps(DispatchOnly, 3, 3, STOPPED);
    let cut = cuts(&only).swap_remove(0);
    let back = cuts(&gaps(DispatchOnly, 2, 4, STOPPED)).swap_remove(3);
    vec![
        (cut.mutant(Mutant::FlightStopsAll), Property::S3),
        (back.mutant(Mutant::NoSkipWord), Property::S5),
    ]
}

fn passes(signals: Signals) -> Signals {
    Signals {
        passes: true,
        ..signals
    }
}

/// Rank 0 of three is slow.
fn passed_by_two(pattern: Pattern, calls: u8) -> Signals {
    passes(carried(gaps(pattern, 3, calls, Clock::Slow)))
}

/// Calls that were passed await no rank: no healthy rank takes a call for passed.
pub(crate) fn passed_calls() -> Vec<Signals> {
    let cut = |pattern, ranks, calls, way: usize| {
        passes(cuts(&gaps(pattern, ranks, calls, STOPPED)).swap_remove(way))
    };
    vec![
        // Three ranks of five calls have too many states. Where no dispatch is sent ahead one set is enough, and three calls show it.
        cut(DispatchOnly, 3, 3, 0).mutant(Mutant::PassedBySets),
        passed_by_two(DispatchOnly, 4),
        passed_by_two(Split, 3),
        // The link is back, and rank 0 is behind by more than two sets.
        cut(DispatchOnly, 2, 6, 3),
        cut(Split, 2, 6, 3),
        passes(carried(gaps(Split, 2, 6, Clock::Slow))),
    ]
}

/// With `WV_TEST_FULL=1`.
pub(crate) fn larger_passed_calls() -> Vec<Signals> {
    vec![passed_by_two(Split, 4), passed_by_two(Fused, 2)]
}

/// Each breaks the property named with it.
pub(crate) fn mutants_of_passed_calls() -> Vec<(Signals, Property)> {
    let only = cuts(&gaps(Split, 3, 3, STOPPED)).swap_remove(0);
    vec![(passes(only).mutant(Mutant::PassedBySets), Property::S3)]
}
