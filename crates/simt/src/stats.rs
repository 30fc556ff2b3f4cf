//! What a launch has counted.

use std::time::Duration;

/// The counts of a launch.
#[derive(Clone, Debug, Default)]
pub struct LaunchStats {
    /// The number of CUDA threads that ran.
    pub threads: u64,
    /// The number of switches into a CUDA thread.
    pub switches: u64,
    /// The number of calls of warp operations and block barriers, counted per thread.
    pub meetings: u64,
    /// How often an OS thread slept because all runnable threads polled.
    pub sleeps: u64,
    /// The most blocks that were resident together, per worker, summed.
    pub seats: u64,
    /// The number of barriers of the whole grid.
    pub grid_syncs: u64,
    /// The number of fences wider than a block.
    pub fences: u64,
    /// The number of loads that kernels have counted (`simt_count_loads`). `load_rounds` is the number of rounds in which a thread issued
    /// them: it waits for memory once in a round.
    pub loads: u64,
    /// The number of rounds of loads, see `loads`.
    pub load_rounds: u64,
    /// The wall-clock time of the launch.
    pub elapsed: Duration,
}

impl LaunchStats {
    /// Adds what another worker has counted. Barriers of the grid and the time are of all workers together.
    pub(crate) fn add(&mut self, other: &Self) {
        self.threads += other.threads;
        self.switches += other.switches;
        self.meetings += other.meetings;
        self.sleeps += other.sleeps;
        self.seats += other.seats;
        self.fences += other.fences;
        self.loads += other.loads;
        self.load_rounds += other.load_rounds;
    }
}
