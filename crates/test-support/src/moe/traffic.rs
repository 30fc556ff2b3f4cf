//! Generated batches.

use warpverbs::moe::{Batch, Moe, MoeConfig, bf16};

/// How tokens choose in a generated batch.
#[derive(Clone, Copy, Debug)]
pub struct Traffic {
    /// The number of choices of 100 that are -1.
    pub percent_none: u32,
    /// The number of batches of 100 that have no token.
    pub percent_empty: u32,
}

/// Traffic with some missing choices, and some ranks without a token.
pub const MIXED: Traffic = Traffic {
    percent_none: 20,
    percent_empty: 15,
};

/// Returns a batch of tokens that differ in every element. Equal arguments give equal batches.
pub fn batch(config: &MoeConfig, traffic: Traffic, seed: u64, call: u32, rank: u32) -> Batch {
    let mut random = fastrand::Rng::with_seed(seed ^ u64::from(call) << 40 ^ u64::from(rank) << 20);
    let tokens = if random.u32(..100) < traffic.percent_empty {
        0
    } else {
        random.u32(1..=config.max_tokens)
    };
    let mut batch = Batch::default();
    for _ in 0..tokens {
        let x = (0..config.hidden).map(|_| bf16::from_f32(random.f32() * 8.0 - 4.0));
        batch.x.extend(x);
        let mut ids: Vec<i32> = (0..i32::try_from(config.experts).unwrap()).collect();
        random.shuffle(&mut ids);
        for &id in &ids[..config.top_k as usize] {
            let none = random.u32(..100) < traffic.percent_none;
            batch.experts.push(if none { -1 } else { id });
            batch.weights.push(random.f32());
        }
    }
    batch
}

/// Returns the batches of all ranks in one call.
pub fn batches(moe: &Moe, traffic: Traffic, seed: u64, call: u32) -> Vec<Batch> {
    let one = |rank| batch(moe.config(), traffic, seed, call, rank);
    (0..moe.team().ranks()).map(one).collect()
}
