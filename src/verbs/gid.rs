//! GIDs: the addresses of a port.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// A GID: 16 bytes in network order. For RoCEv2 it is an IP address, with IPv4 as `::ffff:a.b.c.d`. For InfiniBand it is the prefix of the
/// subnet and the GUID of the port.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// Returns the address as IPv4, if it is one.
    #[must_use]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Returns whether the address is valid on its link only.
    #[must_use]
    pub fn is_link_local(&self) -> bool {
        match self.ipv4() {
            Some(address) => address.is_link_local(),
            None => Ipv6Addr::from(self.0).is_unicast_link_local(),
        }
    }

    /// Returns the upper half: on InfiniBand the prefix of the subnet.
    #[must_use]
    pub fn subnet_prefix(&self) -> u64 {
        let [prefix, _] = bytemuck::cast::<_, [[u8; 8]; 2]>(self.0);
        u64::from_be_bytes(prefix)
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
