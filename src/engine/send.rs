//! Notices as programs send and take them.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::error::EngineError;
use crate::engine::host::Engine;
use crate::engine::ledger::account::Outcome;
use crate::engine::ledger::plan::Operation;
use crate::engine::ledger::report::FirstCause;
use crate::engine::ledger::slots::TransferId;
use crate::engine::lives::known::Known;
use crate::engine::peer::Peer;
use crate::engine::transfers::{Options, Prepared};
use crate::engine::wire::notices::{Behind, MOST_NOTICE_BYTES, Notice};

impl Engine {
    /// The next notice, of any peer; those of one peer in the order in which it has sent them, each once. None: the time is over.
    #[must_use]
    pub fn notice(&self, most: Duration) -> Option<Notice> {
        self.inner.known.notice(most)
    }
}

impl Peer {
    /// Sends a notice of up to [`MOST_NOTICE_BYTES`] bytes, behind those sent before. Never waits.
    ///
    /// Where the connection ends before it was taken, the next connection of the same lives brings it.
    ///
    /// # Errors
    /// [`EngineError::InboxFull`]: the peer's program takes none; [`EngineError::NoticeBytes`]; [`EngineError::PeerGone`];
    /// [`EngineError::Closing`]. Nothing was done in each case.
    pub fn notify(&self, bytes: &[u8]) -> Result<(), EngineError> {
        let _open = self.check_open()?;
        Attached::new(self, bytes)?.send(None);
        Ok(())
    }

    /// As [`Peer::notify`], but waits up to `most` for room.
    ///
    /// # Errors
    /// [`EngineError::InboxFull`]: no room came in time; else as [`Peer::notify`].
    pub fn notify_wait(&self, bytes: &[u8], most: Duration) -> Result<(), EngineError> {
        let waiting = self.inner.transfers.waiting();
        waiting.while_refused(most, is_full, || self.notify(bytes))
    }

    /// As [`Peer::submit`], with a notice that the peer gets behind the last byte of the transfer. If the transfer fails, the
    /// peer gets the notice too, with the outcome and the first cause.
    ///
    /// # Errors
    /// As [`Peer::submit`] and [`Peer::notify`].
    pub fn submit_notify(
        &self,
        operations: &[Operation],
        options: &Options,
        bytes: &[u8],
    ) -> Result<TransferId, EngineError> {
        self.with_notice(bytes, |attached| {
            self.submit_with(operations, options, Some(attached))
        })
    }

    /// As [`Peer::submit_notify`], but waits up to `most` for a slot and for room.
    ///
    /// # Errors
    /// As [`Peer::submit_notify`].
    pub fn submit_notify_wait(
        &self,
        operations: &[Operation],
        options: &Options,
        bytes: &[u8],
        most: Duration,
    ) -> Result<TransferId, EngineError> {
        let waiting = self.inner.transfers.waiting();
        waiting.while_refused(most, is_full, || {
            self.submit_notify(operations, options, bytes)
        })
    }

    /// As [`Peer::post`], with a notice, as [`Peer::submit_notify`].
    ///
    /// # Errors
    /// As [`Peer::post`] and [`Peer::notify`].
    pub fn post_notify(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options,
        bytes: &[u8],
    ) -> Result<TransferId, EngineError> {
        self.with_notice(bytes, |attached| {
            self.post_with(prepared, options, Some(attached))
        })
    }

    /// As [`Peer::post_notify`], but waits up to `most` for a slot and for room.
    ///
    /// # Errors
    /// As [`Peer::post_notify`].
    pub fn post_notify_wait(
        &self,
        prepared: &Arc<Prepared>,
        options: &Options,
        bytes: &[u8],
        most: Duration,
    ) -> Result<TransferId, EngineError> {
        let waiting = self.inner.transfers.waiting();
        waiting.while_refused(most, is_full, || self.post_notify(prepared, options, bytes))
    }

    fn with_notice(
        &self,
        bytes: &[u8],
        begin: impl FnOnce(Attached) -> Result<TransferId, EngineError>,
    ) -> Result<TransferId, EngineError> {
        let begun = begin(Attached::new(self, bytes)?);
        // Another thread may have been refused the room that was given back. One that waits does not wake itself.
        if begun.is_err() && self.known.outbox().has_refused() {
            self.inner.transfers.waiting().change();
        }
        begun
    }
}

/// Whether it may be attempted again with more success.
fn is_full(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::WouldBlock { .. } | EngineError::InboxFull { .. }
    )
}

/// A notice that has its room in the peer's inbox, and is not sent yet.
#[derive(Debug)]
pub(super) struct Attached {
    known: Arc<Known>,
    bytes: Option<Box<[u8]>>,
}

impl Attached {
    fn new(peer: &Peer, bytes: &[u8]) -> Result<Self, EngineError> {
        let length = bytes.len();
        if length > MOST_NOTICE_BYTES {
            return Err(EngineError::NoticeBytes { bytes: length });
        }
        let reserved = peer.known.outbox().reserve(length);
        reserved.map_err(|[most, used]| EngineError::InboxFull {
            peer: peer.hello.name.clone(),
            bytes: length,
            used,
            most,
        })?;
        Ok(Self {
            known: Arc::clone(&peer.known),
            bytes: Some(bytes.into()),
        })
    }

    /// Its transfer is concluded.
    pub(super) fn conclude(self, outcome: Outcome, first: Option<FirstCause>) {
        self.send(Some(Behind::of(outcome, first)));
    }

    fn send(mut self, transfer: Option<Behind>) {
        if let Some(bytes) = self.bytes.take() {
            self.known.send(transfer, bytes);
        }
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(bytes) = &self.bytes {
            self.known.outbox().give_back(bytes.len());
        }
    }
}
