//! What the seed of a run draws: a NIC of softofi, what a test changes in it, and the configurations of engines.

use std::time::Duration;

use fastrand::Rng;

use super::config;
use crate::engine::EngineConfig;

/// Returns the configuration of softofi: profile, rates and times.
pub(super) fn nic(random: &mut Rng) -> String {
    let profile = random.choice(["efa-direct", "efa"]).unwrap();
    let dead = random.choice(["error", "silent", "mixed"]).unwrap();
    let wait = random.choice(["none", "fd"]).unwrap();
    let late = random.choice([0, 300, 3000]).unwrap();
    let data = random.choice([0, 300, 5000]).unwrap();
    let queue = random.choice([32, 64, 256]).unwrap();
    let (again, warmup) = (random.u32(0..300), random.u32(0..40));
    let (pieces, dead_ms, seed) = (random.u32(1..=6), random.u32(5..40), random.u32(..));
    format!(
        "softofi:profile={profile},dead={dead},dead_ms={dead_ms},wait={wait},late_us={late},data_us={data},queue={queue},again={again},warmup={warmup},pieces={pieces},seed={seed}"
    )
}

/// Returns the most bytes of an operation. None: a lane splits no slice.
pub(super) fn most_bytes(random: &mut Rng) -> Option<usize> {
    random.bool().then(|| random.usize(1000..6000))
}

pub(super) fn engine(name: &str, random: &mut Rng) -> EngineConfig {
    let grace = random.choice([0, 0, 1, 10]).unwrap();
    config(name)
        .with_workers(random.u32(1..=2))
        .with_qps(random.u32(1..=2))
        .with_slice(1 << random.u32(12..15))
        .with_fragment(0)
        .with_retry(random.u32(0..4))
        .with_grace(Duration::from_millis(grace))
        .with_drain(Duration::from_millis(random.u64(0..20)))
}
