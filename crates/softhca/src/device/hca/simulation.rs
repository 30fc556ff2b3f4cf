//! HCAs without an engine thread: a test moves the clock and gives the engine its turns, one at a time.
//!
//! What happens then depends on nothing but what the test does: no thread, no real time. The HCAs are not visible to
//! libibverbs and see no others; [`Hca::open`] opens them.

use crate::clock::Clock;
use crate::device::objects::watch::Look;
use crate::device::world::World;
use crate::device::{Hca, HcaConfig, HcaError};
use crate::engine;
use std::sync::Arc;

/// HCAs of their own, on a clock of their own.
#[derive(Debug)]
pub struct Simulation {
    world: Arc<World>,
}

/// What a turn of the engine has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Something was done, or is left to do at once.
    pub busy: bool,
    /// When something is to be done even if nothing happens.
    pub deadline_ns: Option<u64>,
}

impl Default for Simulation {
    fn default() -> Self {
        Self::new()
    }
}

impl Simulation {
    /// Nothing yet; it is one second past the beginning of time.
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

    /// Returns the time.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.world.lock().clock.now_ns()
    }

    /// Moves the clock to `now_ns`, or leaves it where it is if it is past that, and gives the engine one turn.
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

    /// Gives the engine turns until nothing is left to do at all. Whenever nothing is left to do before the next deadline, it moves
    /// the clock to that deadline. Gives up after `turns`; whether it came to rest.
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
