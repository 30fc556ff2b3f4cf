//! The failure grid: a rank dies at every point of a call. The others go on and get what the reference makes without its experts.
//! The tokens that it had are marked and no others, and no call after it waits for it again.

use std::time::Duration;

use warpverbs::abi::{MoeCause, Outcome};
use warpverbs::internal::moe_abi::{KIND_COMBINE, KIND_DISPATCH};

use crate::group::Group;

/// Deadline of the call in which the rank dies. Every living rank has sent before any rank waits, so no other rank can be late.
const DEADLINE: Duration = Duration::from_secs(5);
/// Deadline of the calls in which no rank is late. A wait for the dead rank would take all of it.
const LONG: Duration = Duration::from_secs(60);

/// Where in call 3 the last rank dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    BeforeDispatch,
    /// Its rows have arrived, no word of it.
    BetweenDataAndSignal,
    /// Its words have arrived at some ranks only.
    AfterSomeSignals,
    /// It has received, nothing of its combine has arrived: what lies in the slots is that of call 1.
    BeforeCombine,
    /// Its combined rows have arrived, no word of it.
    BetweenCombineAndSignal,
    /// The words of its combine have arrived at some ranks only.
    AfterSomeCombineSignals,
}

/// Takes back the words of `victim` since `before` to all ranks but `reached`.
fn hide(
    group: &Group,
    victim: u32,
    kind: u32,
    call: u32,
    before: &[warpverbs::internal::moe_abi::MoeSignal],
    reached: &[u32],
) {
    group.settle();
    for (reader, signal) in (0u32..).zip(before) {
        if !reached.contains(&reader) {
            group.put_signal(reader, victim, kind, call, signal);
        }
    }
}

/// One death.
fn die(ranks: u32, death: Death, known: bool) {
    let seed = u64::from(ranks) << 8 | death as u64;
    let mut group = Group::new(ranks, LONG);
    let all = group.ranks();
    let victim = ranks - 1;
    let alive: Vec<u32> = (0..victim).collect();
    let some: Vec<u32> = (0..victim).step_by(2).collect();
    group.whole_call(&all, seed, 1);
    group.whole_call(&all, seed, 2);
    group.set_deadline(DEADLINE);

    let batches = group.batches(seed, 3);
    let signals = |group: &Group, kind| -> Vec<_> {
        let of = |&reader: &u32| group.signal(reader, victim, kind, 3);
        alive.iter().map(of).collect()
    };
    let reached: Vec<u32> = match death {
        Death::BeforeDispatch | Death::BetweenDataAndSignal => Vec::new(),
        Death::AfterSomeSignals => some.clone(),
        _ => alive.clone(),
    };
    let before = signals(&group, KIND_DISPATCH);
    match death {
        Death::BeforeDispatch => group.send(&alive, &batches),
        _ => group.send(&all, &batches),
    }
    if reached.len() < alive.len() && death != Death::BeforeDispatch {
        hide(&group, victim, KIND_DISPATCH, 3, &before, &reached);
    }
    let with = |reached: Vec<u32>| {
        let alive = alive.clone();
        move |rank: u32| match reached.contains(&rank) || rank == victim {
            true => [alive.clone(), vec![victim]].concat(),
            false => alive.clone(),
        }
    };
    let combines = !matches!(
        death,
        Death::BeforeDispatch | Death::BetweenDataAndSignal | Death::AfterSomeSignals
    );
    group.settle();
    if !combines {
        group.unplug(victim);
    }
    let receivers = if combines { &all } else { &alive };
    group.receive(receivers, &batches, with(reached));
    let mut returned: Vec<u32> = Vec::new();
    let before = signals(&group, KIND_COMBINE);
    match death {
        Death::BetweenCombineAndSignal | Death::AfterSomeCombineSignals => {
            group.send_back(&all);
            if death == Death::AfterSomeCombineSignals {
                returned = some;
            }
            hide(&group, victim, KIND_COMBINE, 3, &before, &returned);
        }
        _ => group.send_back(&alive),
    }
    group.settle();
    group.unplug(victim);
    group.receive_back(&alive, &batches, with(returned.clone()));
    for &rank in &alive {
        let waited = group.waited(rank);
        println!("{death:?} of {ranks} ranks: rank {rank} has waited {waited:?} of {DEADLINE:?}");
        check_record(&group, rank, victim, returned.contains(&rank));
    }
    if known {
        for &rank in &alive {
            group.moes[rank as usize].mark_dead(victim).unwrap();
        }
    }
    // A rank that is left alone begins one call in a deadline, so a short one and one call are enough.
    let alone = alive.len() == 1;
    let (deadline, last) = if alone { (DEADLINE, 4) } else { (LONG, 6) };
    group.set_deadline(deadline);
    for call in 4..=last {
        let batches = group.batches(seed, call);
        let sees = |_: u32| alive.clone();
        group.send(&alive, &batches);
        group.receive(&alive, &batches, sees);
        group.send_back(&alive);
        group.receive_back(&alive, &batches, sees);
        for &rank in &alive {
            let waited = group.waited(rank);
            // It cost one wait, once. Staging rows that its HCA has not given back are waited for until the HCA gives up.
            assert!(waited < deadline, "rank {rank}, call {call}: {waited:?}");
        }
    }
    if !known {
        for &rank in &alive {
            let suspected = group.moes[rank as usize].suspected();
            assert_eq!(suspected, [victim], "rank {rank}");
        }
    }
    group.end();
}

/// The handle and the board name the victim, and no other rank.
fn check_record(group: &Group, rank: u32, victim: u32, returned: bool) {
    let report = group.report(rank);
    let what = format!("rank {rank}: {report}");
    let peer = report.peers[victim as usize];
    if returned {
        assert_eq!(peer.combine_received, Outcome::ACCEPTED, "{what}");
        return;
    }
    let fault = report.fault.as_ref().expect(&what);
    assert_eq!((fault.call, fault.epoch), (3, 1), "{what}");
    assert_eq!(fault.peer, Some(victim), "{what}");
    assert_eq!(fault.suspects, [victim], "{what}");
    assert!(
        matches!(
            fault.cause,
            MoeCause::TIMEOUT | MoeCause::CQE_ERROR | MoeCause::FLUSHED
        ),
        "{what}"
    );
    assert_eq!(peer.combine_received, Outcome::GAVE_UP, "{what}");
    let last = group.moes[rank as usize].last_fault().expect(&what);
    assert_eq!(&last, fault, "{what}");
}

/// Teams of 2, 3 and 4 at the same time: what each does most is wait for the deadline.
fn grid(death: Death) {
    std::thread::scope(|scope| {
        for ranks in 2..=4 {
            scope.spawn(move || die(ranks, death, ranks % 2 == 1));
        }
    });
}

#[test]
fn a_rank_that_dies_before_dispatch_costs_its_rows_and_one_wait() {
    grid(Death::BeforeDispatch);
}

#[test]
fn rows_without_their_word_are_not_taken() {
    grid(Death::BetweenDataAndSignal);
}

#[test]
fn whom_the_word_has_reached_takes_the_rows_and_the_others_do_not() {
    grid(Death::AfterSomeSignals);
}

#[test]
fn nothing_of_an_earlier_round_appears_when_a_rank_dies_before_combine() {
    grid(Death::BeforeCombine);
}

#[test]
fn combined_rows_without_their_word_are_not_added() {
    grid(Death::BetweenCombineAndSignal);
}

#[test]
fn whom_the_combine_has_reached_adds_it_and_the_others_mark_its_tokens() {
    grid(Death::AfterSomeCombineSignals);
}
