//! The header of 40 bytes that a GRH and IPv6 share. They differ only in the value of its field for the next header.

use super::error::FrameError;
use std::net::Ipv6Addr;

/// Length of the header.
pub(crate) const BYTES: usize = 40;
/// First byte of the header: version 6. Traffic class and flow label are 0.
const VERSION: u8 = 6 << 4;
const HOP_LIMIT: u8 = 64;

/// Returns the header in front of `bytes` bytes, which begin with a header of type `next`.
pub(crate) fn header(next: u8, bytes: u16, source: Ipv6Addr, destination: Ipv6Addr) -> [u8; BYTES] {
    let mut header = [0; BYTES];
    header[0] = VERSION;
    header[4..6].copy_from_slice(&bytes.to_be_bytes());
    header[6] = next;
    header[7] = HOP_LIMIT;
    header[8..24].copy_from_slice(&source.octets());
    header[24..].copy_from_slice(&destination.octets());
    header
}

/// A header that was read, and the bytes after it.
pub(super) struct Parsed<'a> {
    pub(super) next: u8,
    pub(super) source: [u8; 16],
    pub(super) destination: [u8; 16],
    /// As many bytes as the header says: a short frame is padded.
    pub(super) payload: &'a [u8],
}

pub(super) fn parse(packet: &[u8]) -> Result<Parsed<'_>, FrameError> {
    let (header, rest) = packet
        .split_first_chunk::<BYTES>()
        .ok_or(FrameError::Short)?;
    if header[0] >> 4 != VERSION >> 4 {
        return Err(FrameError::Shape);
    }
    let bytes = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let gid = |at: usize| std::array::from_fn(|byte| header[at + byte]);
    Ok(Parsed {
        next: header[6],
        source: gid(8),
        destination: gid(24),
        payload: rest.get(..bytes).ok_or(FrameError::Short)?,
    })
}
