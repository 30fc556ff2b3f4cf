//! The record that the checker keeps of an operation that changes remote bytes.

use std::net::Ipv4Addr;

/// An operation under way that changes remote bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flight {
    pub(crate) qpn: u32,
    pub(crate) index: u16,
    pub(crate) peer: Ipv4Addr,
    pub(crate) start: u64,
    /// The address of the last byte. So a range may end with the address space.
    pub(crate) last: u64,
}
