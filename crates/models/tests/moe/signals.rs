//! The configurations of the protocol's table, and the mutants of signals with the property that each breaks.

use models::moe::Property;
use models::moe::signals::pattern::Pattern::{
    self, DispatchOnly, DroppedHook, EverySecondCombine, Fused, Hook, Split, TwoBatches,
};
use models::moe::signals::{Clock, Mutant, Signals};

fn two(pattern: Pattern, calls: u8, clock: Clock) -> Signals {
    Signals::new(pattern, 2, calls, clock)
}

fn three(pattern: Pattern, calls: u8, clock: Clock) -> Signals {
    Signals::new(pattern, 3, calls, clock)
}

fn overtaken(signals: Signals) -> Signals {
    Signals {
        overtakes: true,
        ..signals
    }
}

/// No clock: no rank may be stuck.
pub(crate) fn without_clock() -> Vec<Signals> {
    let counts = [373, 1_285, 2_661, 181, 1_151, 277, 12_418];
    let mut models: Vec<Signals> = Pattern::ALL
        .into_iter()
        .zip(counts)
        .map(|(pattern, states)| two(pattern, 6, Clock::Stopped).states(states))
        .collect();
    models.push(three(Fused, 3, Clock::Stopped).states(16_471));
    models.push(three(DispatchOnly, 3, Clock::Stopped).states(7_135));
    models
}

/// One timeout of any rank at any moment.
pub(crate) fn with_timeouts_fused() -> Vec<Signals> {
    let any = Clock::Any(1);
    vec![
        two(Fused, 4, any).states(545_900),
        overtaken(two(Fused, 3, any)).states(81_002),
    ]
}

/// As `with_timeouts_fused`, in the other orders of phases.
pub(crate) fn with_timeouts() -> Vec<Signals> {
    let any = Clock::Any(1);
    vec![
        two(Hook, 3, any).states(104_061),
        two(EverySecondCombine, 4, any).states(77_728),
        two(DroppedHook, 3, any).states(77_073),
        two(Split, 5, any).states(205_373),
        two(DispatchOnly, 4, Clock::Any(2)).states(166_899),
        overtaken(two(Split, 4, any)).states(106_925),
    ]
}

/// Rank 0 is slow or dead: it is the only one that any rank gives up.
pub(crate) fn one_slow() -> Vec<Signals> {
    vec![
        two(Fused, 6, Clock::Slow).states(181_857),
        two(Hook, 6, Clock::Slow).states(161_870),
        two(DispatchOnly, 6, Clock::Slow).states(12_075),
        two(Split, 6, Clock::Slow).states(15_263),
        two(EverySecondCombine, 6, Clock::Slow).states(46_473),
        three(Fused, 2, Clock::Slow).states(27_355),
        three(Split, 4, Clock::Slow).states(286_546),
    ]
}

/// As `one_slow`, with two micro-batches.
pub(crate) fn one_slow_micro_batches() -> Vec<Signals> {
    vec![two(TwoBatches, 6, Clock::Slow).states(557_677)]
}

/// With `WV_TEST_FULL=1`.
pub(crate) fn larger() -> Vec<Signals> {
    let any = Clock::Any(1);
    vec![
        three(Split, 3, Clock::Stopped).states(497_271),
        two(Hook, 4, any).states(681_381),
        two(TwoBatches, 4, any).states(2_268_159),
        two(Split, 6, any).states(653_433),
        three(Fused, 3, Clock::Slow).states(341_349),
    ]
}

/// Each breaks the property named with it.
pub(crate) fn mutants() -> Vec<(Signals, Property)> {
    let fused = two(Fused, 4, Clock::Any(1));
    let split = |calls, clock| two(Split, calls, clock);
    let any = Clock::Any(1);
    let stopped = Clock::Stopped;
    let no_beat = Signals {
        beat: false,
        ..three(Fused, 2, Clock::Slow)
    };
    let of = |signals: Signals, mutant, property| (signals.mutant(mutant), property);
    vec![
        of(fused.clone(), Mutant::NoCredit, Property::C1),
        of(split(4, any), Mutant::ReleasedEarly, Property::C1),
        of(fused.clone(), Mutant::QpRotates, Property::C1),
        of(fused.clone(), Mutant::AcceptsOlder, Property::E1),
        of(fused.clone(), Mutant::SkipOverwrites, Property::K1),
        of(
            overtaken(split(5, any)),
            Mutant::SkipWithoutStart,
            Property::K1,
        ),
        of(fused, Mutant::CountRouted, Property::M3),
        of(two(Fused, 5, Clock::Slow), Mutant::NoSkipWord, Property::DL),
        of(
            two(Fused, 4, Clock::Slow),
            Mutant::SuspectGetsNoCombine,
            Property::DL,
        ),
        of(split(4, stopped), Mutant::CreditsNotTold, Property::DL),
        of(two(TwoBatches, 4, stopped), Mutant::OneSet, Property::DL),
        of(split(5, stopped), Mutant::LastCreditWins, Property::DL),
        of(
            two(DroppedHook, 4, stopped),
            Mutant::NoClosing,
            Property::DL,
        ),
        (no_beat, Property::P4),
    ]
}
