//! Lanes without an HCA: a WQE is done once it is rung for, and no byte moves.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{
    Cause, Chain, Completed, Completion, Lane, Posted, Provider, ProviderError, Reaper, Stop, Tag,
    Wake, WorkerLanes,
};
use crate::config::EngineConfig;

/// The provider without an HCA.
#[derive(Debug)]
pub enum Sink {}

impl Provider for Sink {
    type Lane = SinkLane;
    type Reaper = SinkReaper;
}

impl Sink {
    /// Returns the lanes of the workers of an engine with this configuration, which is inside its limits. The first lane has the fault.
    #[must_use]
    pub fn lanes(config: &EngineConfig, fault: Option<SinkFault>) -> Vec<WorkerLanes<Self>> {
        let of_worker = |worker: u32| {
            let mut own = WorkerLanes::<Self> {
                reaper: SinkReaper::default(),
                lanes: Vec::new(),
            };
            for number in (worker..config.qps).step_by(config.workers as usize) {
                let lane = SinkLane::new(number, 1 << config.log_depth);
                let lane = lane.with_fault(fault.filter(|_| number == 0));
                own.reaper.add(&lane);
                own.lanes.push(lane);
            }
            own
        };
        (0..config.workers).map(of_worker).collect()
    }
}

/// A send queue without an HCA.
#[derive(Debug)]
pub struct SinkLane {
    number: u32,
    tags: Box<[Tag]>,
    posted: u64,
    retired: u64,
    rung: Arc<AtomicU64>,
    fault: Option<SinkFault>,
    receives: u32,
}

/// A fault of a lane without an HCA, for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkFault {
    /// The lane refuses the WQE of this index, and all after it.
    Refuses(u64),
    /// The lane panics when it is to take the WQE of this index.
    Panics(u64),
}

impl SinkLane {
    /// Returns the number of WQEs that were rung for, which the reaper watches.
    pub(crate) fn rung(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.rung)
    }

    /// Returns a lane of `depth` WQEs, a power of two up to 2^15.
    #[must_use]
    pub fn new(number: u32, depth: u32) -> Self {
        let depth = depth.clamp(1, 1 << 15).next_power_of_two();
        Self {
            number,
            tags: vec![Tag::default(); depth as usize].into(),
            posted: 0,
            retired: 0,
            rung: Arc::default(),
            fault: None,
            receives: 0,
        }
    }

    /// Returns the lane with so many receive WQEs.
    #[cfg(test)]
    pub(crate) fn with_receives(self, receives: u32) -> Self {
        Self { receives, ..self }
    }

    /// Returns the lane with this fault.
    #[must_use]
    pub fn with_fault(mut self, fault: Option<SinkFault>) -> Self {
        self.fault = fault;
        self
    }

    fn place(&self, index: u64) -> usize {
        let mask = self.tags.len() as u64 - 1;
        usize::try_from(index & mask).unwrap_or_default()
    }
}

impl Lane for SinkLane {
    fn number(&self) -> u32 {
        self.number
    }

    fn room(&self, _ranges: u32) -> u32 {
        u32::try_from(self.tags.len()).unwrap_or(u32::MAX) - self.in_flight()
    }

    fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted {
        let mut count = 0;
        for (work, _) in chain.range(which) {
            let stop = match self.fault {
                Some(SinkFault::Refuses(index)) if self.posted >= index => Some(Stop::Failed),
                Some(SinkFault::Panics(index)) if self.posted >= index => panic_at(index),
                _ if self.room(1) == 0 => Some(Stop::Full),
                _ => None,
            };
            if stop.is_some() {
                return Posted { count, stop };
            }
            let place = self.place(self.posted);
            self.tags[place] = work.tag;
            self.posted += 1;
            count += 1;
        }
        Posted { count, stop: None }
    }

    fn ring(&mut self) {
        self.rung.store(self.posted, Ordering::Release);
    }

    fn retire(&mut self, completion: &Completion, mut each: impl FnMut(Tag, Option<Cause>)) {
        let count = 1 + completion.index.wrapping_sub(low(self.retired));
        for _ in 0..u64::from(count).min(self.posted - self.retired) {
            each(self.tags[self.place(self.retired)], None);
            self.retired += 1;
        }
    }

    fn receives(&self) -> u32 {
        self.receives
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.posted - self.retired).unwrap_or(u32::MAX)
    }

    fn holds(&self, slot: u32) -> bool {
        let mut indexes = self.retired..self.posted;
        indexes.any(|index| self.tags[self.place(index)].slot == slot)
    }
}

#[expect(clippy::panic, reason = "a test has asked for it")]
fn panic_at(index: u64) -> ! {
    panic!("planted at WQE {index}")
}

/// Returns the low 16 bits of the index, as a CQE carries them.
fn low(index: u64) -> u16 {
    let [a, b, ..] = index.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// The reaper of lanes without an HCA: it completes what was rung for on the lanes that were added to it.
#[derive(Debug, Default)]
pub struct SinkReaper {
    lanes: Vec<(u32, Arc<AtomicU64>, u64)>,
}

impl SinkReaper {
    /// Lets the reaper complete the WQEs of this lane too.
    pub fn add(&mut self, lane: &SinkLane) {
        self.lanes.push((lane.number, lane.rung(), 0));
    }
}

impl Reaper for SinkReaper {
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        for (lane, rung, seen) in &mut self.lanes {
            if found.len() >= most {
                return;
            }
            let now = rung.load(Ordering::Acquire);
            if now != *seen {
                *seen = now;
                found.push(Completion {
                    lane: *lane,
                    what: Completed::Sends,
                    index: low(now - 1),
                    cause: None,
                });
            }
        }
    }

    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        let is_due =
            |(_, rung, seen): &(u32, Arc<AtomicU64>, u64)| rung.load(Ordering::Acquire) != *seen;
        if self.lanes.iter().any(is_due) {
            Ok(())
        } else {
            wake.sleep(None, most)
        }
    }
}
