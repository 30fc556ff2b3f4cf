//! Copies that a device makes itself, between addresses that it can reach.

/// One range to copy. The device can reach both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyPiece {
    /// Address of the first byte to write.
    pub to: u64,
    /// Address of the first byte to read.
    pub from: u64,
    /// Number of bytes.
    pub bytes: u64,
}
