//! The IP address of an HCA: its place on the wire. All its GIDs are made of this address.
//!
//! An HCA owns UDP port 4791 (RoCEv2) on its address, and it claims the address by `bind`. Without `SO_REUSEADDR` the kernel gives an
//! address to one socket only. The kernel takes the address back when the process ends, however the process ends. An HCA claims its address
//! in an IPv6 subnet in the same way.

mod routes;

use crate::link::{self, Link};
use crate::subnet::Ipv6Subnet;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use thiserror::Error;

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// The number of loopback addresses that [`claim`] tries before it gives up. The search starts at a random address, so even a machine with
/// thousands of HCAs has free addresses among so many.
const ATTEMPTS: u32 = 1000;

/// The reason why an HCA has no address.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// Another HCA, or another program, has the address.
    #[error("address {} is in use", with_port(ip))]
    InUse {
        /// The address that was asked for.
        ip: IpAddr,
    },
    /// The kernel refuses the address. In most cases this machine does not have it.
    #[error("cannot use address {}: {source}", with_port(ip))]
    Refused {
        /// The address that was tried.
        ip: IpAddr,
        /// The error of the kernel.
        source: io::Error,
    },
    /// This machine has neither the IPv6 address nor the subnet.
    #[error(
        "cannot use address {}: this machine does not have it; `ip -6 route add local {subnet} dev lo` gives it all \
         addresses of the subnet",
        with_port(&IpAddr::V6(*ip))
    )]
    NoIpv6 {
        /// The address that was tried.
        ip: Ipv6Addr,
        /// The subnet in which the HCA should have an address.
        subnet: Ipv6Subnet,
    },
    /// Every loopback address that was tried is taken.
    #[error(
        "UDP port {ROCE_PORT} is in use on all of {ATTEMPTS} loopback addresses tried: another program \
         (Soft-RoCE?) seems to hold it on every address; give the HCA an address of its own"
    )]
    NoneFree,
    /// No address was given, and the carrier cannot choose one.
    #[error("this carrier needs an IP address for the HCA")]
    Missing,
}

fn with_port(ip: &IpAddr) -> SocketAddr {
    SocketAddr::new(*ip, ROCE_PORT)
}

/// Claims `ip`, or a free loopback address, for as long as the sockets live. With it go the addresses after it that belong to the other
/// LIDs of the port. The sockets are in the order of their addresses.
///
/// `random` decides where among the 16 million loopback addresses the search begins. So processes that start together rarely try the same
/// addresses. 127.0.0.1 is left to other programs.
///
/// # Errors
///
/// If the given address, or every address that was tried, is in use or cannot be used.
pub(crate) fn claim(
    ip: Option<Ipv4Addr>,
    link: Link,
    lmc: u8,
    random: u32,
) -> Result<(Vec<UdpSocket>, Ipv4Addr), AddressError> {
    // Children of one fork have the same random numbers, but not the same process id.
    let start = random ^ std::process::id().wrapping_mul(0x9e37_79b1);
    match ip {
        Some(ip) => Ok((bind_range(ip, lmc)?, ip)),
        None => (0..ATTEMPTS)
            .find_map(|attempt| {
                let ip = loopback(link, lmc, start.wrapping_add(attempt));
                match bind_range(ip, lmc) {
                    Ok(sockets) => Some(Ok((sockets, ip))),
                    Err(AddressError::InUse { .. }) => None,
                    Err(error) => Some(Err(error)),
                }
            })
            .unwrap_or(Err(AddressError::NoneFree)),
    }
}

/// Claims the address that the HCA at `ip` has in `subnet`. Either the address is assigned to this machine, or the whole subnet belongs to
/// this machine, as 127/8 does.
///
/// # Errors
///
/// If the address is in use or is not this machine's.
pub(crate) fn claim_ipv6(ip: Ipv4Addr, subnet: Ipv6Subnet) -> Result<UdpSocket, AddressError> {
    let ip = subnet.address(ip);
    match bind(ip.into()) {
        Err(AddressError::Refused { source, .. })
            if source.kind() == io::ErrorKind::AddrNotAvailable =>
        {
            if routes::has_local(ip) {
                // A local route brings packets in, but `bind` looks for the address itself.
                bind_unassigned(ip).map_err(|source| refused(ip.into(), source))
            } else {
                Err(AddressError::NoIpv6 { ip, subnet })
            }
        }
        bound => bound,
    }
}

/// Returns the interface of the local route to `ip`. The address need not be assigned to that interface.
pub(crate) fn local_interface(ip: Ipv6Addr) -> Option<String> {
    routes::local_interface(ip)
}

fn bind_unassigned(ip: Ipv6Addr) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None)?;
    sockopt::set_ipv6_freebind(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddrV6::new(ip, ROCE_PORT, 0, 0))?;
    Ok(socket.into())
}

fn bind_range(first: Ipv4Addr, lmc: u8) -> Result<Vec<UdpSocket>, AddressError> {
    (0..1 << lmc)
        .map(|path_bits| bind(link::address_with(first, path_bits).into()))
        .collect()
}

fn bind(ip: IpAddr) -> Result<UdpSocket, AddressError> {
    UdpSocket::bind((ip, ROCE_PORT)).map_err(|source| refused(ip, source))
}

fn refused(ip: IpAddr, source: io::Error) -> AddressError {
    match source.kind() {
        io::ErrorKind::AddrInUse => AddressError::InUse { ip },
        _ => AddressError::Refused { ip, source },
    }
}

/// Returns a loopback address for any number: 127.1.0.1 to 127.254.255.254. Its second and its last octet are 1 to 254. On `InfiniBand` all
/// these addresses are in one subnet and have LIDs: 127.73.0.1 to 127.73.191.254. With an LMC the result is the first address of a range
/// between 127.73.1.0 and 127.73.191.255.
fn loopback(link: Link, lmc: u8, number: u32) -> Ipv4Addr {
    let [_, a, b, c] = number.to_be_bytes();
    match link {
        Link::Ethernet => Ipv4Addr::new(127, a % 254 + 1, b, c % 254 + 1),
        Link::InfiniBand if lmc == 0 => Ipv4Addr::new(127, 73, b % 192, c % 254 + 1),
        Link::InfiniBand => {
            // The next number gives the next range.
            let [_, _, b, c] = (number << lmc).to_be_bytes();
            Ipv4Addr::new(127, 73, b % 191 + 1, c)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_gives_an_ordinary_loopback_address() {
        for number in (0..=u32::from(u16::MAX)).map(|n| n.wrapping_mul(0x9e37_79b1)) {
            let [net, a, _, c] = loopback(Link::Ethernet, 0, number).octets();
            assert_eq!(net, 127);
            assert!((1..=254).contains(&a) && (1..=254).contains(&c), "{number}");
            for lmc in 0..=7 {
                let ip = loopback(Link::InfiniBand, lmc, number);
                assert_eq!(ip.octets()[..2], [127, 73]);
                assert_eq!(link::first_address(ip, lmc), ip, "LMC {lmc}");
                let last = link::address_with(ip, (1 << lmc) - 1);
                assert!(link::lid(ip).is_some() && link::lid(last).is_some(), "{ip}");
            }
        }
    }

    #[test]
    fn a_claimed_address_is_refused_by_name_until_it_is_given_back() {
        let (sockets, ip) = claim(None, Link::Ethernet, 0, fastrand::u32(..)).unwrap();
        let error = claim(Some(ip), Link::Ethernet, 0, 0).unwrap_err();
        assert!(matches!(error, AddressError::InUse { .. }));
        assert_eq!(error.to_string(), format!("address {ip}:4791 is in use"));
        drop(sockets);
        claim(Some(ip), Link::Ethernet, 0, 0).unwrap();
    }

    #[test]
    fn a_range_is_claimed_whole_or_not_at_all() {
        let (sockets, first) = claim(None, Link::InfiniBand, 3, fastrand::u32(..)).unwrap();
        let addresses = sockets
            .iter()
            .map(|socket| socket.local_addr().unwrap().ip());
        assert!(addresses.eq((0..8).map(|bits| link::address_with(first, bits))));
        drop(sockets);
        let in_the_way = link::address_with(first, 5);
        let (other, _) = claim(Some(in_the_way), Link::InfiniBand, 0, 0).unwrap();
        let error = claim(Some(first), Link::InfiniBand, 3, 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("address {in_the_way}:4791 is in use")
        );
        drop(other);
        claim(Some(first), Link::InfiniBand, 3, 0).unwrap();
    }

    #[test]
    fn a_search_that_starts_at_a_taken_address_takes_the_next() {
        let seed = fastrand::u32(..);
        let (_one, first) = claim(None, Link::Ethernet, 0, seed).unwrap();
        let (_two, second) = claim(None, Link::Ethernet, 0, seed).unwrap();
        assert_ne!(first, second);
    }

    #[test]
    fn a_foreign_ipv6_address_is_refused_with_the_command_that_adds_it() {
        // A subnet that is reserved for documentation.
        let subnet = "2001:db8:1::".parse().unwrap();
        let error = claim_ipv6(Ipv4Addr::new(127, 1, 2, 3), subnet).unwrap_err();
        let text = error.to_string();
        assert_eq!(
            text,
            "cannot use address [2001:db8:1::7f01:203]:4791: this machine does not have it; `ip -6 route add local \
             2001:db8:1::/96 dev lo` gives it all addresses of the subnet"
        );
    }

    #[test]
    fn an_address_of_another_machine_is_refused_by_name() {
        let ip = Ipv4Addr::new(192, 0, 2, 1); // reserved for documentation
        let error = claim(Some(ip), Link::Ethernet, 0, 0)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("cannot use address 192.0.2.1:4791: "),
            "{error}"
        );
    }
}
