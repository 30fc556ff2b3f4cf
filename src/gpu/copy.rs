//! Copies that a device makes itself, between addresses that it reaches.

/// A range that is copied. The device reaches both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPiece {
    /// First byte that is written.
    pub to: u64,
    /// First byte that is read.
    pub from: u64,
    /// Number of bytes.
    pub bytes: u64,
}
