//! The CQs in which the QPs of one worker complete. A CQ takes sends and receives of some QPs, each with a share of the entries.
//!
//! A stock has its first CQ from the start. When every CQ is full, the next QP adds one that is as large as all before it, as far as the
//! device has so large ones. So a worker looks at few CQs. CQs stay until the rail goes, and later QPs take the shares of QPs that have
//! gone. All CQs have one channel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::provider::ProviderError;
use crate::verbs::{Channel, PlainContext, PlainCq, PlainPd, PlainQp, PlainQpShape, VerbsError};

/// What the QPs of one worker complete in.
#[derive(Debug)]
pub(super) struct Stock {
    channel: Arc<Channel>,
    cqs: Mutex<Vec<Arc<PlainCq>>>,
    /// The number of CQs, by which a reaper learns that there are more.
    count: AtomicUsize,
    /// The entries of the first CQ, and the most of one.
    first: u32,
    most: u32,
}

impl Stock {
    /// Makes a stock whose first CQ has room for `qps` QPs of this shape.
    pub(super) fn new(
        context: &Arc<PlainContext>,
        qps: u32,
        shape: &PlainQpShape,
    ) -> Result<Self, ProviderError> {
        let (most, each) = (context.limits().entries, shape.entries());
        if each > most {
            let limit = format!("at most {most}, the most of {}", context.name());
            let what = "entries of a CQ for one QP";
            return Err(VerbsError::argument(what, each, limit).into());
        }
        let channel = Channel::new(context)?;
        let first = each.saturating_mul(qps.max(1)).min(most);
        let cq = PlainCq::new(&channel, first)?;
        Ok(Self {
            channel,
            cqs: Mutex::new(vec![cq]),
            count: AtomicUsize::new(1),
            first,
            most,
        })
    }

    /// Makes a QP that completes in the first CQ that has room, or in a new one.
    pub(super) fn qp(
        &self,
        pd: &Arc<PlainPd>,
        shape: &PlainQpShape,
    ) -> Result<PlainQp, ProviderError> {
        // The lock is held until the QP has its share of the CQ, so no other thread takes that share.
        let mut cqs = self.lock();
        let found = cqs.iter().find(|cq| cq.has_room(shape.entries()));
        let cq = match found {
            Some(cq) => Arc::clone(cq),
            None => self.grow(&mut cqs)?,
        };
        Ok(PlainQp::create(pd, &cq, shape)?)
    }

    /// Adds a CQ as large as all before it together.
    fn grow(&self, cqs: &mut Vec<Arc<PlainCq>>) -> Result<Arc<PlainCq>, ProviderError> {
        let doublings = u32::try_from(cqs.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let entries = self.first.saturating_mul(factor).min(self.most);
        let cq = PlainCq::new(&self.channel, entries)?;
        cqs.push(Arc::clone(&cq));
        self.count.store(cqs.len(), Ordering::Release);
        Ok(cq)
    }

    /// Returns the channel of all CQs.
    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Returns the number of CQs.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Returns the CQs from number `seen` on.
    pub(super) fn cqs(&self, seen: usize) -> Vec<Arc<PlainCq>> {
        self.lock().iter().skip(seen).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<PlainCq>>> {
        // Each change under the lock is complete, so a poisoned lock does no harm.
        self.cqs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
