//! 10,000 random WQE programs mean on the device what a sequential model says: same completions, same memory.
//!
//! On a virtual clock, one engine turn at a time; a seed decides everything. `WV_TEST_SEED=N` runs that program alone.

use crate::programs::{Flavour, Outcome, Program, cases, generate, replay, shrink};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn outcome(program: &Program) -> Result<Outcome, String> {
    catch_unwind(AssertUnwindSafe(|| replay(program)))
        .unwrap_or_else(|panic| Err(format!("panic: {:?}", panic.downcast_ref::<String>())))
}

/// Returns what went wrong, without numbers: a smaller program is to fail in the same way.
fn kind(outcome: &Result<Outcome, String>) -> Option<String> {
    let why = outcome.as_ref().err()?;
    let (_, what) = why.split_once(": ").unwrap_or(("", why));
    Some(
        what.chars()
            .filter(|letter| letter.is_alphabetic())
            .take(24)
            .collect(),
    )
}

/// Runs the programs of `seeds`, and shows the smallest form of the first that goes wrong.
fn run(seeds: std::ops::Range<u64>, flavour: Flavour) {
    let seeds = match std::env::var("WV_TEST_SEED") {
        Ok(seed) => {
            let seed = seed.parse().unwrap();
            seed..seed + 1
        }
        Err(_) => seeds,
    };
    let count = seeds.end - seeds.start;
    let mut cut_short = 0;
    for seed in seeds {
        let program = generate(seed, flavour);
        match outcome(&program) {
            Ok(Outcome::Same) => {}
            Ok(Outcome::Ambiguous) => cut_short += 1,
            Err(why) => {
                let smallest = shrink(program, |program| {
                    kind(&outcome(program)) == kind(&Err(why.clone()))
                });
                let why_still = outcome(&smallest);
                panic!(
                    "seed {seed}, {flavour:?}: {why}\nthe smallest program, {why_still:?}:\n{smallest}"
                );
            }
        }
    }
    assert!(
        cut_short * 10 <= count,
        "{cut_short} of {count} programs were not compared to their end"
    );
}

#[test]
fn programs_between_memories_do_what_the_sequential_model_says() {
    run(0..5000, Flavour { loopback: true });
}

#[test]
fn programs_over_packets_do_what_the_sequential_model_says() {
    run(5000..10_000, Flavour { loopback: false });
}

#[test]
fn programs_that_once_went_wrong_do_what_the_sequential_model_says() {
    let cases = [
        ("nonsense behind a READ", cases::nonsense_behind_a_read()),
        ("a stray WQE behind a READ", cases::a_stray_behind_a_read()),
        ("a refusal behind a READ", cases::a_refusal_behind_a_read()),
        ("half a message", cases::half_a_message()),
        ("half a mixed message", cases::half_a_mixed_message()),
        ("a fenced NOP", cases::a_fenced_nop()),
        ("silence", cases::silence()),
    ];
    for (name, program) in cases {
        for loopback in [false, true] {
            let mut program = program.clone();
            program.setup.loopback = loopback;
            assert_eq!(
                outcome(&program),
                Ok(Outcome::Same),
                "{name}, loopback {loopback}"
            );
        }
    }
}
