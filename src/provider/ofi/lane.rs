//! What a worker posts to: an endpoint, and the book of its operations.
//!
//! A post only takes WQEs. The doorbell gives their operations to the provider, which may refuse any for now. What it refuses waits in the
//! book, in order, and the lane tries again in each turn.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::book::{Book, Driven, Refused};
use super::endpoint::Endpoint;
use super::lkeys::LocalKeys;
use super::split::Limits;
use crate::provider::{
    Cause, Chain, Completed, Completion, Counted, Lane, LaneCounts, Posted, Stop, Tag,
};

/// Time between two tries to close an endpoint that the library keeps.
const AGAIN: Duration = Duration::from_millis(10);

/// A lane over libfabric.
#[derive(Debug)]
pub(crate) struct OfiLane {
    /// It is closed when the lane is dropped, before its memory may be used for something else.
    endpoint: Arc<Endpoint>,
    keys: Arc<LocalKeys>,
    book: Book,
    /// The writes of the peer that were counted.
    seen: Counted,
    /// True if the queue knows that posts of this lane were refused.
    is_hurried: bool,
    /// Why the lane ends. None: it does not end.
    ends: Option<Cause>,
    /// The time of the next try to close the endpoint.
    closes: Option<Instant>,
    /// True if the worker knows that no write of the peer is to be counted any more.
    is_told: bool,
}

impl OfiLane {
    pub(super) fn new(
        endpoint: &Arc<Endpoint>,
        keys: &Arc<LocalKeys>,
        depth: u16,
        limits: Limits,
    ) -> Self {
        let book = Book::new(depth, limits);
        #[cfg(test)]
        let book = book.with_planted(endpoint.planted());
        Self {
            endpoint: Arc::clone(endpoint),
            keys: Arc::clone(keys),
            book,
            seen: Counted::default(),
            is_hurried: false,
            ends: None,
            closes: None,
            is_told: false,
        }
    }

    /// Posts what waits, until the provider refuses.
    fn drive(&mut self) {
        let driven = if self.book.waits() {
            let keys = self.keys.read();
            let poster = self.endpoint.poster();
            let (book, cq) = (&mut self.book, self.endpoint.cq());
            book.drive(|op, context| {
                let posted = poster.post(op, context, &keys);
                if posted == Err(Refused::Again) {
                    cq.count_refusal();
                }
                posted
            })
        } else {
            Driven::All
        };
        self.set_hurried(driven == Driven::Refused);
    }

    fn set_hurried(&mut self, is_hurried: bool) {
        if std::mem::replace(&mut self.is_hurried, is_hurried) == is_hurried {
            return;
        }
        if is_hurried {
            self.endpoint.cq().hurry();
        } else {
            self.endpoint.cq().end_hurry();
        }
    }

    /// Closes the endpoint, and accounts for all that it had. If the library refuses, the lane tries again later.
    fn end(&mut self) {
        let Some(cause) = self.ends else {
            return;
        };
        let now = Instant::now();
        if self.closes.is_some_and(|next| now < next) {
            return;
        }
        self.endpoint.cq().keep();
        match self.endpoint.close() {
            Ok(()) => {
                self.closes = None;
                self.book.fail(cause);
                self.set_hurried(false);
            }
            Err(error) => {
                tracing::error!("lane {:#x} does not end: {error}", self.number());
                self.closes = now.checked_add(AGAIN);
            }
        }
    }

    fn begin_end(&mut self, cause: Cause) {
        if self.ends.is_none() {
            self.ends = Some(cause);
            self.end();
        }
    }
}

impl Lane for OfiLane {
    fn number(&self) -> u32 {
        self.endpoint.number()
    }

    fn room(&self, _ranges: u32) -> u32 {
        self.book.room()
    }

    fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted {
        let mut count = 0;
        for (work, ranges) in chain.range(which) {
            let stop = if self.book.has_failed() || self.ends.is_some() {
                Some(Stop::Failed)
            } else if self.book.take(work, ranges) {
                count += 1;
                continue;
            } else {
                Some(Stop::Full)
            };
            return Posted { count, stop };
        }
        Posted { count, stop: None }
    }

    fn ring(&mut self) {
        self.drive();
    }

    fn retire(&mut self, completion: &Completion, mut each: impl FnMut(Tag, Option<Cause>)) {
        match completion.what {
            Completed::Send => {
                // After its end a lane has accounted for all already.
                if self.ends.is_none() || self.closes.is_some() {
                    let done = self.book.complete(completion.index, completion.cause);
                    done.into_iter().for_each(|(tag, cause)| each(tag, cause));
                }
            }
            Completed::Sends => self.book.finish(each),
            Completed::Receive(_) => {}
        }
    }

    fn in_flight(&self) -> u32 {
        self.book.in_flight()
    }

    fn open(&mut self) {
        self.endpoint.ear().open();
    }

    fn receive(&mut self, completion: &Completion) {
        if let Completed::Receive(Some(counter)) = completion.what
            && let Ok(counter) = u16::try_from(counter)
        {
            self.seen.add(counter);
        }
    }

    fn holds(&self, slot: u32) -> bool {
        self.book.holds(slot)
    }

    /// Until its endpoint is closed and the queue was found empty after that, writes of the peer may be counted.
    fn receives(&self) -> u32 {
        self.endpoint.ear().may_receive().into()
    }

    fn has_turn(&self) -> bool {
        self.book.has_finished()
            || self.ends.is_some() && self.endpoint.ear().is_drained() && !self.is_told
            || self.closes.is_some()
            || self.book.waits() && !self.book.is_full()
            || self.book.in_flight() > 0 && self.endpoint.cq().broken().is_some()
    }

    fn advance(&mut self) -> Option<Completion> {
        if let Some(cause) = self.endpoint.cq().broken() {
            self.begin_end(cause);
        }
        if self.ends.is_some() && self.closes.is_some() {
            self.end();
        } else if self.ends.is_none() {
            self.drive();
        }
        // With this the worker looks again whether the lane is over.
        let is_over = self.ends.is_some() && self.endpoint.ear().is_drained();
        let is_news = is_over && !std::mem::replace(&mut self.is_told, is_over);
        (is_news || self.book.has_finished()).then(|| Completion {
            lane: self.number(),
            what: Completed::Sends,
            index: 0,
            cause: self.book.first_cause(),
        })
    }

    fn flush(&mut self, slot: Option<u32>) -> bool {
        // No operation can be called back alone.
        if slot.is_some() {
            return false;
        }
        self.begin_end(Cause::FLUSHED);
        true
    }
}

impl Drop for OfiLane {
    fn drop(&mut self) {
        self.set_hurried(false);
        if let Err(error) = self.endpoint.close() {
            tracing::error!("lane {:#x} is dropped: {error}", self.number());
        }
        self.endpoint.leave(LaneCounts {
            done: self.book.take_counted(),
            seen: std::mem::take(&mut self.seen),
        });
    }
}
