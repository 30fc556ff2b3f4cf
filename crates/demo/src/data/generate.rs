//! Tokens and routing made from a seed. Each rank makes the inputs of all ranks, to check what it receives.

use crate::options::RoutingKind;

/// Returns the random numbers of a seed, step and rank, which differ from those of any other.
pub(super) fn stream(seed: u64, step: u32, rank: u32) -> fastrand::Rng {
    let place = u64::from(step) << 32 | u64::from(rank);
    fastrand::Rng::with_seed(seed ^ place.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Returns `count` BF16 numbers of either sign between 1/8 and 32, by their bits. All exponents and mantissas are equally likely.
pub(super) fn tokens(random: &mut fastrand::Rng, count: usize) -> Vec<u16> {
    let mut values = Vec::with_capacity(count.next_multiple_of(4));
    while values.len() < count {
        let mut bits = random.u64(..);
        for _ in 0..4 {
            let [low, high, ..] = bits.to_le_bytes();
            let part = u16::from_le_bytes([low, high]);
            let (sign, exponent, mantissa) = (part & 0x8000, part >> 7 & 7, part & 0x7f);
            values.push(sign | (0x7c + exponent) << 7 | mantissa);
            bits >>= 16;
        }
    }
    values.truncate(count);
    values
}

/// Returns the popularity of experts: one number for each, larger for experts that are chosen more often.
pub(super) fn popularity(kind: RoutingKind, seed: u64, experts: u32) -> Vec<f64> {
    match kind {
        RoutingKind::Uniform | RoutingKind::AllToOne => vec![1.0; experts as usize],
        RoutingKind::Zipf => {
            let mut values: Vec<f64> = (1..=experts).map(|place| 1.0 / f64::from(place)).collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut values);
            values
        }
    }
}

/// Returns the experts of one token: `top_k` different experts, each drawn by its popularity among those left.
///
/// The draw takes the first `top_k` of exponential clocks to ring. With `AllToOne` the experts are 0 to `top_k` - 1.
pub(super) fn choices(
    random: &mut fastrand::Rng,
    kind: RoutingKind,
    popularity: &[f64],
    top_k: usize,
) -> Vec<i32> {
    if kind == RoutingKind::AllToOne {
        return (0i32..).take(top_k).collect();
    }
    let clock = |(expert, weight): (i32, &f64), random: &mut fastrand::Rng| {
        (-(1.0 - random.f64()).ln() / weight, expert)
    };
    let mut clocks: Vec<(f64, i32)> = (0i32..)
        .zip(popularity)
        .map(|pair| clock(pair, random))
        .collect();
    let order = |a: &(f64, i32), b: &(f64, i32)| a.0.total_cmp(&b.0);
    if top_k < clocks.len() {
        clocks.select_nth_unstable_by(top_k, order);
        clocks.truncate(top_k);
    }
    clocks.sort_unstable_by(order);
    clocks.into_iter().map(|(_, expert)| expert).collect()
}

/// Returns `top_k` positive weights that sum to 1, in descending order.
pub(super) fn weights(random: &mut fastrand::Rng, top_k: usize) -> Vec<f32> {
    let mut values: Vec<f32> = (0..top_k).map(|_| 0.1 + random.f32()).collect();
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    let sum: f32 = values.iter().sum();
    values.iter().map(|value| value / sum).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs::moe::bf16;

    #[test]
    fn tokens_are_finite_and_between_an_eighth_and_32() {
        for bits in tokens(&mut stream(1, 0, 0), 10_001) {
            let value = bf16::to_f32(bits).abs();
            assert!((0.125..32.0).contains(&value), "{value}");
        }
    }

    #[test]
    fn choices_are_different_experts_and_follow_the_popularity() {
        let popular = popularity(RoutingKind::Zipf, 7, 32);
        let mut counts = [0u32; 32];
        let mut random = stream(1, 0, 0);
        for _ in 0..2000 {
            let mut chosen = choices(&mut random, RoutingKind::Zipf, &popular, 4);
            for &expert in &chosen {
                counts[expert as usize] += 1;
            }
            chosen.sort_unstable();
            chosen.dedup();
            assert_eq!(chosen.len(), 4);
        }
        let most = counts.iter().max().unwrap();
        let favourite = popular.iter().position(|&weight| weight == 1.0).unwrap();
        assert_eq!(counts[favourite], *most, "{counts:?}");
    }

    #[test]
    fn all_to_one_chooses_the_first_experts() {
        let popular = popularity(RoutingKind::AllToOne, 1, 64);
        let mut random = stream(3, 1, 2);
        for top_k in [1, 3, 8] {
            let chosen = choices(&mut random, RoutingKind::AllToOne, &popular, top_k);
            let wanted: Vec<i32> = (0..i32::try_from(top_k).unwrap()).collect();
            assert_eq!(chosen, wanted);
        }
    }

    #[test]
    fn streams_of_different_places_differ() {
        let first = |step, rank| stream(1, step, rank).u64(..);
        assert_ne!(first(0, 1), first(1, 0));
        assert_ne!(first(0, 0), first(0, 1));
    }
}
