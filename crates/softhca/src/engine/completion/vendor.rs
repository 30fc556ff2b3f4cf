//! Vendor syndromes of this device. Hardware has other values.

/// Syndrome of a send WQE that has itself failed.
pub(super) const FAILED: u8 = 0x77;
/// Syndrome of a WQE that was flushed.
pub(super) const FLUSHED: u8 = 0xf9;
/// Syndrome of a receive WQE that has itself failed.
pub(super) const RECEIVE: u8 = 0x88;
