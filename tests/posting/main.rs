//! The posting protocol, checked: every interleaving of small configurations, with weak memory.
//!
//! The protocol of `kernels/include/warpverbs/sq.cuh`, one memory access at a time: admission by `claim`, `resv`, the parked
//! doorbell token with bounded service, selective signalling, wait, errors. Hold-back with `flush`, and recovery with its
//! grace period, are in the model before they are in the kernels. Every thread has a store buffer that is not FIFO: stores to
//! different words become visible in any order until a fence, doorbell stores too; read-modify-writes act at once and drain
//! nothing. A mutant does one thing wrong and must break the property named with it. The numbers of states are those of an
//! earlier, independent model of the same protocol.
//!
//! Not modelled: reordered loads, aliasing of 16-bit doorbells a whole lap late, death of a thread, several fetches of the NIC
//! in flight.

mod admission;
mod configuration;
mod device;
mod limits;
mod search;
mod serve;
mod state;
mod thread;

use configuration::{Configuration, Expect, Mutant, Nic, Op, Property, op, puts};
use std::time::Instant;

/// Searches every configuration of a group; reports all that are not as expected.
fn check(group: &str, configurations: Vec<Configuration>) {
    let mut wrong = Vec::new();
    let mut states = 0;
    for configuration in configurations {
        let start = Instant::now();
        let found = configuration.search();
        states += found.states;
        let text = found.violation.as_ref().map_or("holds", |bad| &bad.text);
        let name = &configuration.name;
        println!(
            "{group}/{name}: {} states, {:.1?}, {text}",
            found.states,
            start.elapsed()
        );
        let broken = found.violation.as_ref().map(|bad| bad.property);
        let as_expected = match configuration.expect {
            Expect::Holds => broken.is_none(),
            Expect::Breaks(property) => broken == Some(property),
            Expect::BreaksSomething => broken.is_some(),
        };
        if !as_expected {
            wrong.push(format!(
                "{name}: {text}, expected {:?}",
                configuration.expect
            ));
        }
        if let Some(expected) = configuration.states
            && expected != found.states
        {
            wrong.push(format!(
                "{name}: {} states, expected {expected}",
                found.states
            ));
        }
    }
    println!("{group}: {states} states");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn new(name: &str, depth: i32, programs: Vec<Vec<Op>>) -> Configuration {
    Configuration::new(name, depth, programs)
}

/// Equal programs.
fn same(count: usize, program: Vec<Op>) -> Vec<Vec<Op>> {
    vec![program; count]
}

#[test]
fn service_is_bounded_and_no_doorbell_is_lost() {
    let two_by_three = |how| new(&format!("D4 2x3{how}"), 4, same(2, puts(3, 1)));
    let three_by_two = |how| new(&format!("D2 3x2{how}"), 2, same(3, puts(2, 1)));
    check(
        "serve",
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
        ],
    );
}

#[test]
fn faults_of_service_are_found() {
    let two_by_three = |name| new(name, 4, same(2, puts(3, 1)));
    check(
        "serve",
        vec![
            two_by_three("one fence with a record")
                .nic(Nic::Samples)
                .mutant(Mutant::OneFenceWithRecord, Property::Due),
            new("rounds not counted", 2, vec![puts(10, 1), puts(2, 1)])
                .mutant(Mutant::RoundsNotCounted, Property::Bounded),
            two_by_three("hand over to nobody")
                .mutant(Mutant::HandOverToNobody, Property::NothingLost),
            two_by_three("leave without doorbell")
                .mutant(Mutant::LeaveWithoutDoorbell, Property::NothingLost),
            two_by_three("park by store")
                .mutant(Mutant::ParkByStore, Property::Ends)
                .breaks(Expect::BreaksSomething),
            two_by_three("no publish fence").mutant(Mutant::NoPublishFence, Property::Due),
            two_by_three("no fence before doorbell")
                .mutant(Mutant::NoFenceBeforeDoorbell, Property::Record),
        ],
    );
}

#[test]
fn held_back_doorbells_are_rung_by_flush_and_wait() {
    let more = op(1, "m");
    let more_wait = op(1, "mw");
    let flush = op(0, "f");
    let put = op(1, "");
    let six = || {
        let mut program = vec![more; 6];
        program.push(flush);
        program
    };
    check(
        "hold",
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
            .mutant(Mutant::DebtForgotten, Property::Ends)
            .breaks(Expect::BreaksSomething),
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
        ],
    );
}

#[test]
fn few_signalled_wqes_are_enough() {
    let amo_wait = op(3, "aw");
    let amo = op(3, "a");
    check(
        "signal",
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
        ],
    );
}

/// The larger configurations: with `WV_TEST_FULL=1`.
#[test]
fn larger_configurations_hold_too() {
    if std::env::var_os("WV_TEST_FULL").is_none() {
        println!(
            "skipped: 5 larger configurations of the posting model: they run with WV_TEST_FULL=1"
        );
        return;
    }
    let deadlines = vec![op(1, "d"); 2];
    let attempt = vec![op(1, "t")];
    check(
        "big",
        vec![
            new(
                "serve D4 3x2, NIC follows the record",
                4,
                same(3, puts(2, 1)),
            )
            .nic(Nic::Follows)
            .states(1_909_214),
            new("serve D4 3x2, no record", 4, same(3, puts(2, 1)))
                .without_record()
                .states(1_315_315),
            new("serve D2 2x6", 2, same(2, puts(6, 1)))
                .live()
                .states(117_688),
            new(
                "claim D2 4 posters",
                2,
                vec![deadlines.clone(), deadlines, attempt.clone(), attempt],
            )
            .states(528_513),
            new(
                "recover D2 3 posters",
                2,
                vec![puts(2, 1), puts(2, 1), vec![op(1, "w")]],
            )
            .recovering()
            .states(800_838),
        ],
    );
}
