//! Records: the encrypted parts of a connection whose ends have shaken hands (`shake`).

use serde::{Deserialize, Serialize};
use snow::{HandshakeState, TransportState};

use crate::engine::error::Distrust;
use crate::engine::wire::error::WireError;
use crate::engine::wire::form::{HEAD, MOST_NOISE, SEALED};
use crate::engine::wire::frames::{head, put};

/// The bytes of the tag of a record.
pub(in crate::engine) const TAG: usize = 16;
/// The most bytes that a record carries.
pub(in crate::engine) const MOST_PLAIN: usize = MOST_NOISE as usize - TAG;

/// The role of an end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::engine) enum Role {
    Connects,
    Accepts,
}

impl Role {
    pub(in crate::engine) const fn other(self) -> Self {
        match self {
            Self::Connects => Self::Accepts,
            Self::Accepts => Self::Connects,
        }
    }
}

/// Both directions of a connection, encrypted.
#[derive(Debug)]
pub(in crate::engine) struct Seal {
    state: TransportState,
    /// A record of which only a part has come.
    come: Vec<u8>,
}

impl Seal {
    pub(in crate::engine) fn new(state: HandshakeState) -> Result<Self, WireError> {
        Ok(Self {
            state: state.into_transport_mode()?,
            come: Vec::new(),
        })
    }

    /// Takes the next record of `other` as if no record had come before it.
    #[cfg(test)]
    pub(super) fn forget_attempts_of(&mut self, other: &Self) {
        self.state.set_receiving_nonce(other.state.sending_nonce());
        self.come.clear();
    }

    /// Returns whether a part of a record has come.
    pub(in crate::engine) fn is_begun(&self) -> bool {
        !self.come.is_empty()
    }

    /// Adds records that carry `plain` to `into`.
    pub(in crate::engine) fn seal(
        &mut self,
        plain: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let mut record = vec![0; plain.len().min(MOST_PLAIN) + TAG];
        for part in plain.chunks(MOST_PLAIN) {
            let length = self.state.write_message(part, &mut record)?;
            put(SEALED, &record[..length], into)?;
        }
        Ok(())
    }

    /// Takes more bytes of the connection, and adds the contents of whole records to `into`. After an error it takes no more bytes.
    pub(in crate::engine) fn open(
        &mut self,
        bytes: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        self.come.extend(bytes);
        let mut at = 0;
        while let Some((kind, end)) = head(&self.come[at..])? {
            if kind != SEALED {
                return Err(Distrust::Clear.into());
            }
            let Some(record) = self.come[at..].get(HEAD..end) else {
                break;
            };
            open(&mut self.state, record, into)?;
            at += end;
        }
        self.come.drain(..at);
        Ok(())
    }
}

/// Adds the contents of a record to `into`.
fn open(state: &mut TransportState, record: &[u8], into: &mut Vec<u8>) -> Result<(), WireError> {
    let before = into.len();
    into.resize(before + record.len().saturating_sub(TAG), 0);
    if state.read_message(record, &mut into[before..]).is_err() {
        into.truncate(before);
        return Err(Distrust::Wrong.into());
    }
    Ok(())
}
