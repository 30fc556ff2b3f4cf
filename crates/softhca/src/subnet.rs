//! The IPv6 subnet that gives an HCA a second address.
//!
//! The address consists of the subnet's first 96 bits and then the HCA's IPv4 address. So the address alone leads to the HCA that has it,
//! like every other name of an HCA.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use thiserror::Error;

/// A /96 subnet of global unicast or unique local addresses.
///
/// As text (`SOFTHCA_IPV6`) a subnet is its first address, with or without `/96`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Subnet([u8; 12]);

/// The error for a text that is no [`Ipv6Subnet`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not {}", Ipv6Subnet::EXPECTED)]
pub struct NoSubnet {
    /// The given text.
    pub text: String,
}

impl Ipv6Subnet {
    /// The texts that are subnets, in words.
    pub const EXPECTED: &str =
        "the first address of a /96 in 2000::/3 or fc00::/7, as fd00:5:: or fd00:5::/96";

    /// Returns the address that the HCA at `ip` has in this subnet.
    #[must_use]
    pub fn address(self, ip: Ipv4Addr) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets[..12].copy_from_slice(&self.0);
        octets[12..].copy_from_slice(&ip.octets());
        octets.into()
    }

    /// Returns the subnet of `address`, and the HCA that has the address in this subnet; `None` if the address is of another kind.
    #[must_use]
    pub fn of(address: Ipv6Addr) -> Option<(Ipv4Addr, Self)> {
        let octets = address.octets();
        let (subnet, host) = octets.split_first_chunk()?;
        let [a, b, c, d] = *host else { return None };
        // The address must be global unicast or unique local. An address of 0.0.0.0/8 is no host.
        let is_one = octets[0] >> 5 == 0b001 || octets[0] >> 1 == 0b111_1110;
        (is_one && a != 0).then(|| (Ipv4Addr::new(a, b, c, d), Self(*subnet)))
    }
}

impl FromStr for Ipv6Subnet {
    type Err = NoSubnet;

    fn from_str(text: &str) -> Result<Self, NoSubnet> {
        let first = text.strip_suffix("/96").unwrap_or(text);
        let parsed = first.parse::<Ipv6Addr>().ok().and_then(|first| {
            let [.., 0, 0, 0, 0] = first.octets() else {
                return None;
            };
            // Any host of the subnet will do: the answer does not depend on the host.
            let host =
                Ipv6Addr::from(u128::from(first) | u128::from(u32::from(Ipv4Addr::LOCALHOST)));
            Self::of(host)
        });
        let no_subnet = || NoSubnet {
            text: text.to_owned(),
        };
        Ok(parsed.ok_or_else(no_subnet)?.1)
    }
}

impl fmt::Display for Ipv6Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/96", self.address(Ipv4Addr::UNSPECIFIED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_to_its_hca_and_its_subnet() {
        let ip = Ipv4Addr::new(127, 1, 2, 3);
        for text in ["fd00:5::/96", "2001:db8:1:2:3:4::/96", "fc00::/96"] {
            let subnet: Ipv6Subnet = text.parse().unwrap();
            assert_eq!(subnet.to_string(), text);
            assert_eq!(Ipv6Subnet::of(subnet.address(ip)), Some((ip, subnet)));
        }
        let subnet: Ipv6Subnet = "fd00:5::".parse().unwrap();
        assert_eq!(subnet.address(ip).to_string(), "fd00:5::7f01:203");
    }

    #[test]
    fn other_texts_are_refused_with_what_would_be_right() {
        for text in [
            "",
            "fd00:5",
            "fd00:5::1",
            "fd00:5::1:0",
            "fd00:5::/64",
            "fd00:5::/96/96",
            "::",
            "::ffff:0.0.0.0",
            "fe80::",
            "ff02::",
            "127.0.0.0",
        ] {
            let error = text.parse::<Ipv6Subnet>().unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("{text:?} is not the first address of a /96")),
                "{error}"
            );
        }
        for text in [
            "::1",
            "fe80::7f00:1",
            "ff02::7f00:1",
            "2001:db8::1",
            "::ffff:127.0.0.1",
        ] {
            assert_eq!(Ipv6Subnet::of(text.parse().unwrap()), None, "{text}");
        }
    }
}
