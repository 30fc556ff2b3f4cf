//! Refusals of a message that gets no receive WQE.

use crate::transport::{NakCode, ReceiveError};

/// The receive side of the QP does not work.
pub(super) const BROKEN: ReceiveError = ReceiveError::Refused(NakCode::REMOTE_OPERATIONAL_ERROR);
/// The QP does not take such a message.
pub(super) const INVALID: ReceiveError = ReceiveError::Refused(NakCode::INVALID_REQUEST);
