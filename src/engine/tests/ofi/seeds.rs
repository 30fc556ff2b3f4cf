//! Seeded runs over softofi: 20, or 1,000 with `WV_TEST_FULL=1`. `WV_TEST_SEED=N` runs that seed alone. The same seeds find planted
//! defects.

use std::ops::Range;
use std::thread;

use super::run::{Outcomes, Run};
use crate::provider::ofi::{LATE, Planted};

/// So many seeds find a planted defect. One of about twelve finds the rarest, so that all miss it once in ten million runs.
const ENOUGH: u64 = 200;

fn seeds(few: u64, many: u64) -> Range<u64> {
    if let Ok(seed) = std::env::var("WV_TEST_SEED") {
        let seed: u64 = seed.parse().unwrap();
        return seed..seed + 1;
    }
    let full = std::env::var_os("WV_TEST_FULL").is_some();
    let first = fastrand::u64(..1 << 32);
    first..first + if full { many } else { few }
}

fn run(seed: u64, planted: Option<Planted>) -> Result<Outcomes, String> {
    // A panic says no seed.
    println!("WV_TEST_SEED={seed}");
    let run = Run::new(seed, planted);
    let memories = run.memories();
    let found = run.all();
    if planted == Some(Planted::LateClose) {
        // The last endpoints are closed only now.
        thread::sleep(2 * LATE);
    }
    drop(memories);
    found
}

#[test]
fn an_engine_over_softofi_keeps_its_word_with_any_seed() {
    let seeds = seeds(20, 1000);
    let (first, count) = (seeds.start, seeds.end - seeds.start);
    let mut outcomes = [0; 4];
    for seed in seeds {
        let found = run(seed, None);
        let found = found.unwrap_or_else(|broken| panic!("WV_TEST_SEED={seed}: {broken}"));
        for (sum, one) in outcomes.iter_mut().zip(found) {
            *sum += one;
        }
    }
    println!("{count} runs from seed {first} on: done, failed, cancelled, timed out: {outcomes:?}");
    assert!(outcomes[0] > 0);
}

/// Sees that one of the seeds finds a defect.
fn finds(planted: Planted) {
    let seeds = seeds(ENOUGH, ENOUGH);
    for seed in seeds.clone() {
        if let Err(broken) = run(seed, Some(planted)) {
            println!("{planted:?}: seed {seed}: {broken}");
            return;
        }
    }
    panic!("{planted:?}: not found by seeds {seeds:?}");
}

#[test]
fn seeds_find_a_prefix_that_is_taken_for_done() {
    finds(Planted::Prefix);
}

#[test]
fn seeds_find_a_conclusion_before_the_close() {
    finds(Planted::LateClose);
}

#[test]
fn seeds_find_a_refused_post_that_is_dropped() {
    finds(Planted::Dropped);
}

#[test]
fn seeds_find_a_refused_post_that_is_overtaken() {
    finds(Planted::Overtaken);
}

#[test]
fn seeds_find_a_lost_part_of_a_split() {
    finds(Planted::LostPart);
}

#[test]
fn seeds_find_a_count_that_is_lost_at_a_close() {
    finds(Planted::LostCount);
}

#[test]
fn seeds_find_a_key_that_is_given_again() {
    finds(Planted::KeyAgain);
}

#[test]
fn seeds_find_a_sleep_without_progress() {
    finds(Planted::DeafSleep);
}
