//! What takes CQEs off the CQs of a stock, for one worker or for all workers of a NIC.

use std::sync::Arc;
use std::time::Duration;

use super::stock::Stock;
use crate::provider::{Cause, Completed, Completion, ProviderError, Wake, Watched};
use crate::verbs::{Queue, SharedCq};

/// The consumer of the CQs of a stock.
#[derive(Debug)]
pub(super) struct Consumers {
    stock: Arc<Stock>,
    /// The consumers of the CQs, two for each piece that the stock had at the last look.
    consumers: Vec<Consumer>,
    /// The consumer that comes first at the next look. It changes each time, so that no CQ starves another.
    first: usize,
}

#[derive(Debug)]
struct Consumer {
    cq: Arc<SharedCq>,
    /// The number of entries consumed. The CQ counts modulo 2^24.
    consumed: u32,
    /// The number of armings so far.
    sequence: u32,
}

impl Consumers {
    pub(super) fn new(stock: &Arc<Stock>) -> Self {
        Self {
            stock: Arc::clone(stock),
            consumers: Vec::new(),
            first: 0,
        }
    }

    /// Adds consumers for the CQs that were made since the last look. A CQ is made before any lane that completes in it.
    fn look_for_more(&mut self) {
        let seen = self.consumers.len() / 2;
        if self.stock.count() == seen {
            return;
        }
        let new = self.stock.cqs(seen).into_iter();
        self.consumers.extend(new.map(|cq| Consumer {
            cq,
            consumed: 0,
            sequence: 0,
        }));
    }

    /// Adds completions of all CQs to `found`, until `found` has `most` entries.
    pub(super) fn reap(&mut self, found: &mut Vec<Completion>, most: usize) {
        self.look_for_more();
        self.first = match self.first + 1 {
            next if next < self.consumers.len() => next,
            _ => 0,
        };
        let (behind, before) = self.consumers.split_at_mut(self.first);
        for consumer in before.iter_mut().chain(behind) {
            consumer.reap(found, most);
        }
    }

    /// Arms all CQs: a completion from here on raises an event. Returns whether no CQ holds a completion.
    pub(super) fn arm(&mut self) -> bool {
        self.look_for_more();
        let mut is_empty = true;
        // Every consumer is armed, even after one that holds a completion.
        for consumer in &mut self.consumers {
            is_empty &= consumer.arm();
        }
        is_empty
    }

    /// Sleeps until a WQE has completed, `wake` is woken, or the time is over.
    pub(super) fn sleep(
        &mut self,
        wake: &Wake,
        most: Option<Duration>,
    ) -> Result<(), ProviderError> {
        if self.arm() {
            wake.sleep(Some(Watched::read(self.stock.events())), most)?;
        }
        self.stock.take_events()
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
                    Cause::of_hca(syndrome, vendor)
                }),
            });
        }
        if self.consumed != before {
            self.cq.consume(self.consumed);
        }
    }

    /// Arms the CQ: a completion from here on raises an event. Returns whether the CQ holds no completion.
    fn arm(&mut self) -> bool {
        self.sequence = self.sequence.wrapping_add(1);
        self.cq.arm(self.consumed, self.sequence);
        self.cq.entry(self.consumed).is_none()
    }
}
