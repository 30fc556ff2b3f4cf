//! A notice that goes with a transfer, or alone.

use std::sync::Arc;

use crate::engine::error::EngineError;
use crate::engine::ledger::account::Outcome;
use crate::engine::ledger::report::FirstCause;
use crate::engine::limits::MOST_NOTICE_BYTES;
use crate::engine::lives::life::EngineLife;
use crate::engine::wire::notices::Behind;

/// A notice that has its room in the peer's inbox, and is not sent yet.
#[derive(Debug)]
pub(in crate::engine) struct Attached {
    known: Arc<EngineLife>,
    bytes: Option<Box<[u8]>>,
}

impl Attached {
    /// Reserves room for `bytes` in the inbox of the life `known` of the peer `name`.
    pub(in crate::engine) fn new(
        known: &Arc<EngineLife>,
        name: &str,
        bytes: &[u8],
    ) -> Result<Self, EngineError> {
        let length = bytes.len();
        if length > MOST_NOTICE_BYTES {
            return Err(EngineError::NoticeBytes { bytes: length });
        }
        let reserved = known.outbox().reserve(length);
        reserved.map_err(|[most, used]| EngineError::InboxFull {
            peer: name.to_owned(),
            bytes: length,
            used,
            most,
        })?;
        Ok(Self {
            known: Arc::clone(known),
            bytes: Some(bytes.into()),
        })
    }

    /// Sends the notice with what became of its transfer, which is concluded.
    pub(in crate::engine) fn conclude(self, outcome: Outcome, first: Option<FirstCause>) {
        self.send(Some(Behind::of(outcome, first)));
    }

    pub(in crate::engine) fn send(mut self, transfer: Option<Behind>) {
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
