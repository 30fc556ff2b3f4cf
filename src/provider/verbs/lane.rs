//! One QP as a queue: posts, and accounts for every WQE.
//!
//! A post hands all its WQEs to the provider in libibverbs by one call, which rings for them: that call also says which WQE is not taken,
//! and a doorbell after it would be a second one. So [`Lane::ring`] has nothing to do.
//!
//! The last WQE of each post is signalled, so each WQE has a signalled one at or after it. A completion accounts for all WQEs up to its
//! own: an RC QP completes in order. Once the QP is in error each WQE completes in error, signalled or not. The WQEs before the first such
//! completion were done. If the provider refuses a WQE, the QP is put into the error state: those before it are then accounted for in this
//! way, also if none of them is signalled.
//!
//! The receive WQEs are consumed by WRITEs of the peer with an immediate. They take no bytes, and each is posted again when it completes.

use std::ops::Range;
use std::sync::Arc;

use super::name::{Name, low};
use crate::provider::carried::{carried, gather};
use crate::provider::{Cause, Chain, Completion, Lane, LocalRange, Posted, Stop, Tag, Verb, Work};
use crate::verbs::{PlainPiece, PlainQp, PlainRefusal, PlainRequest, PlainVerb, RequestList};

/// A QP that one thread posts to.
pub(crate) struct VerbsLane {
    qp: Arc<PlainQp>,
    list: RequestList,
    /// The tags of the WQEs that are not accounted for, each at its index.
    in_flight: Box<[Tag]>,
    /// The number of receive WQEs.
    receives: u32,
    /// The most bytes that a WQE carries.
    inline: u64,
    /// The numbers of WQEs posted and accounted for in this life of the QP.
    posted: u64,
    retired: u64,
    /// The lane takes no more WQEs.
    has_failed: bool,
    /// A WQE has failed: those after it were not done.
    is_broken: bool,
    /// The numbers of receive WQEs posted and accounted for.
    receives_posted: u64,
    receives_retired: u64,
    /// No receive WQE is posted again: one has failed, or the lane was told to end.
    has_ended: bool,
    /// The request that makes the NIC look at the QP once more was posted.
    is_marked: bool,
}

impl VerbsLane {
    /// Returns the lane of a QP, which takes `depth` WQEs, a power of two, and one request more, and `receives` receive WQEs.
    pub(super) fn new(qp: Arc<PlainQp>, depth: u32, receives: u32) -> Self {
        Self {
            inline: qp.inline().into(),
            qp,
            list: RequestList::default(),
            in_flight: vec![Tag::default(); depth as usize].into(),
            receives,
            posted: 0,
            retired: 0,
            has_failed: false,
            is_broken: false,
            receives_posted: 0,
            receives_retired: 0,
            has_ended: false,
            is_marked: false,
        }
    }

    /// Returns the lane with inline WRITEs: a WQE carries at most `most` bytes, and at most what the QP was made for.
    #[must_use]
    pub(crate) fn with_inline(mut self, most: u32) -> Self {
        self.inline = self.inline.min(most.into());
        self
    }

    fn place(&self, index: u64) -> usize {
        let mask = self.in_flight.len() as u64 - 1;
        usize::try_from(index & mask).unwrap_or_default()
    }

    fn free(&self) -> usize {
        self.in_flight.len() - usize::try_from(self.posted - self.retired).unwrap_or(usize::MAX)
    }

    /// Adds the WQE of this work to the list.
    fn list(&mut self, work: &Work, ranges: &[LocalRange], index: u64, is_signalled: bool) {
        let request = PlainRequest {
            id: Name::of_send(index).id(),
            verb: match work.verb {
                Verb::Write => PlainVerb::Write,
                Verb::WriteImmediate(word) => PlainVerb::WriteImmediate(word),
                Verb::Read => PlainVerb::Read,
            },
            remote: work.remote,
            rkey: work.key,
            is_signalled,
        };
        match carried(self.inline, work, ranges) {
            Some(bytes) if bytes > 0 => {
                let fill = |into: &mut [u8]| gather(ranges, into);
                self.list.push_carrying(&request, bytes, fill);
            }
            _ => {
                let pieces = ranges.iter().map(|range| PlainPiece {
                    address: range.address,
                    bytes: range.bytes,
                    lkey: range.key,
                });
                self.list.push(&request, pieces);
            }
        }
    }

    /// Takes no more WQEs: the provider has refused one. What it has taken before completes in error.
    fn fail(&mut self, what: &str, refusal: PlainRefusal) {
        let qpn = self.qp.qpn();
        let error = std::io::Error::from_raw_os_error(refusal.errno);
        tracing::error!("QP {qpn:#x}: {what} is refused: {error}");
        self.has_failed = true;
        if let Err(error) = self.qp.to_error() {
            tracing::error!("QP {qpn:#x}: {error}");
        }
    }

    /// Posts `count` receive WQEs.
    fn post_receives(&mut self, count: u32) {
        let first = self.receives_posted;
        let ids = (first..first + u64::from(count)).map(|index| Name::of_receive(index).id());
        match self.qp.post_receives(ids) {
            Ok(()) => self.receives_posted += u64::from(count),
            Err(refusal) => {
                self.receives_posted += refusal.taken as u64;
                self.has_ended = true;
                self.fail("a receive WQE", refusal);
            }
        }
    }

    /// Posts a WRITE of no bytes, whose completion nobody awaits. It makes the NIC look at the queues of a QP in error.
    fn mark(&mut self) {
        self.is_marked = true;
        self.list.clear();
        let mark = PlainRequest {
            id: Name::Mark.id(),
            verb: PlainVerb::Write,
            remote: 0,
            rkey: 0,
            is_signalled: true,
        };
        self.list.push(&mark, std::iter::empty());
        if let Err(refusal) = self.qp.post(&mut self.list) {
            let error = std::io::Error::from_raw_os_error(refusal.errno);
            tracing::debug!("QP {:#x} takes no mark: {error}", self.qp.qpn());
        }
    }
}

impl Lane for VerbsLane {
    fn number(&self) -> u32 {
        self.qp.qpn()
    }

    fn room(&self, _ranges: u32) -> u32 {
        u32::try_from(self.free()).unwrap_or(u32::MAX)
    }

    fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted {
        if self.has_failed {
            let stop = Some(Stop::Failed);
            return Posted { count: 0, stop };
        }
        let asked = chain.range(which.clone()).count();
        let count = asked.min(self.free());
        self.list.clear();
        let works = chain.range(which.start..which.start + count);
        for (index, (work, ranges)) in (self.posted..).zip(works) {
            let is_last = index + 1 == self.posted + count as u64;
            self.list(work, ranges, index, is_last);
            let place = self.place(index);
            self.in_flight[place] = work.tag;
        }
        if let Err(refusal) = self.qp.post(&mut self.list) {
            self.posted += refusal.taken as u64;
            self.fail("a WQE", refusal);
            return Posted {
                count: refusal.taken,
                stop: Some(Stop::Failed),
            };
        }
        self.posted += count as u64;
        let stop = (count < asked).then_some(Stop::Full);
        Posted { count, stop }
    }

    fn ring(&mut self) {}

    fn open(&mut self) {
        self.post_receives(self.receives);
    }

    fn receive(&mut self, completion: &Completion) {
        let due = low(self.receives_retired);
        if self.receives() == 0 || completion.index != due {
            let (qpn, index) = (self.qp.qpn(), completion.index);
            tracing::error!("QP {qpn:#x}: a completion of receive WQE {index} of {due}");
            return;
        }
        self.receives_retired += 1;
        self.has_ended |= completion.cause.is_some();
        if !self.has_failed && !self.has_ended {
            self.post_receives(1);
        }
    }

    fn receives(&self) -> u32 {
        u32::try_from(self.receives_posted - self.receives_retired).unwrap_or(u32::MAX)
    }

    fn flush(&mut self, slot: Option<u32>) -> bool {
        if slot.is_none() {
            self.has_ended = true;
            // Receive WQEs may have been posted after the error. A NIC may look at them only when it looks at the QP.
            if self.receives() > 0 && !self.is_marked {
                self.mark();
            }
        }
        false
    }

    fn retire(&mut self, completion: &Completion, mut each: impl FnMut(Tag, Option<Cause>)) {
        // The distance from the first WQE that is not accounted for to the one that has completed.
        let ahead = u64::from(completion.index.wrapping_sub(low(self.retired)));
        let target = self.retired + ahead;
        if target >= self.posted {
            // The completion names no WQE that is under way. The device is faulty, and the lane ignores it.
            let (qpn, posted) = (self.qp.qpn(), self.posted);
            tracing::error!("QP {qpn:#x}: a completion of WQE {target} of {posted}");
            return;
        }
        while self.retired <= target {
            let tag = self.in_flight[self.place(self.retired)];
            let cause = match completion.cause {
                Some(cause) if self.retired == target => Some(cause),
                // WQEs posted before the first that failed are done. After the failure no WQE is done.
                _ if self.is_broken => Some(Cause::FLUSHED),
                _ => None,
            };
            self.retired += 1;
            each(tag, cause);
        }
        let has_failed = completion.cause.is_some();
        self.has_failed |= has_failed;
        self.is_broken |= has_failed;
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.posted - self.retired).unwrap_or(u32::MAX)
    }

    fn holds(&self, slot: u32) -> bool {
        let mut all = self.retired..self.posted;
        all.any(|index| self.in_flight[self.place(index)].slot == slot)
    }
}

impl std::fmt::Debug for VerbsLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VerbsLane")
            .field("qp", &self.qp)
            .field("posted", &self.posted)
            .field("retired", &self.retired)
            .finish_non_exhaustive()
    }
}
