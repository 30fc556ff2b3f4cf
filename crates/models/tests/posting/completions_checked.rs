//! Configurations of completions, guards and recovery, and the mutants of invariants that no mode is special to.

use super::{check, new, same};
use models::posting::{Admission, Configuration, Cq, Mutant, Property, op, puts};

pub(crate) fn completions() -> Vec<Configuration> {
    let wait = op(1, "w");
    let waits = |name, count| new(name, 2, same(2, vec![wait; count])).modulus(4);
    // Four rings in the range of the counters: the greatest depth but one.
    let unsignalled = |name| {
        new(name, 2, vec![vec![wait, wait], puts(4, 1)])
            .quarter(2)
            .modulus(8)
    };
    vec![
        waits("collapsed, D2 wraps at 4, 2x2 waits", 2).cq(Cq::Collapsed),
        waits("collapsed, D2 wraps at 4, 4 and 1 waits", 1).cq(Cq::Collapsed),
        waits("collapsed, D2 2x2 waits, error and flush", 2)
            .cq(Cq::Collapsed)
            .wqe_error(),
        unsignalled("collapsed, D2 few signalled, error and flush")
            .cq(Cq::Collapsed)
            .wqe_error(),
        waits("wide, D2 wraps at 4, 2x2 waits", 2).cq(Cq::Wide),
        waits("wide, D2 2x2 waits, error and flush", 2)
            .cq(Cq::Wide)
            .wqe_error(),
        unsignalled("wide, D2 few signalled").cq(Cq::Wide),
        unsignalled("wide, D2 few signalled, error and flush")
            .cq(Cq::Wide)
            .wqe_error(),
        waits("collapsed, entry loaded before cons", 3)
            .cq(Cq::Collapsed)
            .mutant(Mutant::EntryBeforeCons, Property::Completed),
        waits("collapsed, error passed", 2)
            .cq(Cq::Collapsed)
            .wqe_error()
            .mutant(Mutant::ErrorPassed, Property::Completed),
        waits("collapsed, flush taken for the cause", 2)
            .cq(Cq::Collapsed)
            .wqe_error()
            .mutant(Mutant::FlushTakenForCause, Property::Cause),
        waits("wide, entry loaded before cons", 3)
            .cq(Cq::Wide)
            .mutant(Mutant::EntryBeforeCons, Property::Completed),
        new(
            "wide, consumed advanced by a store",
            2,
            vec![vec![wait], puts(4, 1)],
        )
        .cq(Cq::Wide)
        .modulus(16)
        .mutant(Mutant::ConsumedStored, Property::Ends),
        unsignalled("wide, consumed read once")
            .cq(Cq::Wide)
            .modulus(4)
            .mutant(Mutant::ConsumedReadOnce, Property::Completed),
        new(
            "wide, consumed read once, flush behind the cause",
            2,
            vec![vec![wait], puts(5, 1)],
        )
        .cq(Cq::Wide)
        .wqe_error()
        .mutant(Mutant::ConsumedReadOnce, Property::Cause),
        unsignalled("wide, fewer entries than WQEBBs")
            .cq(Cq::Wide)
            .wqe_error()
            .mutant(Mutant::CqTooShort, Property::Overrun),
        unsignalled("wide, taken although too far ahead")
            .cq(Cq::Wide)
            .mutant(Mutant::TakenUnseen, Property::Ends),
        waits("wide, lap bit ignored", 2)
            .cq(Cq::Wide)
            .wqe_error()
            .mutant(Mutant::LapIgnored, Property::Cause),
        waits("wide, error passed", 2)
            .cq(Cq::Wide)
            .wqe_error()
            .mutant(Mutant::ErrorPassed, Property::Completed),
    ]
}

#[test]
fn completions_are_taken_once_and_an_error_is_never_passed() {
    check("completion", completions());
}

pub(crate) fn guards() -> Vec<Configuration> {
    let wait = op(1, "w");
    let put = op(1, "");
    let two = |name| new(name, 2, same(2, vec![put; 2])).persistent();
    vec![
        two("D2 2x2 under one guard each"),
        new("D2 puts and waits", 2, vec![vec![wait; 2], vec![put; 2]]).persistent(),
        new("D2 3 kernels", 2, same(3, vec![put])).persistent(),
        new(
            "D4 hold-back, flush",
            4,
            vec![vec![op(1, "m"), op(0, "f")], vec![wait]],
        )
        .quarter(2)
        .persistent(),
        new(
            "D2 puts and waits, no record",
            2,
            vec![vec![wait; 2], vec![put]],
        )
        .without_record()
        .persistent(),
        two("refresh without fence").mutant(Mutant::RefreshWithoutFence, Property::Life),
        two("closed read before count").mutant(Mutant::ClosedReadBeforeCount, Property::Life),
        two("what was read before the refresh is kept")
            .mutant(Mutant::RefreshKeepsLife, Property::Life),
        two("host reads the count before closed is visible")
            .mutant(Mutant::ClosedNotFenced, Property::Life),
        two("no grace").mutant(Mutant::NoGrace, Property::Life),
    ]
}

#[test]
fn kernels_that_run_on_refresh_their_guard() {
    check("guard", guards());
}

pub(crate) fn faults() -> Vec<Configuration> {
    let wait = op(1, "w");
    let wraps = |name, program| new(name, 2, same(2, program)).modulus(8);
    let lapless = |name, programs| Configuration {
        flag_range: 4,
        ..new(name, 4, programs).quarter(2)
    };
    vec![
        new("a slot is not awaited", 2, same(2, puts(3, 1)))
            .admission(Admission::Add, 0)
            .mutant(Mutant::SlotNotAwaited, Property::LiveWqe),
        new("serves on after parking", 4, same(2, puts(3, 1)))
            .mutant(Mutant::ServesOnAfterParking, Property::OneToken),
        new(
            "a refused claim is not undone",
            2,
            same(2, vec![op(1, "t"); 2]),
        )
        .mutant(Mutant::ClaimNotUndone, Property::Rest),
        wraps("a counter taken as it is, not modulo", vec![wait; 6])
            .mutant(Mutant::CounterNotModular, Property::Wrap),
        new(
            "a wait does not look at the error",
            2,
            same(2, vec![wait; 2]),
        )
        .any_error()
        .mutant(Mutant::ErrorNotSeenByWait, Property::EndsAfterError),
        lapless("flags without the lap", same(2, puts(4, 1))).mutant(Mutant::None, Property::Lap),
        Configuration {
            flag_range: 8,
            ..lapless(
                "flags with one bit of the lap",
                vec![puts(4, 2), puts(4, 1)],
            )
        }
        .mutant(Mutant::None, Property::Lap),
    ]
}

#[test]
fn faults_of_every_kind_are_found() {
    check("faults", faults());
}
