//! All that is random. What is drawn follows from the seed and from numbers of endpoints and operations, so that a run with the same
//! calls draws the same.

use std::time::Duration;

use fastrand::Rng;

/// Who draws.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(crate) enum Purpose {
    Refusal = 1,
    Operation,
    Landing,
    Close,
    Data,
}

/// Dice for one purpose, of an endpoint and what it does.
pub(crate) fn dice(seed: u64, purpose: Purpose, endpoint: u32, number: u64) -> Rng {
    let words = [seed, purpose as u64, u64::from(endpoint), number];
    // Numbers next to each other must not give draws next to each other.
    let mixed = words.into_iter().fold(0u64, |mixed, word| {
        let word = (mixed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word ^ (word >> 32)
    });
    Rng::with_seed(mixed)
}

/// Whether one of a thousand of this rate.
pub(crate) fn hits(dice: &mut Rng, rate: u32) -> bool {
    dice.u32(..1000) < rate
}

/// A time up to this one.
pub(crate) fn up_to(dice: &mut Rng, most: Duration) -> Duration {
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(dice.u64(..=most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_numbers_draw_the_same_and_others_do_not() {
        let draw = |seed, purpose, endpoint, number| dice(seed, purpose, endpoint, number).u64(..);
        let first = draw(1, Purpose::Refusal, 1, 1);
        assert_eq!(first, draw(1, Purpose::Refusal, 1, 1));
        let others = [
            draw(2, Purpose::Refusal, 1, 1),
            draw(1, Purpose::Landing, 1, 1),
            draw(1, Purpose::Refusal, 2, 1),
            draw(1, Purpose::Refusal, 1, 2),
        ];
        assert!(!others.contains(&first));
        let mut rate = dice(1, Purpose::Refusal, 1, 0);
        let hit = (0..10_000).filter(|_| hits(&mut rate, 100)).count();
        assert!((800..1200).contains(&hit), "{hit}");
        assert!(!hits(&mut rate, 0) && hits(&mut rate, 1000));
    }
}
