//! The name of a socket, as the kernel writes and reads it: an address of IPv4 or IPv6 with its port.

use crate::envelope::{Envelope, Source};
use crate::subnet::Ipv6Subnet;
use crate::wire::icrc::ROCE_PORT;
use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// A `sockaddr_in6`, whose first 16 bytes are a `sockaddr_in` if the family says so. In both the port stands after the family,
/// and the IPv4 address is where IPv6 has the flow label.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct SocketName {
    family: libc::sa_family_t,
    /// Port in network order. The fields after it have network order, too.
    port: [u8; 2],
    ipv4_or_flow: [u8; 4],
    ipv6: [u8; 16],
    scope: u32,
}

const AF_INET: libc::sa_family_t = 2;
const AF_INET6: libc::sa_family_t = 10;
const IPV4_BYTES: u32 = 16;
const _: () = {
    assert!(AF_INET as i32 == libc::AF_INET && AF_INET6 as i32 == libc::AF_INET6);
    assert!(IPV4_BYTES as usize == size_of::<libc::sockaddr_in>());
    assert!(SocketName::ROOM as usize == size_of::<SocketName>());
    assert!(size_of::<SocketName>() == size_of::<libc::sockaddr_in6>());
    assert!(align_of::<SocketName>() == align_of::<libc::sockaddr_in6>());
};

impl SocketName {
    /// Length of a buffer for a name of either family.
    pub(super) const ROOM: u32 = 28;

    /// Returns the name for the RoCE port of an address.
    pub(super) fn of(address: IpAddr) -> Self {
        let port = ROCE_PORT.to_be_bytes();
        match address {
            IpAddr::V4(ip) => Self {
                family: AF_INET,
                port,
                ipv4_or_flow: ip.octets(),
                ..Self::default()
            },
            IpAddr::V6(ip) => Self {
                family: AF_INET6,
                port,
                ipv6: ip.octets(),
                ..Self::default()
            },
        }
    }

    /// Returns the number of bytes of the name that the kernel takes.
    pub(super) fn length(&self) -> u32 {
        match self.family {
            AF_INET => IPV4_BYTES,
            _ => Self::ROOM,
        }
    }

    /// Returns the sender with this socket name, as an HCA with an address of `subnet` or with an IPv4 address sees it. `None` if no HCA
    /// has such a name.
    pub(super) fn source(&self, subnet: Option<Ipv6Subnet>) -> Option<Source> {
        let port = u16::from_be_bytes(self.port);
        let Some(subnet) = subnet else {
            let ip = Ipv4Addr::from(self.ipv4_or_flow);
            return Some(SocketAddrV4::new(ip, port).into());
        };
        let (ip, of) = Ipv6Subnet::of(Ipv6Addr::from(self.ipv6))?;
        (of == subnet).then(|| Source {
            envelope: Envelope::within(subnet),
            ..SocketAddrV4::new(ip, port).into()
        })
    }
}
