//! Dispatch and combine under the checker: no findings as they are, and one for each barrier and fence that is taken for missing.

use std::sync::Arc;

use simt::check::{Omission, omit};
use warpverbs::moe::{Moe, MoeConfig, MoeError, Workspace};

use super::turn;
use test_support::counts::seeds;
use test_support::moe::{MIXED, Setup, batches, check_combine, check_dispatch, expert, run};

const LAYER: MoeConfig = MoeConfig::BF16
    .with_hidden(64)
    .with_experts(7)
    .with_top_k(3)
    .with_max_tokens(9);

/// The phases in their order.
const PHASES: [&str; 4] = [
    "wv_moe_dispatch_send",
    "wv_moe_dispatch_receive",
    "wv_moe_combine_send",
    "wv_moe_combine_receive",
];

/// The findings of the checker on `calls` calls among `ranks` ranks. A launch with findings has done all that it should, so the
/// others go on. `combined`: the returned rows are compared with the reference. They are not where dispatch may have findings at
/// some rank, whose experts then get no rows.
fn findings(ranks: u32, calls: u32, seed: u64, combined: bool) -> Vec<String> {
    let mut setup = Setup::adverse(ranks);
    setup.hca.schedule_seed = seed.is_multiple_of(2).then_some(seed);
    let of_rank = run(&setup, |team| {
        let moe = Moe::new(team, "layer", LAYER).unwrap();
        let mut work = Workspace::new(&moe).unwrap();
        let mut found = Vec::new();
        for call in 1..=calls {
            phases(&moe, &mut work, (seed, call), combined, &mut found);
        }
        found
    });
    of_rank.into_iter().flatten().collect()
}

fn phases(
    moe: &Arc<Moe>,
    work: &mut Workspace,
    (seed, call): (u64, u32),
    combined: bool,
    found: &mut Vec<String>,
) {
    let all = batches(moe, MIXED, seed, call);
    let own = &all[moe.team().rank() as usize];
    let what = format!("seed {seed}, call {call}, rank {}", moe.team().rank());
    moe.set_schedule_seed(seed ^ u64::from(call));
    let mut note = |error: MoeError| {
        let text = error.to_string();
        assert!(
            text.contains("unordered:") || text.contains("untold:") || text.contains("stale:"),
            "{what}: {text}"
        );
        found.push(text);
    };
    work.send(own).unwrap_or_else(&mut note);
    match work.receive() {
        Ok(sources) => check_dispatch(moe, &all, work, &sources, &what),
        Err(error) => note(error),
    }
    work.experts(expert).unwrap();
    work.send_back().unwrap_or_else(&mut note);
    match work.receive_back() {
        Ok(got) if combined => check_combine(moe, own, &got, &what),
        Ok(_) => {}
        Err(error) => note(error),
    }
    let report = work.call().report().unwrap();
    assert!(report.is_complete(), "{what}: {report}");
}

#[test]
fn dispatch_and_combine_have_no_findings() {
    let _turn = turn();
    for seed in seeds(3, 30) {
        let ranks = 2 + (seed % 2) as u32;
        assert_eq!(findings(ranks, 4, seed, true), [""; 0], "seed {seed}");
    }
}

/// Returns what is found in some schedule without `what` of `phase`; none if the phase has no such thing.
fn without(phase: &str, what: Omission) -> Option<Vec<String>> {
    let missing = omit(phase, what);
    let mut found = Vec::new();
    for seed in 1..4 {
        found = findings(2, 3, seed, false);
        if !found.is_empty() || !missing.applied() {
            break;
        }
    }
    missing.applied().then_some(found)
}

/// One barrier in each phase orders what only a stranger order of events would disturb, and is not missed here. In a send phase
/// it is the one between "the NIC has read what was staged two calls ago" and staging again. By then it has, unless a peer is two
/// calls behind. In a receive phase it is the last, before the release. The next launch publishes it, and comes after this one
/// anyway.
#[test]
fn each_barrier_of_each_phase_is_missed_but_for_one() {
    let _turn = turn();
    for phase in PHASES {
        let mut unnoticed = Vec::new();
        let mut barriers = 0;
        while let Some(found) = without(phase, Omission::GridBarrier(barriers)) {
            match found.first() {
                Some(text) => println!("{phase} without barrier {barriers}: {text}\n"),
                None => unnoticed.push(barriers),
            }
            barriers += 1;
        }
        println!("{phase}: {barriers} barriers, not missed: {unnoticed:?}");
        assert!(
            barriers > 1 && unnoticed.len() <= 1,
            "{phase}: {unnoticed:?} of {barriers}"
        );
    }
}

/// A receive phase has a barrier after its wait, which holds an acquire fence, and the next launch after its release.
#[test]
fn the_release_fences_of_a_send_phase_are_missed() {
    let _turn = turn();
    for phase in ["wv_moe_dispatch_send", "wv_moe_combine_send"] {
        let found = without(phase, Omission::Release).unwrap();
        let untold = |text: &String| text.contains("untold: the HCA reads") && text.contains(phase);
        assert!(found.iter().any(untold), "{phase}: {found:#?}");
    }
}
