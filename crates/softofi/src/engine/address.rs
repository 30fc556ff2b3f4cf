//! Addresses of endpoints: 32 bytes, in the form of EFA's.

use std::process;

use rustix::net::SocketAddrUnix;

/// Length of an address.
pub(crate) const ADDRESS_BYTES: usize = 32;

/// What addresses of this provider begin with: a link-local GID.
const START: [u8; 8] = [0xfe, 0x80, 0, 0, b's', b'o', b'f', b'i'];

/// EFA's `efa_ep_addr`: GID, QP number, two bytes of zero, key of the QP, eight bytes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address([u8; ADDRESS_BYTES]);

impl Address {
    /// A new one. It is never the same twice: process, number, and 64 random bits that no seed gives.
    pub(crate) fn new(ordinal: u32) -> Self {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..8].copy_from_slice(&START);
        bytes[8..12].copy_from_slice(&process::id().to_be_bytes());
        bytes[12..16].copy_from_slice(&fastrand::u32(..).to_be_bytes());
        bytes[16..18].copy_from_slice(&ordinal.to_le_bytes()[..2]);
        bytes[20..24].copy_from_slice(&fastrand::u32(..).to_le_bytes());
        Self(bytes)
    }

    /// Reads one.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let bytes: [u8; ADDRESS_BYTES] = bytes.try_into().ok()?;
        bytes.starts_with(&START).then_some(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8; ADDRESS_BYTES] {
        &self.0
    }

    /// The name of the endpoint's socket, among those without files.
    pub(crate) fn socket(&self) -> rustix::io::Result<SocketAddrUnix> {
        let digits = self.0.iter().map(|byte| format!("{byte:02x}"));
        let name = format!("softofi-{}", digits.collect::<String>());
        SocketAddrUnix::new_abstract_name(name.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_made_and_nothing_else_is() {
        let address = Address::new(7);
        assert_eq!(Address::of(address.bytes()), Some(address));
        assert_ne!(Address::new(7), address);
        assert!(address.socket().is_ok());
        for bad in [&address.bytes()[..31], &[0; 32], &[0; 257], &[]] {
            assert_eq!(Address::of(bad), None);
        }
    }
}
