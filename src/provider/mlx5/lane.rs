//! One QP as a queue: posts, rings, and accounts for every WQE.
//!
//! The last WQE of each post is signalled, so each WQE has a signalled one at or after it. A CQE accounts for all WQEs up to its own: an RC
//! QP completes in order. Once the QP is in error each WQE has an error CQE of its own, signalled or not. The WQEs before the first such
//! CQE were done.
//!
//! A WRITE of few bytes carries them in its WQE, as they are when it is posted. The HCA reads no memory for it.
//!
//! The QP also has receive WQEs, which WRITEs of the peer with an immediate consume. They take no bytes, and each is posted again when it
//! completes. If a WRITE finds no receive WQE, the peer's HCA sends it again (receiver not ready).

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mlx5_prm::wqe::WQEBB_BYTES;

use super::wqe::{MOST_INLINE, MOST_RANGES, Payload, Wqe, blocks};
use crate::provider::carried::{carried, gather};
use crate::provider::{Cause, Chain, Completion, Lane, LocalRange, Posted, Stop, Tag, Work};
use crate::verbs::{PostedCounts, Qp, Rts};

/// The number of words of a WQEBB.
const WORDS: usize = WQEBB_BYTES / 8;

/// A WQE that is not accounted for. It is stored at the index of its first WQEBB.
#[derive(Clone, Copy, Debug, Default)]
struct InFlight {
    tag: Tag,
    blocks: u8,
}

/// A QP that one thread posts to.
#[derive(Debug)]
pub struct Mlx5Lane {
    qp: Arc<Qp<Rts>>,
    qpn: u32,
    in_flight: Box<[InFlight]>,
    /// The most bytes that a WQE carries inline.
    inline: u64,
    /// The numbers of WQEBBs posted, rung for and accounted for in this life of the QP.
    posted: u64,
    rung: u64,
    retired: u64,
    /// The number of WQEs not accounted for.
    count: u32,
    has_failed: bool,
    /// The numbers of receive WQEs posted and accounted for.
    receives_posted: u64,
    receives_retired: u64,
    /// A receive WQE has failed: the QP is in error. The CQEs of the sends say what became of those.
    is_flushed: bool,
}

impl Mlx5Lane {
    pub(super) fn new(qp: Arc<Qp<Rts>>) -> Self {
        let depth = qp.layout().depth as usize;
        Self {
            qpn: qp.qpn(),
            qp,
            in_flight: vec![InFlight::default(); depth].into(),
            inline: 0,
            posted: 0,
            rung: 0,
            retired: 0,
            count: 0,
            has_failed: false,
            receives_posted: 0,
            receives_retired: 0,
            is_flushed: false,
        }
    }

    /// Returns the lane with inline WRITEs: a WQE carries at most `most` bytes, and at most what one WQEBB takes.
    #[must_use]
    pub fn with_inline(mut self, most: u32) -> Self {
        self.inline = u64::from(most).min(MOST_INLINE as u64);
        self
    }

    /// Returns the WQE to post next. It carries so many bytes, or names its ranges.
    fn wqe(
        &self,
        work: &Work,
        ranges: &[LocalRange],
        carries: Option<usize>,
        is_signalled: bool,
    ) -> Wqe {
        let (qpn, index) = (self.qpn, low(self.posted));
        let Some(bytes) = carries else {
            return Wqe::new(work, Payload::Ranges(ranges), qpn, index, is_signalled);
        };
        let mut content = [0; MOST_INLINE];
        gather(ranges, &mut content);
        let payload = Payload::Inline(&content[..bytes]);
        Wqe::new(work, payload, qpn, index, is_signalled)
    }

    /// Returns the counters that the HCA reads: up to which WQEBB it may send, and how many receive WQEs were posted.
    fn told(&self) -> PostedCounts {
        PostedCounts {
            sent: low(self.rung),
            received: low(self.receives_posted),
        }
    }

    fn free_blocks(&self) -> usize {
        self.in_flight.len() - usize::try_from(self.posted - self.retired).unwrap_or(usize::MAX)
    }

    fn place(&self, index: u64) -> usize {
        let mask = self.in_flight.len() as u64 - 1;
        usize::try_from(index & mask).unwrap_or_default()
    }

    /// Writes the WQE into the ring. It may wrap at the ring's end.
    fn write(&self, wqe: &Wqe) {
        let ring = self.qp.send_queue();
        for (block, bytes) in (self.posted..).zip(wqe.bytes().chunks_exact(WQEBB_BYTES)) {
            let first = self.place(block) * WORDS;
            for (word, value) in ring[first..first + WORDS].iter().zip(bytes.chunks_exact(8)) {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(value);
                // The HCA sees the word after the doorbell.
                word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
            }
        }
    }
}

impl Lane for Mlx5Lane {
    fn number(&self) -> u32 {
        self.qpn
    }

    fn room(&self, ranges: u32) -> u32 {
        let each = blocks((ranges as usize).min(MOST_RANGES));
        u32::try_from(self.free_blocks() / each).unwrap_or(u32::MAX)
    }

    fn post(&mut self, chain: &Chain, which: Range<usize>) -> Posted {
        let mut count = 0;
        let inline = self.inline;
        let works = chain.range(which);
        let mut works = works
            .map(|(work, ranges)| (work, ranges, carried(inline, work, ranges)))
            .peekable();
        while let Some((work, ranges, carries)) = works.next() {
            if self.has_failed {
                let stop = Some(Stop::Failed);
                return Posted { count, stop };
            }
            let size = blocks_of(carries, ranges);
            let left = self.free_blocks() - size.min(self.free_blocks());
            if size > self.free_blocks() {
                let stop = Some(Stop::Full);
                return Posted { count, stop };
            }
            // The last WQE of this post: none follows, or the next one does not fit.
            let is_last = works
                .peek()
                .is_none_or(|(_, ranges, carries)| blocks_of(*carries, ranges) > left);
            let wqe = self.wqe(work, ranges, carries, is_last);
            self.write(&wqe);
            let place = self.place(self.posted);
            self.in_flight[place] = InFlight {
                tag: work.tag,
                blocks: u8::try_from(size).unwrap_or(u8::MAX),
            };
            self.posted += size as u64;
            self.count += 1;
            count += 1;
        }
        Posted { count, stop: None }
    }

    fn ring(&mut self) {
        if self.rung != self.posted {
            self.rung = self.posted;
            self.qp.ring(self.told());
        }
    }

    fn open(&mut self) {
        self.receives_posted = self.qp.recv_depth().into();
        self.qp.post_receives(self.told());
    }

    fn receive(&mut self, completion: &Completion) {
        let is_due = self.receives() > 0 && completion.index == low(self.receives_retired);
        if !is_due {
            let (qpn, due) = (self.qpn, low(self.receives_retired));
            tracing::error!(
                "QP {qpn:#x}: a CQE for receive WQE {} of {due}",
                completion.index
            );
            return;
        }
        self.receives_retired += 1;
        self.is_flushed |= completion.cause.is_some();
        if !self.has_failed && !self.is_flushed {
            self.receives_posted += 1;
            self.qp.post_receives(self.told());
        }
    }

    fn receives(&self) -> u32 {
        u32::try_from(self.receives_posted - self.receives_retired).unwrap_or(u32::MAX)
    }

    fn flush(&mut self, slot: Option<u32>) -> bool {
        // Receive WQEs may have been posted after the error, so the HCA must look at the doorbell record again.
        if slot.is_none() && self.receives() > 0 {
            self.qp.ring(self.told());
        }
        false
    }

    fn retire(&mut self, completion: &Completion, mut each: impl FnMut(Tag, Option<Cause>)) {
        // The distance in WQEBBs from the first that is not accounted for to the first of the WQE that has completed.
        let ahead = u64::from(completion.index.wrapping_sub(low(self.retired)));
        let target = self.retired + ahead;
        if target >= self.posted {
            // The CQE names no WQE that is under way. The device is faulty, and the lane ignores the CQE.
            tracing::error!(
                "QP {:#x}: a CQE for WQEBB {} of {}",
                self.qpn,
                target,
                self.posted
            );
            return;
        }
        while self.retired <= target {
            let InFlight { tag, blocks } = self.in_flight[self.place(self.retired)];
            let is_named = self.retired == target;
            let cause = match completion.cause {
                Some(cause) if is_named => Some(cause),
                // WQEs posted before the first that failed are done. After the failure no WQE is done.
                _ if self.has_failed => Some(Cause::FLUSHED),
                _ => None,
            };
            self.retired += u64::from(blocks.max(1));
            self.count -= 1;
            each(tag, cause);
        }
        self.has_failed |= completion.cause.is_some();
    }

    fn in_flight(&self) -> u32 {
        self.count
    }

    fn holds(&self, slot: u32) -> bool {
        let mut index = self.retired;
        while index < self.posted {
            let InFlight { tag, blocks } = self.in_flight[self.place(index)];
            if tag.slot == slot {
                return true;
            }
            index += u64::from(blocks.max(1));
        }
        false
    }
}

fn blocks_of(carries: Option<usize>, ranges: &[LocalRange]) -> usize {
    match carries {
        Some(_) => 1,
        None => blocks(ranges.len()),
    }
}

/// Returns the low 16 bits of an index, as a WQE and a CQE carry them.
fn low(index: u64) -> u16 {
    let [a, b, ..] = index.to_le_bytes();
    u16::from_le_bytes([a, b])
}
