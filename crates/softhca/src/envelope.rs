//! The network headers of a packet, and by which of its GIDs each end is named in them.
//!
//! An HCA on Ethernet has two GIDs, each twice in its table: once for RoCE v1, once for v2. One with an [`Ipv6Subnet`] has
//! its address of that subnet in addition.
//!
//! | index | GID of the HCA at `a.b.c.d` | RoCE | headers between Ethernet and BTH |
//! |---|---|---|---|
//! | 0 | `fe80::/64` and the EUI-64 of its MAC address ([`mac_of`]) | v1 | GRH |
//! | 1 | the same | v2 | IPv6, UDP |
//! | 2 | `::ffff:a.b.c.d` | v1 | GRH |
//! | 3 | the same | v2 | IPv4, UDP |
//! | 4 | its address of the IPv6 subnet, if it has one | v2 | IPv6, UDP |
//!
//! A carrier says which envelopes it keeps ([`Kept`]): Ethernet frames have the headers of any. Others travel as UDP
//! over IPv4; of a datagram, whose receiver gets the headers to see, the envelope then stands in the DETH.

use crate::link::mac_of;
use crate::subnet::Ipv6Subnet;
use std::fmt::Debug;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// A global identifier: 128 bits, network byte order.
pub type Gid = [u8; 16];

/// The headers of a packet, less the addresses. The default is v2 over IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Version of RoCE.
    pub version: Version,
    /// Which GID of the sender is in the headers.
    pub source: Name,
    /// Which GID of the receiver is in the headers.
    pub destination: Name,
}

/// A version of RoCE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// A GRH after the Ethernet header.
    V1,
    /// UDP over IP: IPv4 between GIDs of the form `::ffff:a.b.c.d`, otherwise IPv6.
    #[default]
    V2,
}

/// One of the GIDs of an HCA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Name {
    /// `::ffff:a.b.c.d`.
    #[default]
    Ip,
    /// `fe80::/64` and the EUI-64 of the MAC address.
    LinkLocal,
    /// The address of an IPv6 subnet.
    Ipv6(Ipv6Subnet),
}

/// The envelopes that a carrier keeps: in which packets arrive as they were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// [`Envelope::V2_IPV4`] alone.
    #[default]
    Ipv4,
    /// UDP over IPv4, and over IPv6 between the addresses of a subnet.
    Udp,
    /// Packets arrive with every field as it was sent.
    All,
}

impl Kept {
    /// Packets in `envelope` arrive in it.
    #[must_use]
    pub fn holds(self, envelope: Envelope) -> bool {
        envelope == Envelope::V2_IPV4
            || match self {
                Self::Ipv4 => false,
                Self::Udp => envelope.ipv6_subnet().is_some(),
                Self::All => true,
            }
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// Address of the HCA.
    pub address: Ipv4Addr,
    /// The headers.
    pub envelope: Envelope,
    /// From which of its own addresses the sender sends: the path bits of `InfiniBand`.
    pub path_bits: u8,
}

impl From<Ipv4Addr> for Destination {
    /// By RoCE v2 over IPv4.
    fn from(address: Ipv4Addr) -> Self {
        Self {
            address,
            envelope: Envelope::V2_IPV4,
            path_bits: 0,
        }
    }
}

impl Name {
    /// Returns the GID of this form that the HCA at `ip` has.
    #[must_use]
    pub fn gid(self, ip: Ipv4Addr) -> Gid {
        match self {
            Self::Ip => ip.to_ipv6_mapped().octets(),
            Self::LinkLocal => {
                let [a, b, c, d, e, f] = mac_of(ip);
                // In an interface identifier the universal/local bit of the MAC address is inverted.
                let id = [a ^ 0x02, b, c, 0xff, 0xfe, d, e, f];
                let mut gid = [0; 16];
                gid[..2].copy_from_slice(&[0xfe, 0x80]);
                gid[8..].copy_from_slice(&id);
                gid
            }
            Self::Ipv6(subnet) => subnet.address(ip).octets(),
        }
    }

    /// Returns the HCA that has this GID, and which of its GIDs that is; `None` if no software HCA can have it.
    #[must_use]
    pub fn of(gid: &Gid) -> Option<(Ipv4Addr, Self)> {
        let (ip, name) = match (*gid, Ipv6Subnet::of((*gid).into())) {
            (_, Some((ip, subnet))) => (ip, Self::Ipv6(subnet)),
            ([0xfe, 0x80, .., a, _, _, b, c, d], None) => {
                (Ipv4Addr::new(a, b, c, d), Self::LinkLocal)
            }
            ([.., a, b, c, d], None) => (Ipv4Addr::new(a, b, c, d), Self::Ip),
        };
        let is_host = !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast();
        (is_host && name.gid(ip) == *gid).then_some((ip, name))
    }
}

impl Envelope {
    /// The usual headers.
    pub const V2_IPV4: Self = Self {
        version: Version::V2,
        source: Name::Ip,
        destination: Name::Ip,
    };

    /// Bits of [`Self::mark`].
    const V1: u8 = 1 << 1;
    const SOURCE_IS_LINK_LOCAL: u8 = 1 << 2;
    const DESTINATION_IS_LINK_LOCAL: u8 = 1 << 3;

    /// Returns the subnet of UDP over IPv6 whose addresses are those of one.
    #[must_use]
    pub fn ipv6_subnet(self) -> Option<Ipv6Subnet> {
        match (self.version, self.source, self.destination) {
            (Version::V2, Name::Ipv6(source), Name::Ipv6(destination)) => {
                (source == destination).then_some(source)
            }
            _ => None,
        }
    }

    /// UDP over IPv6 between two addresses of a subnet.
    #[must_use]
    pub const fn within(subnet: Ipv6Subnet) -> Self {
        Self {
            version: Version::V2,
            source: Name::Ipv6(subnet),
            destination: Name::Ipv6(subnet),
        }
    }

    /// Returns the envelope as three bits of a byte, 0 for [`Self::V2_IPV4`]. Bit 0 is free. No bits stand for an IPv6 subnet: the
    /// carrier of an HCA that has one keeps such envelopes.
    #[must_use]
    pub fn mark(self) -> u8 {
        let bit = |is_set: bool, bit: u8| if is_set { bit } else { 0 };
        bit(self.version == Version::V1, Self::V1)
            | bit(self.source == Name::LinkLocal, Self::SOURCE_IS_LINK_LOCAL)
            | bit(
                self.destination == Name::LinkLocal,
                Self::DESTINATION_IS_LINK_LOCAL,
            )
    }

    /// The envelope of a [`Self::mark`]; other bits are ignored.
    #[must_use]
    pub fn of_mark(mark: u8) -> Self {
        let name = |bit: u8| match mark & bit {
            0 => Name::Ip,
            _ => Name::LinkLocal,
        };
        Self {
            version: match mark & Self::V1 {
                0 => Version::V2,
                _ => Version::V1,
            },
            source: name(Self::SOURCE_IS_LINK_LOCAL),
            destination: name(Self::DESTINATION_IS_LINK_LOCAL),
        }
    }

    /// Returns the headers from one HCA to another, with their addresses.
    #[must_use]
    pub fn addresses(self, source: Ipv4Addr, destination: Ipv4Addr) -> Addresses {
        if self == Self::V2_IPV4 {
            return Addresses::V4(source, destination);
        }
        let source = Ipv6Addr::from(self.source.gid(source));
        let destination = Ipv6Addr::from(self.destination.gid(destination));
        match self.version {
            Version::V1 => Addresses::Grh(source, destination),
            Version::V2 => Addresses::V6(source, destination),
        }
    }
}

/// The headers in front of the BTH, by their pair of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Source and destination, IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// Source and destination, IPv6.
    V6(Ipv6Addr, Ipv6Addr),
    /// Source and destination of a GRH: RoCE v1, without UDP.
    Grh(Ipv6Addr, Ipv6Addr),
}

/// Where a packet came from, and what else the ICRC covers of the way it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// IP address and UDP port.
    pub address: SocketAddrV4,
    /// The headers.
    pub envelope: Envelope,
    /// Identification, flags and fragment offset of the IPv4 header. A UDP socket does not show them.
    pub fragment_fields: [u8; 4],
    /// To which of its own addresses the receiver got it: the path bits of `InfiniBand`.
    pub path_bits: u8,
}

/// Identification and flags of an IPv4 packet in one piece: no identification, DF set.
pub(crate) const UNFRAGMENTED: [u8; 4] = [0, 0, 0x40, 0];

impl From<SocketAddrV4> for Source {
    /// With identification 0 and DF set, as softhca sends.
    fn from(address: SocketAddrV4) -> Self {
        Self {
            address,
            envelope: Envelope::V2_IPV4,
            fragment_fields: UNFRAGMENTED,
            path_bits: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IP: Ipv4Addr = Ipv4Addr::new(10, 1, 2, 3);

    #[test]
    fn each_gid_of_an_hca_leads_back_to_it() {
        for ip in [
            IP,
            Ipv4Addr::new(127, 254, 255, 254),
            Ipv4Addr::new(0, 0, 0, 1),
        ] {
            for name in [Name::Ip, Name::LinkLocal] {
                assert_eq!(Name::of(&name.gid(ip)), Some((ip, name)));
            }
        }
        let subnet = Name::Ipv6("fd00:5::".parse().unwrap());
        assert_eq!(Name::of(&subnet.gid(IP)), Some((IP, subnet)));
        for gid in [Name::Ip.gid(IP), Name::LinkLocal.gid(IP)] {
            assert_eq!(Ipv6Subnet::of(gid.into()), None);
        }
        let text = Ipv6Addr::from(Name::LinkLocal.gid(IP)).to_string();
        assert_eq!(text, "fe80::aff:fe01:203");
    }

    #[test]
    fn gids_that_no_software_hca_has_lead_nowhere() {
        for text in [
            "::",
            "::ffff:0.0.0.0",
            "::ffff:224.0.0.1",
            "::ffff:255.255.255.255",
            "::10.1.2.3",
            "ff02::1",
            "2001:db8::1",
            "fe80::1",
            // The universal/local bit is not inverted: a GID of InfiniBand.
            "fe80::200:aff:fe01:203",
            // A MAC address of hardware; another prefix; no EUI-64.
            "fe80::ee0d:9aff:fe01:203",
            "fe80:0:0:1:0:aff:fe01:203",
            "fe80::aff:ff01:203",
            "fe80::e0ff:fe00:1",
        ] {
            let gid = text.parse::<Ipv6Addr>().unwrap().octets();
            assert_eq!(Name::of(&gid), None, "{text}");
        }
    }

    #[test]
    fn an_envelope_is_read_from_its_mark_and_bit_0_is_free() {
        let mut seen = vec![];
        for mark in 0..=255u8 {
            let envelope = Envelope::of_mark(mark);
            assert_eq!(envelope.mark(), mark & 0b1110);
            seen.push(envelope);
        }
        seen.sort_by_key(|envelope| envelope.mark());
        seen.dedup();
        assert_eq!(seen.len(), 8);
        assert_eq!(Envelope::default(), Envelope::of_mark(0));
    }

    #[test]
    fn a_carrier_keeps_what_its_headers_can_hold() {
        let [here, there]: [Ipv6Subnet; 2] =
            ["fd00:5::", "fd00:6::"].map(|text| text.parse().unwrap());
        let within = Envelope::within(here);
        let v1 = Envelope {
            version: Version::V1,
            ..within
        };
        let between = Envelope {
            destination: Name::Ipv6(there),
            ..within
        };
        let local = Envelope::of_mark(0b1100);
        let kept = |envelope| [Kept::Ipv4, Kept::Udp, Kept::All].map(|kept| kept.holds(envelope));
        assert_eq!(kept(Envelope::V2_IPV4), [true; 3]);
        assert_eq!(kept(within), [false, true, true]);
        for envelope in [v1, between, local] {
            assert_eq!(kept(envelope), [false, false, true]);
        }
    }

    #[test]
    fn the_headers_follow_from_version_and_names() {
        let there = Ipv4Addr::new(10, 1, 2, 4);
        let local = |ip| Ipv6Addr::from(Name::LinkLocal.gid(ip));
        let of = |version, source, destination| {
            let envelope = Envelope {
                version,
                source,
                destination,
            };
            envelope.addresses(IP, there)
        };
        assert_eq!(
            of(Version::V2, Name::Ip, Name::Ip),
            Addresses::V4(IP, there)
        );
        assert_eq!(
            of(Version::V2, Name::LinkLocal, Name::LinkLocal),
            Addresses::V6(local(IP), local(there))
        );
        assert_eq!(
            of(Version::V1, Name::Ip, Name::LinkLocal),
            Addresses::Grh(IP.to_ipv6_mapped(), local(there))
        );
    }
}
