//! Finds the network interface that has an address of this machine.

// UNSAFETY: getifaddrs, if_nametoindex and an ioctl of a socket.
#![expect(unsafe_code, reason = "lists of libc, and an ioctl")]

use std::ffi::{CStr, CString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use crate::address;

/// A network interface, as it was when it was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) name: String,
    /// The interface index, from 1 on.
    pub(crate) index: u32,
    /// The most bytes of an IP packet on this interface.
    pub(crate) mtu: u32,
}

impl Interface {
    /// Returns the interface to which `ip` is assigned. If `ip` is assigned to none, it returns the loopback interface for an IPv4
    /// address of its subnet (127.0.0.0/8), and the interface of the local route for an IPv6 address. Returns None if this machine
    /// does not have the address.
    pub(crate) fn of(ip: IpAddr) -> Option<Self> {
        let addresses = Addresses::list()?;
        let assigned = addresses.iter().find(|entry| entry.ip == Some(ip));
        let name =
            match assigned.or_else(|| addresses.iter().find(|entry| entry.is_loopback_of(ip))) {
                Some(entry) => entry.name,
                None => match ip {
                    IpAddr::V4(_) => return None,
                    IpAddr::V6(ip) => address::local_interface(ip)?,
                },
            };
        Self::named(name)
    }

    /// Returns the interface with this name; `None` if there is none.
    pub(crate) fn named(name: String) -> Option<Self> {
        let text = CString::new(name.as_str()).ok()?;
        // SAFETY: `text` is a C string.
        let index = unsafe { libc::if_nametoindex(text.as_ptr()) };
        let mtu = mtu(&text)?;
        (index != 0).then_some(Self { name, index, mtu })
    }
}

/// Returns the MTU of an interface. The kernel is asked by ioctl, since sysfs may show the interfaces of another network namespace.
fn mtu(name: &CStr) -> Option<u32> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    // SAFETY: zeros are a valid `struct ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays 0: it ends the C string.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: the socket is open, and the kernel reads and fills the struct.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    // SAFETY: the kernel has filled this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).ok().filter(|_| answer == 0)
}

/// An address of an interface, with its netmask.
struct Entry {
    name: String,
    ip: Option<IpAddr>,
    mask: Option<IpAddr>,
    is_loopback: bool,
}

impl Entry {
    /// Returns whether this is the loopback interface and `ip` is in the subnet of its address. All addresses of such a subnet belong to
    /// the loopback interface.
    fn is_loopback_of(&self, ip: IpAddr) -> bool {
        let (Some(IpAddr::V4(own)), Some(IpAddr::V4(mask)), IpAddr::V4(ip)) =
            (self.ip, self.mask, ip)
        else {
            return false;
        };
        self.is_loopback && own.to_bits() & mask.to_bits() == ip.to_bits() & mask.to_bits()
    }
}

/// The list that `getifaddrs` has given.
struct Addresses(NonNull<libc::ifaddrs>);

impl Addresses {
    fn list() -> Option<Self> {
        let mut list = ptr::null_mut();
        // SAFETY: `list` is a place for the list.
        let answer = unsafe { libc::getifaddrs(&raw mut list) };
        NonNull::new(list).filter(|_| answer == 0).map(Self)
    }

    fn iter(&self) -> impl Iterator<Item = Entry> {
        let mut next = Some(self.0);
        std::iter::from_fn(move || {
            // SAFETY: `next` is an entry of the list, which lives as long as `self`.
            let entry = unsafe { next?.as_ref() };
            next = NonNull::new(entry.ifa_next);
            // SAFETY: the name is a C string of the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            Some(Entry {
                name: name.to_string_lossy().into_owned(),
                // SAFETY: the address is null, or an address of the list.
                ip: unsafe { address_at(entry.ifa_addr) },
                // SAFETY: as above.
                mask: unsafe { address_at(entry.ifa_netmask) },
                is_loopback: entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0,
            })
        })
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        // SAFETY: `getifaddrs` has given this list, and it is freed once.
        unsafe { libc::freeifaddrs(self.0.as_ptr()) };
    }
}

/// # Safety
///
/// `address` is null, or points to a socket address that is as long as its family says.
unsafe fn address_at(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: every socket address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the address is of this family, so it has this length.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in>()) };
            Some(Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the address is of this family, so it has this length.
            let address = unsafe { ptr::read_unaligned(address.cast::<libc::sockaddr_in6>()) };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_of_127_is_that_of_lo_and_one_of_documentation_of_none() {
        for last in [1, 77] {
            let lo = Interface::of(Ipv4Addr::new(127, 9, 0, last).into()).unwrap();
            assert_eq!((lo.name.as_str(), lo.index), ("lo", 1));
            assert!(lo.mtu >= 1500, "{lo:?}");
        }
        assert_eq!(Interface::of(Ipv4Addr::new(192, 0, 2, 1).into()), None);
        assert_eq!(Interface::of("2001:db8::1".parse().unwrap()), None);
        assert_eq!(Interface::named("no such interface".into()), None);
    }

    #[test]
    fn each_assigned_address_is_that_of_its_interface() {
        for entry in Addresses::list().unwrap().iter() {
            let Some(ip) = entry.ip else { continue };
            // Several interfaces may have the same link-local address.
            let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
            if !is_link_local {
                assert_eq!(Interface::of(ip).unwrap().name, entry.name, "{ip}");
            }
        }
    }
}
