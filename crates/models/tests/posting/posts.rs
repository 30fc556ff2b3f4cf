//! Configurations of posting: bounded service, hold-back, selective signalling.

use super::{check, new, same};
use models::posting::{Configuration, Mutant, Nic, Property, op, puts};

pub(crate) fn service() -> Vec<Configuration> {
    let two_by_three = |how| new(&format!("D4 2x3{how}"), 4, same(2, puts(3, 1)));
    let three_by_two = |how| new(&format!("D2 3x2{how}"), 2, same(3, puts(2, 1)));
    vec![
        new("D4 3x1", 4, same(3, puts(1, 1))).live().states(2_049),
        two_by_three("").states(152_808),
        three_by_two("").states(78_750),
        new("D4 3x2", 4, same(3, puts(2, 1))).states(923_202),
        new("D4 4x1", 4, same(4, puts(1, 1))).states(17_432),
        Configuration {
            budget: 2,
            ..two_by_three(", budget 2").states(114_815)
        },
        Configuration {
            leave_quietly: true,
            ..two_by_three(", leaves quietly").states(104_324)
        },
        Configuration {
            leave_quietly: true,
            ..three_by_two(", leaves quietly").states(71_268)
        },
        new("D2 2x4", 2, same(2, puts(4, 1))).live().states(39_153),
        two_by_three(", NIC follows the record")
            .nic(Nic::Follows)
            .states(261_981),
        three_by_two(", NIC follows the record")
            .nic(Nic::Follows)
            .states(291_727),
        two_by_three(", NIC samples the record")
            .nic(Nic::Samples)
            .states(686_788),
        three_by_two(", NIC samples the record")
            .nic(Nic::Samples)
            .states(224_129),
        two_by_three(", no record").without_record().states(198_299),
        three_by_two(", no record").without_record().states(90_712),
        Configuration {
            modulus: 8,
            ..new("D2, counter wraps, 2x6", 2, same(2, puts(6, 1))).states(117_688)
        },
        new("D4, batches of two", 4, same(2, puts(2, 2)))
            .quarter(2)
            .states(6_323),
    ]
}

#[test]
fn service_is_bounded_and_no_doorbell_is_lost() {
    check("serve", service());
}

pub(crate) fn faults_of_service() -> Vec<Configuration> {
    let two_by_three = |name| new(name, 4, same(2, puts(3, 1)));
    vec![
        two_by_three("one fence with a record")
            .nic(Nic::Samples)
            .mutant(Mutant::OneFenceWithRecord, Property::Due),
        new("rounds not counted", 2, vec![puts(10, 1), puts(2, 1)])
            .mutant(Mutant::RoundsNotCounted, Property::Bounded),
        two_by_three("hand over to no thread")
            .mutant(Mutant::HandOverToNobody, Property::NothingLost),
        two_by_three("leave without doorbell")
            .mutant(Mutant::LeaveWithoutDoorbell, Property::NothingLost),
        two_by_three("park by store").mutant(Mutant::ParkByStore, Property::Ends),
        two_by_three("no publish fence").mutant(Mutant::NoPublishFence, Property::Due),
        two_by_three("no fence before doorbell")
            .mutant(Mutant::NoFenceBeforeDoorbell, Property::Record),
    ]
}

#[test]
fn faults_of_service_are_found() {
    check("serve", faults_of_service());
}

pub(crate) fn hold_back() -> Vec<Configuration> {
    let more = op(1, "m");
    let more_wait = op(1, "mw");
    let flush = op(0, "f");
    let put = op(1, "");
    let six = || {
        let mut program = vec![more; 6];
        program.push(flush);
        program
    };
    vec![
        new(
            "D4 put(MORE)+wait twice, put",
            4,
            vec![vec![more_wait], vec![more_wait], vec![put]],
        )
        .quarter(2)
        .live()
        .states(286_537),
        new(
            "D2 put(MORE)+wait twice, put x2",
            2,
            vec![vec![more_wait], vec![more_wait], vec![put, put]],
        )
        .quarter(2)
        .live()
        .states(113_611),
        new(
            "D4 2x put(MORE), put(MORE)+wait",
            4,
            same(2, vec![more, more_wait]),
        )
        .quarter(2)
        .states(34_047),
        new(
            "D4 2x put(MORE) x2, flush",
            4,
            same(2, vec![more, more, flush]),
        )
        .quarter(2)
        .states(46_522),
        new(
            "D4 put(MORE), flush; put x2",
            4,
            vec![vec![more, flush], vec![put, put]],
        )
        .quarter(2)
        .live()
        .states(11_200),
        new("D4 3x put(MORE), flush", 4, same(3, vec![more, flush]))
            .quarter(4)
            .states(50_730),
        new(
            "D4 put(MORE) x6, flush; put(MORE)+wait",
            4,
            vec![six(), vec![more_wait]],
        )
        .quarter(2)
        .states(573_482),
        new(
            "no record: put(MORE)+wait; put(MORE), flush; put",
            4,
            vec![vec![more_wait], vec![more, flush], vec![put]],
        )
        .quarter(2)
        .without_record()
        .states(709_468),
        new("wait does not ring", 4, same(2, vec![more_wait]))
            .quarter(4)
            .mutant(Mutant::WaitDoesNotRing, Property::Ends),
        new(
            "debt forgotten at the hand-over",
            4,
            vec![six(), vec![more_wait]],
        )
        .quarter(2)
        .mutant(Mutant::DebtForgotten, Property::Ends),
        new("flush does nothing", 4, vec![vec![more, flush]])
            .quarter(2)
            .mutant(Mutant::FlushDoesNothing, Property::NothingLost),
        new("hold-back without limit", 4, vec![six()])
            .quarter(2)
            .mutant(Mutant::HoldBackWithoutLimit, Property::Ends),
        new(
            "the holder looks at its own hint only",
            4,
            vec![vec![more], vec![put]],
        )
        .quarter(4)
        .mutant(Mutant::OwnHintOnly, Property::NothingLost),
        new(
            "hold-back without fence",
            4,
            vec![vec![more_wait], vec![put]],
        )
        .quarter(2)
        .without_record()
        .mutant(Mutant::HoldBackWithoutFence, Property::Due),
    ]
}

#[test]
fn held_back_doorbells_are_rung_by_flush_and_wait() {
    check("hold", hold_back());
}

pub(crate) fn selective_signalling() -> Vec<Configuration> {
    let amo_wait = op(3, "aw");
    let amo = op(3, "a");
    vec![
        new("D8 2x3 batches of two", 8, same(2, puts(3, 2)))
            .quarter(2)
            .states(295_689),
        new("D4 5 and 3 puts", 4, vec![puts(5, 1), puts(3, 1)])
            .quarter(2)
            .states(549_450),
        new(
            "D4 batches of two and of one",
            4,
            vec![puts(3, 2), puts(3, 1)],
        )
        .quarter(2)
        .states(165_962),
        new(
            "D4 batches of 2, 1, 1",
            4,
            vec![puts(1, 2), puts(2, 1), puts(1, 1)],
        )
        .quarter(2)
        .live()
        .states(73_248),
        new(
            "D8 atomic+NOP waited for, batches of two",
            8,
            vec![vec![amo_wait], puts(2, 2)],
        )
        .quarter(2)
        .states(6_443),
        new(
            "D4 atomic+NOP waited for twice, puts",
            4,
            vec![vec![amo_wait; 2], puts(2, 1)],
        )
        .quarter(2)
        .states(11_148),
        new(
            "D4 atomics without ticket, put+wait",
            4,
            vec![vec![amo; 3], vec![op(1, "w")]],
        )
        .quarter(2)
        .states(5_972),
        new("signal on request only", 4, vec![puts(3, 2), puts(1, 1)])
            .quarter(2)
            .mutant(Mutant::SignalOnRequestOnly, Property::Ends),
        new(
            "a quarter as long as the ring",
            4,
            vec![puts(4, 3), puts(1, 1)],
        )
        .quarter(4)
        .mutant(Mutant::None, Property::Ends),
        new("a signalled WQE of two WQEBBs", 4, vec![vec![op(2, "aw")]])
            .quarter(4)
            .mutant(Mutant::TwoBlocksSignalled, Property::Ends),
    ]
}

#[test]
fn few_signalled_wqes_are_enough() {
    check("signal", selective_signalling());
}
