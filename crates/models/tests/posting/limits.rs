//! Configurations at the limits: a nearly full ring, errors, recovery.

use super::{check, new, same};
use models::posting::{Admission, Configuration, Mutant, Property, op, puts};

pub(crate) fn nearly_full() -> Vec<Configuration> {
    let attempt = op(1, "t");
    let deadline = op(1, "d");
    let two_deadline = op(2, "d");
    vec![
        new(
            "claim, D2 put(deadline) x2, 3 posters",
            2,
            same(3, vec![deadline; 2]),
        )
        .states(124_005),
        new(
            "claim, D2 try_put and put",
            2,
            vec![vec![attempt; 2], puts(2, 1), vec![attempt]],
        )
        .live()
        .states(102_915),
        new(
            "claim, D4 batches of two with deadline, try_put",
            4,
            vec![vec![two_deadline; 2], vec![attempt; 2], vec![deadline]],
        )
        .quarter(2)
        .states(541_445),
        new("claim, D2 4 posters", 2, same(4, vec![deadline]))
            .live()
            .states(9_063),
        new(
            "compare-and-swap only, D2 3 posters",
            2,
            same(3, vec![deadline; 2]),
        )
        .admission(Admission::Cas, 0)
        .states(146_059),
        new(
            "compare-and-swap only, D4",
            4,
            vec![vec![two_deadline; 2], puts(2, 1)],
        )
        .quarter(2)
        .admission(Admission::Cas, 0)
        .live()
        .states(17_481),
        new(
            "soft full, margin (posters - 1) x blocks",
            4,
            same(3, puts(2, 1)),
        )
        .admission(Admission::SoftFull, 2)
        .states(429_899),
        Configuration {
            leave_quietly: true,
            ..new("add, wait after reservation", 2, same(3, puts(2, 1)))
                .admission(Admission::Add, 0)
                .states(67_091)
        },
        Configuration {
            leave_quietly: true,
            ..new(
                "add, deadline latches",
                2,
                vec![vec![deadline; 2], vec![deadline; 2], vec![deadline]],
            )
            .admission(Admission::Add, 0)
            .states(77_142)
        },
        new(
            "hand-over to a thread that waits for space",
            2,
            same(3, puts(2, 1)),
        )
        .admission(Admission::Add, 0)
        .mutant(Mutant::None, Property::Ends),
        new("soft full, margin one too small", 4, same(3, puts(2, 1)))
            .admission(Admission::SoftFull, 1)
            .mutant(Mutant::None, Property::Fits),
        new(
            "add if roomy, else compare-and-swap to the brim",
            4,
            same(3, puts(3, 1)),
        )
        .admission(Admission::Margin, 2)
        .mutant(Mutant::None, Property::Fits),
        new(
            "deadline without latch",
            2,
            vec![vec![deadline; 2], puts(2, 1)],
        )
        .admission(Admission::Add, 0)
        .mutant(Mutant::DeadlineWithoutLatch, Property::Ends),
    ]
}

#[test]
fn a_nearly_full_ring_admits_exactly_what_fits() {
    check("full", nearly_full());
}

pub(crate) fn errors() -> Vec<Configuration> {
    let wait = op(1, "w");
    let put = op(1, "");
    let hold = || vec![vec![op(1, "mw")], vec![op(1, "m"), op(0, "f")]];
    let stale = || vec![vec![put, put], vec![op(1, "s")]];
    let two_by_two = |name| new(name, 2, same(2, puts(2, 1))).recovering();
    vec![
        new("D2 waiters and puts", 2, vec![vec![wait; 2], puts(2, 1)])
            .any_error()
            .live()
            .states(33_295),
        new(
            "D2 3 posters",
            2,
            vec![puts(2, 1), vec![wait], vec![op(1, "t")]],
        )
        .any_error()
        .live()
        .states(192_720),
        new("D4 hold-back, wait, flush", 4, hold())
            .quarter(2)
            .any_error()
            .live()
            .states(51_973),
        two_by_two("recover D2 2x2").states(25_606),
        new(
            "recover D2 put+wait, put x2",
            2,
            vec![vec![wait], vec![put, put]],
        )
        .recovering()
        .live()
        .states(17_536),
        new("recover D2 3 posters", 2, same(3, puts(1, 1)))
            .recovering()
            .states(16_090),
        new("recover D4 hold-back", 4, hold())
            .quarter(2)
            .recovering()
            .states(92_710),
        new("recover D2, old ticket shown", 2, stale())
            .recovering()
            .live()
            .states(1_410),
        Configuration {
            host_error: false,
            nic_error: true,
            ..new(
                "recover D2 error CQE, wait",
                2,
                vec![vec![wait; 2], vec![wait]],
            )
            .recovering()
            .states(10_914)
        },
        Configuration {
            mutant: Mutant::RingNotCleared,
            ..two_by_two("ring and flags not cleared: harmless").states(25_904)
        },
        two_by_two("no grace").mutant(Mutant::NoGrace, Property::Life),
        Configuration {
            free: true,
            ..two_by_two("no grace, seen by its effect").mutant(Mutant::NoGrace, Property::Record)
        },
        two_by_two("guard dropped without fence")
            .mutant(Mutant::GuardDroppedWithoutFence, Property::Life),
        two_by_two("closed read before count")
            .mutant(Mutant::ClosedReadBeforeCount, Property::Life),
        two_by_two("indices kept").mutant(Mutant::IndicesKept, Property::Due),
        two_by_two("token not placed").mutant(Mutant::TokenNotPlaced, Property::NothingLost),
        new("no stale check", 2, stale())
            .recovering()
            .mutant(Mutant::NoStaleCheck, Property::Stale),
    ]
}

#[test]
fn errors_end_every_call_and_recovery_lets_nothing_old_through() {
    check("error", errors());
}
