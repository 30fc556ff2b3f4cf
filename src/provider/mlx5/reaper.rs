//! Takes CQEs off two CQs of many QPs, that of sends and that of receives, and sleeps on both.

use std::sync::Arc;
use std::time::Duration;

use crate::provider::{Cause, Completed, Completion, ProviderError, Reaper, Wake, Watched};
use crate::verbs::{Queue, SharedCq};

/// The consumer of the CQs of one thread.
#[derive(Debug)]
pub struct Mlx5Reaper {
    sends: Consumer,
    receives: Consumer,
    /// Whose turn it is to be first: none starves the other.
    sends_first: bool,
}

#[derive(Debug)]
struct Consumer {
    cq: Arc<SharedCq>,
    /// Entries consumed; the CQ counts modulo 2^24.
    consumed: u32,
    /// Armings so far.
    sequence: u32,
}

impl Mlx5Reaper {
    /// Both have one channel.
    pub(super) fn new([sends, receives]: [Arc<SharedCq>; 2]) -> Self {
        let [sends, receives] = [sends, receives].map(|cq| Consumer {
            cq,
            consumed: 0,
            sequence: 0,
        });
        Self {
            sends,
            receives,
            sends_first: false,
        }
    }
}

impl Consumer {
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        let before = self.consumed;
        while found.len() < most {
            let Some(entry) = self.cq.entry(self.consumed) else {
                break;
            };
            self.consumed = self.consumed.wrapping_add(1);
            found.push(Completion {
                lane: entry.qpn,
                what: match entry.queue {
                    Queue::Send => Completed::Sends,
                    Queue::Receive(immediate) => Completed::Receive(immediate),
                },
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

    /// Arms the CQ: a completion from here on raises an event. Returns whether none is left to reap.
    fn arm(&mut self) -> bool {
        self.sequence = self.sequence.wrapping_add(1);
        self.cq.arm(self.consumed, self.sequence);
        self.cq.entry(self.consumed).is_none()
    }
}

impl Reaper for Mlx5Reaper {
    fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        self.sends_first = !self.sends_first;
        let mut both = [&mut self.sends, &mut self.receives];
        if !self.sends_first {
            both.reverse();
        }
        for consumer in both {
            consumer.reap(found, most);
        }
    }

    fn sleep(&mut self, wake: &Wake, most: Option<Duration>) -> Result<(), ProviderError> {
        let (sends, receives) = (self.sends.arm(), self.receives.arm());
        if sends && receives {
            wake.sleep(Some(Watched::read(self.sends.cq.fd())), most)?;
        }
        Ok(self.sends.cq.take_events()?)
    }
}
