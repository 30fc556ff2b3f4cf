//! Takes CQEs off a CQ of many QPs, and sleeps on it.

use std::sync::Arc;
use std::time::Duration;

use crate::provider::{Cause, Completion, ProviderError, Reaper, Wake, Watched};
use crate::verbs::SharedCq;

/// The consumer of one CQ.
#[derive(Debug)]
pub struct Mlx5Reaper {
    cq: Arc<SharedCq>,
    /// Entries consumed; the CQ counts modulo 2^24.
    consumed: u32,
    /// Armings so far.
    sequence: u32,
}

impl Mlx5Reaper {
    pub(super) fn new(cq: Arc<SharedCq>) -> Self {
        Self {
            cq,
            consumed: 0,
            sequence: 0,
        }
    }
}

impl Reaper for Mlx5Reaper {
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        let before = self.consumed;
        while found.len() < most {
            let Some(entry) = self.cq.entry(self.consumed) else {
                break;
            };
            self.consumed = self.consumed.wrapping_add(1);
            found.push(Completion {
                lane: entry.qpn,
                index: entry.index,
                cause: entry.failed.map(|failed| {
                    let [vendor, syndrome] = failed.to_be_bytes();
                    Cause { syndrome, vendor }
                }),
            });
        }
        if self.consumed != before {
            self.cq.consume(self.consumed);
        }
    }

    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        self.sequence = self.sequence.wrapping_add(1);
        self.cq.arm(self.consumed, self.sequence);
        if self.cq.entry(self.consumed).is_none() {
            wake.sleep(Some(Watched::read(self.cq.fd())), most)?;
        }
        Ok(self.cq.take_events()?)
    }
}
