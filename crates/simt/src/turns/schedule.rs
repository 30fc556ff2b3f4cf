//! A schedule: the choices that are left to chance, and their seeded source.

use std::cell::Cell;

/// With seed 0, one of so many loads lets other threads run.
const PLAIN_SWITCH_EVERY: u32 = 16;

/// The picks of one worker. Seed 0 picks nothing: the first to come runs first.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// The state of the generator. `None` with seed 0.
    state: Option<Cell<u64>>,
    /// On average, one of so many loads lets other threads run.
    switch_every: u32,
    /// The most steps in a row that a picked warp gets. A power of two.
    burst: u32,
}

impl Schedule {
    pub(crate) fn new(seed: u64, worker: u32) -> Self {
        if seed == 0 {
            return Self {
                state: None,
                switch_every: PLAIN_SWITCH_EVERY,
                burst: 1,
            };
        }
        let mut rng = fastrand::Rng::with_seed(seed ^ u64::from(worker).rotate_left(48));
        let switch_every = 1 << rng.u32(0..6);
        let burst = 1 << rng.u32(0..7);
        Self {
            state: Some(Cell::new(rng.get_seed())),
            switch_every,
            burst,
        }
    }

    /// Returns whether picks are random.
    #[inline]
    pub(crate) fn is_random(&self) -> bool {
        self.state.is_some()
    }

    /// Returns a random number below `n` > 0; 0 with seed 0.
    #[inline]
    pub(crate) fn below(&self, n: u32) -> u32 {
        let Some(state) = &self.state else { return 0 };
        let mut rng = fastrand::Rng::with_seed(state.get());
        let pick = rng.u32(0..n);
        state.set(rng.get_seed());
        pick
    }

    /// Returns how many loads a thread passes before a load at which other threads run.
    #[inline]
    pub(crate) fn loads(&self) -> u32 {
        if self.is_random() {
            self.below(2 * self.switch_every - 1)
        } else {
            self.switch_every - 1
        }
    }

    /// Returns how many steps the picked warp gets now.
    #[inline]
    pub(crate) fn steps(&self) -> u32 {
        1 + self.below(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_worker_pick_the_same() {
        let picks = |seed, worker| {
            let schedule = Schedule::new(seed, worker);
            (0..100).map(|_| schedule.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(picks(5, 0), picks(5, 0));
        assert_ne!(picks(5, 0), picks(6, 0));
        assert_ne!(picks(5, 0), picks(5, 1));
        assert_eq!(picks(0, 0), vec![0; 100]);
    }
}
