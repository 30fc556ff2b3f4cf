//! The CQs in which the QPs of one worker complete, and the memory of these QPs. They come in pieces, each with CQs and a heap for some
//! QPs.
//!
//! A stock has its first piece from the start. When every piece is full, the next QP adds a piece that is as large as all before it. So
//! memory grows with the QPs that a worker has had, and a worker looks at few CQs. Pieces stay until the rail goes, and later QPs take the
//! places of QPs that have gone. All CQs have one event channel.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::provider::ProviderError;
use crate::provider::shape::RailShape;
use crate::verbs::{Context, ControlHeap, Pd, Qp, QpConfig, Reset, SharedCq};

/// log2 of the entries of the longest CQ that the PRM allows.
const MOST_LOG_ENTRIES: u8 = 22;

/// A CQ for sends, a CQ for receives, and the memory of the QPs that complete in them.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) cqs: [Arc<SharedCq>; 2],
    pub(super) heap: Arc<ControlHeap>,
}

/// What the QPs of one worker are made of.
#[derive(Debug)]
pub(super) struct Stock {
    context: Arc<Context>,
    shape: RailShape,
    /// The first CQ, whose event channel is that of all.
    first: Arc<SharedCq>,
    /// The pieces, at least one.
    pieces: Mutex<Vec<Piece>>,
    /// The number of pieces, by which a reaper learns that there are more.
    count: AtomicUsize,
}

impl Piece {
    fn has_room(&self, config: &QpConfig) -> bool {
        let entries = [config.depth(), config.recv_depth()];
        let mut both = self.cqs.iter().zip(entries);
        both.all(|(cq, entries)| cq.has_room(entries))
    }
}

impl Stock {
    /// Makes a stock with its first piece.
    pub(super) fn new(context: &Arc<Context>, shape: &RailShape) -> Result<Self, ProviderError> {
        let first = Piece::new(context, shape, None)?;
        Ok(Self {
            first: Arc::clone(&first.cqs[0]),
            context: Arc::clone(context),
            shape: *shape,
            pieces: Mutex::new(vec![first]),
            count: AtomicUsize::new(1),
        })
    }

    /// Makes a QP in the first piece that has room, or in a new piece.
    pub(super) fn qp(&self, pd: &Arc<Pd>, config: &QpConfig) -> Result<Qp<Reset>, ProviderError> {
        // The lock is held until the QP has its share of the piece, so no other thread takes that share.
        let mut pieces = self.lock();
        let found = pieces.iter().position(|piece| piece.has_room(config));
        let at = match found {
            Some(at) => at,
            None => self.grow(&mut pieces)?,
        };
        let Piece { cqs, heap } = &pieces[at];
        let [sends, receives] = cqs;
        Ok(Qp::create_on(pd, heap, [sends, receives], config)?)
    }

    /// Adds a piece as large as all before it together. Returns its index.
    fn grow(&self, pieces: &mut Vec<Piece>) -> Result<usize, ProviderError> {
        let most = self.context.caps().log_max_cq_sz.min(MOST_LOG_ENTRIES);
        let doublings = u8::try_from(pieces.len().saturating_sub(1)).unwrap_or(MOST_LOG_ENTRIES);
        let shape = RailShape {
            log_entries: self.shape.log_entries.saturating_add(doublings).min(most),
            ..self.shape
        };
        pieces.push(Piece::new(&self.context, &shape, Some(&*self.first))?);
        self.count.store(pieces.len(), Ordering::Release);
        Ok(pieces.len() - 1)
    }

    /// Returns the descriptor that is readable after an event of any CQ.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.first.fd()
    }

    pub(super) fn take_events(&self) -> Result<(), ProviderError> {
        Ok(self.first.take_events()?)
    }

    /// Returns the number of pieces.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the CQs of the pieces from number `seen` on.
    pub(super) fn cqs(&self, seen: usize) -> Vec<Arc<SharedCq>> {
        let pieces = self.lock();
        let new = pieces.iter().skip(seen);
        new.flat_map(|piece| piece.cqs.clone()).collect()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.lock().iter().map(|piece| piece.heap.bytes()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Piece>> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
