//! HCAs without an engine thread: a test moves the clock and gives the engine its turns, one at a time.
//!
//! What happens in a simulation depends on nothing but the calls of the test: there is no thread and no real time. The HCAs of a simulation
//! are not visible to libibverbs and see no others; [`Hca::open`] opens them.

use crate::clock::Clock;
use crate::device::objects::watch::Look;
use crate::device::world::World;
use crate::device::{Hca, HcaConfig, HcaError};
use crate::engine;
use std::sync::Arc;

/// A group of HCAs that see only each other, on a clock of their own.
#[derive(Debug)]
pub struct Simulation {
    world: Arc<World>,
}

/// The outcome of a turn of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Something was done, or is left to do at once.
    pub busy: bool,
    /// The time at which the engine has something to do even if nothing happens before.
    pub deadline_ns: Option<u64>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulation {
    /// Makes a simulation without HCAs. Its clock is one second past the beginning of time.
    #[must_use]
    pub fn new() -> Self {
        Self {
            world: World::new(Clock::Virtual(1_000_000_000)),
        }
    }

    /// Makes the next HCA.
    ///
    /// # Errors
    ///
    /// See [`HcaError`].
    pub fn hca(&self, config: &HcaConfig) -> Result<Hca, HcaError> {
        Hca::in_world(&self.world, config)
    }

    /// Returns the time of the simulation's clock.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.world.lock().clock.now_ns()
    }

    /// Moves the clock forward to `now_ns` and gives the engine one turn. The clock does not go back if it is past that time.
    pub fn step(&self, now_ns: u64) -> Step {
        let mut fabric = self.world.lock_for_engine();
        fabric.clock = Clock::Virtual(now_ns.max(fabric.clock.now_ns()));
        let report = engine::turn(&mut fabric, Look::Everywhere);
        drop(fabric);
        for (handler, event) in report.events {
            handler(event);
        }
        Step {
            busy: report.busy,
            deadline_ns: report.deadline_ns,
        }
    }

    /// Gives the engine turns until nothing is left to do at all. Whenever nothing is left to do before the next deadline, it moves the
    /// clock to that deadline. Gives up after `turns` turns. Returns whether nothing was left to do.
    #[must_use]
    pub fn run(&self, turns: usize) -> bool {
        let mut now_ns = self.now_ns();
        for _ in 0..turns {
            let step = self.step(now_ns);
            if !step.busy {
                match step.deadline_ns {
                    Some(deadline_ns) => now_ns = deadline_ns,
                    None => return true,
                }
            }
        }
        false
    }
}
