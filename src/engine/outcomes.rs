//! What an engine tells: what became of transfers, what they wait for, notices, counters, and peers that are gone.

use std::time::Duration;

use crate::engine::error::EngineError;
use crate::engine::host::Engine;
use crate::engine::ids::TransferId;
use crate::engine::ledger::report::Report;
use crate::engine::ledger::slots::Status;
use crate::engine::lives::known::PeerGone;
use crate::engine::route::counter::{Counter, check_counter};
use crate::engine::route::flow::{Stalled, WaitsFor};
use crate::engine::transfers::concluded::Concluded;
use crate::engine::wire::notices::Notice;

impl Engine {
    /// What became of a transfer. Any number of polls say the same, until it is released.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn poll(&self, id: TransferId) -> Result<Status, EngineError> {
        self.inner.core.transfers.poll(id)
    }

    /// The same of many, in their order.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn poll_many(&self, ids: &[TransferId], into: &mut Vec<Status>) -> Result<(), EngineError> {
        into.clear();
        for id in ids {
            into.push(self.poll(*id)?);
        }
        Ok(())
    }

    /// Waits until the transfer is concluded, or the time is over; what became of it. Of one that is pending still,
    /// [`Engine::stalled`] tells whether it is slow or dead.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn wait(&self, id: TransferId, most: Duration) -> Result<Status, EngineError> {
        self.inner.core.transfers.wait_any(&[id], most)?;
        self.poll(id)
    }

    /// Waits until one of `ids` is concluded or unknown: its place among them. None: the time is over.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn wait_any(
        &self,
        ids: &[TransferId],
        most: Duration,
    ) -> Result<Option<usize>, EngineError> {
        self.inner.core.transfers.wait_any(ids, most)
    }

    /// Hands nothing more out of the transfer. It is concluded when the HCA has nothing more of it: wait for that. What it has for
    /// longer than `grace` is flushed, and the QPs are reset at both ends.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`], [`EngineError::Released`].
    pub fn cancel(&self, id: TransferId) -> Result<(), EngineError> {
        self.inner.core.transfers.cancel(id)
    }

    /// What became of a concluded transfer, operation by operation.
    ///
    /// # Errors
    /// [`EngineError::Pending`], [`EngineError::Released`], [`EngineError::ForeignId`].
    pub fn report(&self, id: TransferId) -> Result<Report, EngineError> {
        let mut report = self.inner.core.transfers.report(id)?;
        let rail = report.first.and_then(|first| first.rail);
        report.device = rail.and_then(|rail| self.inner.core.rails.name(rail as usize));
        Ok(report)
    }

    /// Gives the slot of a concluded transfer back: its id is unknown from then on.
    ///
    /// # Errors
    /// [`EngineError::Pending`], [`EngineError::ForeignId`].
    pub fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.inner.core.transfers.release(id)
    }

    /// Transfers that were submitted and not released.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.inner.core.transfers.in_use()
    }

    /// What becomes of the transfer, as a future: for any executor. It is ready when the transfer is concluded or unknown.
    pub fn concluded(&self, id: TransferId) -> Concluded {
        Concluded::new(&self.inner.core.transfers, id)
    }

    /// Tells a transfer that is slow from one that is dead, where a wait for it was in vain: the rails by which slices of its connection
    /// are in flight, and for how long nothing has completed there. None: no rail has any, as while QPs are connected anew, or
    /// the transfer is concluded. [`Engine::waits_for`] tells these apart.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`], [`EngineError::Released`].
    pub fn stalled(&self, id: TransferId) -> Result<Vec<Stalled>, EngineError> {
        if !self.is_pending(id)? {
            return Ok(Vec::new());
        }
        let mut all = self.inner.core.transfers.stalled(id);
        for found in &mut all {
            let rail = found.rail.map(|rail| rail as usize);
            found.device = rail.and_then(|rail| self.inner.core.rails.name(rail));
        }
        Ok(all)
    }

    /// What a transfer waits for at this moment. None: it is concluded.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`], [`EngineError::Released`].
    pub fn waits_for(&self, id: TransferId) -> Result<Option<WaitsFor>, EngineError> {
        match self.is_pending(id)? {
            true => Ok(self.inner.core.transfers.waits_for(id)),
            false => Ok(None),
        }
    }

    fn is_pending(&self, id: TransferId) -> Result<bool, EngineError> {
        match self.poll(id)? {
            Status::Pending => Ok(true),
            Status::Concluded(_) => Ok(false),
            Status::Unknown => Err(EngineError::Released { id }),
        }
    }

    /// Counter number `id`, which exists from the start of the engine and begins at 0.
    ///
    /// A peer whose program starts anew counts on where its former life has ended. After [`Engine::peer_gone`] nothing of that life is
    /// counted any more: then a program may set the counter to 0.
    ///
    /// # Errors
    /// [`EngineError::Counter`]: [`MOST_COUNTERS`](super::MOST_COUNTERS) or more.
    pub fn counter(&self, id: u32) -> Result<Counter, EngineError> {
        check_counter(id)?;
        Ok(Counter::new(&self.inner.core.counters, id))
    }

    /// The next notice, of any peer; those of one peer in the order in which it has sent them, each once. None: the time is over.
    #[must_use]
    pub fn notice(&self, most: Duration) -> Option<Notice> {
        self.inner.core.known.notice(most)
    }

    /// The next peer that is gone. Each life of a peer is reported once, when its last connection has ended, unless this side ended
    /// it. By then all transfers to it are concluded, and this side's QPs to it are reset. None: the time is over.
    #[must_use]
    pub fn peer_gone(&self, most: Duration) -> Option<PeerGone> {
        self.inner.core.known.gone(most)
    }
}
