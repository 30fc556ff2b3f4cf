//! Which carrier an HCA has.

use super::memory::Network;

/// What carries the packets of an HCA.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum CarrierConfig {
    /// A UDP socket bound to the HCA's address and port 4791.
    #[default]
    Udp,
    /// A network in memory, on which the HCA needs an address of its own.
    Memory(Network),
}
