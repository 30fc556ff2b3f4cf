//! Errors of frames that could not be sent or received.

use std::io;
use std::time::Duration;

use rendezvous::printable;

use crate::engine::error::{Distrust, HostError};
use crate::engine::wire::form::{CLEAR, MOST_BYTES, SEALED, VERSION};
use crate::engine::wire::notices::NoticeError;

/// Why a frame could not be sent or received.
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum WireError {
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("the connection was closed")]
    Closed,
    #[error("{0}")]
    Io(io::Error),
    #[error(
        "a frame that begins with {0:02x?}; it must be \"WVEN\"; does an engine listen at this address?"
    )]
    Magic([u8; 4]),
    #[error("a frame of version {0}: this engine speaks {VERSION}")]
    Version(u16),
    #[error("a frame of kind {0}; it must be {CLEAR} to {SEALED}")]
    Kind(u16),
    #[error("a message of {0} bytes; it must be 1 to {MOST_BYTES}")]
    Length(u32),
    #[error("a message of {bytes} bytes in a handshake; it must be at most {most}")]
    Early { bytes: usize, most: u32 },
    #[error("a message that cannot be read: {}", printable(&.0.to_string()))]
    Message(serde_json::Error),
    #[error(transparent)]
    Notice(#[from] NoticeError),
    #[error(transparent)]
    Distrust(#[from] Distrust),
    #[error("Noise: {0}")]
    Noise(#[from] snow::Error),
}

/// Returns the error that keeps the engine at `place` from being a peer.
pub(in crate::engine) fn failed(place: &str, error: &WireError) -> HostError {
    let peer = place.to_owned();
    match error {
        WireError::Distrust(distrust) => HostError::Distrusted {
            peer,
            distrust: *distrust,
        },
        error => HostError::Connection {
            peer,
            reason: error.to_string(),
        },
    }
}
