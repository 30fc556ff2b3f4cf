//! The calls by which an engine reports: outcomes of transfers, what they wait for, notices, counters, and peers that are gone.

use std::time::Duration;

use crate::engine::error::EngineError;
use crate::engine::host::Engine;
use crate::engine::ids::TransferId;
use crate::engine::ledger::report::Report;
use crate::engine::ledger::slots::Status;
use crate::engine::lives::life::PeerGone;
use crate::engine::route::counter::{Counter, check_counter};
use crate::engine::route::flow::{Stalled, WaitsFor};
use crate::engine::transfers::concluded::Concluded;
use crate::engine::wire::notices::Notice;

impl Engine {
    /// Returns what became of a transfer. Once it is concluded, every poll returns the same until it is released.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn poll(&self, id: TransferId) -> Result<Status, EngineError> {
        self.inner.core.transfers.poll(id)
    }

    /// Writes what became of each transfer into `into`, in the order of `ids`.
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

    /// Waits until the transfer is concluded, or the time is over, and returns what became of it. If it is still pending,
    /// [`Engine::stalled`] tells whether it is slow or dead.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`].
    pub fn wait(&self, id: TransferId, most: Duration) -> Result<Status, EngineError> {
        self.inner.core.transfers.wait_any(&[id], most)?;
        self.poll(id)
    }

    /// Waits until one of `ids` is concluded or unknown, and returns its place among them. None: the time is over.
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

    /// Cancels a transfer: workers post no more of it. It is concluded when the HCA has nothing more of it, so the program still
    /// waits for that. If the HCA has slices of it for longer than `grace`, workers flush their QPs, and both ends reset these.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`], [`EngineError::Released`].
    pub fn cancel(&self, id: TransferId) -> Result<(), EngineError> {
        self.inner.core.transfers.cancel(id)
    }

    /// Returns what became of a concluded transfer, operation by operation.
    ///
    /// # Errors
    /// [`EngineError::Pending`], [`EngineError::Released`], [`EngineError::ForeignId`].
    pub fn report(&self, id: TransferId) -> Result<Report, EngineError> {
        let mut report = self.inner.core.transfers.report(id)?;
        let rail = report.first.and_then(|first| first.rail);
        report.device = rail.and_then(|rail| self.inner.core.rails.name(rail as usize));
        Ok(report)
    }

    /// Gives the slot of a concluded transfer back. The id of the transfer is unknown from then on.
    ///
    /// # Errors
    /// [`EngineError::Pending`], [`EngineError::ForeignId`].
    pub fn release(&self, id: TransferId) -> Result<(), EngineError> {
        self.inner.core.transfers.release(id)
    }

    /// Returns how many transfers were submitted and not released.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.inner.core.transfers.in_use()
    }

    /// Returns what becomes of the transfer as a future, for any executor. The future is ready when the transfer is concluded or unknown.
    pub fn concluded(&self, id: TransferId) -> Concluded {
        Concluded::new(&self.inner.core.transfers, id)
    }

    /// Returns the rails by which slices of the connection of a transfer are in flight, and for how long none has completed
    /// there. So a program tells a slow transfer from a dead one. The list is empty if no rail has slices in flight, as while QPs
    /// are connected anew, or if the transfer is concluded. [`Engine::waits_for`] tells these apart.
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

    /// Returns what a transfer waits for at this moment. None: it is concluded.
    ///
    /// # Errors
    /// [`EngineError::ForeignId`], [`EngineError::Released`].
    pub fn waits_for(&self, id: TransferId) -> Result<Option<WaitsFor>, EngineError> {
        if self.is_pending(id)? {
            Ok(self.inner.core.transfers.waits_for(id))
        } else {
            Ok(None)
        }
    }

    fn is_pending(&self, id: TransferId) -> Result<bool, EngineError> {
        match self.poll(id)? {
            Status::Pending => Ok(true),
            Status::Concluded(_) => Ok(false),
            Status::Unknown => Err(EngineError::Released { id }),
        }
    }

    /// Returns counter number `id`. All counters exist from the start of the engine and begin at 0.
    ///
    /// A peer whose program starts anew counts on where its former life has ended. After [`Engine::peer_gone`] no WRITE of that
    /// life is counted any more. Then a program may set the counter to 0.
    ///
    /// # Errors
    /// [`EngineError::Counter`]: `id` is [`MOST_COUNTERS`](super::MOST_COUNTERS) or more.
    pub fn counter(&self, id: u32) -> Result<Counter, EngineError> {
        check_counter(id)?;
        Ok(Counter::new(&self.inner.core.counters, id))
    }

    /// Returns the next notice, of any peer. The notices of one peer come in the order in which it has sent them, each once.
    /// None: the time is over.
    #[must_use]
    pub fn notice(&self, most: Duration) -> Option<Notice> {
        self.inner.core.known.notice(most)
    }

    /// Returns the next peer that is gone. Each life of a peer is reported once, when its last connection has ended, unless this
    /// side ended it. By then all transfers to it are concluded, and this side's QPs to it are reset. None: the time is over.
    #[must_use]
    pub fn peer_gone(&self, most: Duration) -> Option<PeerGone> {
        self.inner.core.known.gone(most)
    }
}
