//! The network headers of a packet, and the GIDs that name its sender and its receiver in these headers.
//!
//! An HCA on Ethernet has two GIDs, and each GID is twice in its table: once for RoCE v1, once for v2. An HCA with an [`Ipv6Subnet`] also
//! has its address of that subnet as a GID.
//!
//! | index | GID of the HCA at `a.b.c.d` | RoCE | headers between Ethernet and BTH |
//! |---|---|---|---|
//! | 0 | `fe80::/64` and the EUI-64 of its MAC address ([`mac_of`]) | v1 | GRH |
//! | 1 | the same | v2 | IPv6, UDP |
//! | 2 | `::ffff:a.b.c.d` | v1 | GRH |
//! | 3 | the same | v2 | IPv4, UDP |
//! | 4 | its address of the IPv6 subnet, if it has one | v2 | IPv6, UDP |
//!
//! A carrier says which envelopes it keeps ([`Kept`]): Ethernet frames have the headers of any envelope. Packets in other envelopes travel
//! as UDP over IPv4. The receiver of a datagram gets the headers to see, so the envelope of such a datagram stands in its DETH.

use crate::link::mac_of;
use crate::subnet::Ipv6Subnet;
use std::fmt::Debug;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// A global identifier: 128 bits, network byte order.
pub type Gid = [u8; 16];

/// The kind of headers of a packet, without the addresses. The default is v2 over IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// The version of RoCE.
    pub version: Version,
    /// The GID of the sender that is in the headers.
    pub source: Name,
    /// The GID of the receiver that is in the headers.
    pub destination: Name,
}

/// A version of RoCE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// RoCE v1: a GRH after the Ethernet header.
    V1,
    /// RoCE v2: UDP over IP. This is IPv4 between GIDs of the form `::ffff:a.b.c.d`, otherwise IPv6.
    #[default]
    V2,
}

/// One of the GIDs of an HCA, by its form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Name {
    /// The GID `::ffff:a.b.c.d`.
    #[default]
    Ip,
    /// The GID of `fe80::/64` and the EUI-64 of the MAC address.
    LinkLocal,
    /// The GID that is the HCA's address of this IPv6 subnet.
    Ipv6(Ipv6Subnet),
}

/// The envelopes that a carrier keeps. A packet in such an envelope arrives in the envelope in which it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// [`Envelope::V2_IPV4`] alone.
    #[default]
    Ipv4,
    /// UDP over IPv4, and UDP over IPv6 between the addresses of a subnet.
    Udp,
    /// All envelopes: packets arrive with every field as it was sent.
    All,
}

impl Kept {
    /// Returns whether packets in `envelope` arrive in that envelope.
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

/// The destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The address of the receiving HCA.
    pub address: Ipv4Addr,
    /// The headers of the packet.
    pub envelope: Envelope,
    /// The path bits of `InfiniBand`: they say from which of its own addresses the sender sends.
    pub path_bits: u8,
}

impl From<Ipv4Addr> for Destination {
    /// Makes the destination of a packet that goes to `address` by RoCE v2 over IPv4.
    fn from(address: Ipv4Addr) -> Self {
        Self {
            address,
            envelope: Envelope::V2_IPV4,
            path_bits: 0,
        }
    }
}

impl Name {
    /// Returns the GID of this form for the HCA at `ip`.
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

    /// Returns the HCA that has the GID `gid`, and the form of that GID; `None` if no software HCA can have it.
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
    /// The usual headers: RoCE v2 over IPv4.
    pub const V2_IPV4: Self = Self {
        version: Version::V2,
        source: Name::Ip,
        destination: Name::Ip,
    };

    /// The bits of [`Self::mark`].
    const V1: u8 = 1 << 1;
    const SOURCE_IS_LINK_LOCAL: u8 = 1 << 2;
    const DESTINATION_IS_LINK_LOCAL: u8 = 1 << 3;

    /// Returns the subnet of both addresses, if the headers are UDP over IPv6 between two addresses of one subnet.
    #[must_use]
    pub fn ipv6_subnet(self) -> Option<Ipv6Subnet> {
        match (self.version, self.source, self.destination) {
            (Version::V2, Name::Ipv6(source), Name::Ipv6(destination)) => {
                (source == destination).then_some(source)
            }
            _ => None,
        }
    }

    /// Returns the headers of UDP over IPv6 between two addresses of `subnet`.
    #[must_use]
    pub const fn within(subnet: Ipv6Subnet) -> Self {
        Self {
            version: Version::V2,
            source: Name::Ipv6(subnet),
            destination: Name::Ipv6(subnet),
        }
    }

    /// Returns the envelope as three bits of a byte, which are 0 for [`Self::V2_IPV4`]. Bit 0 is free. No bits stand for an IPv6 subnet:
    /// the carrier of an HCA with such a subnet keeps its envelopes.
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

    /// Returns the envelope of a [`Self::mark`]. Other bits of `mark` are ignored.
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

    /// Returns the headers of a packet from one HCA to another, with the addresses of both.
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

/// The kind of the headers in front of the BTH, with their two addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Source and destination, IPv4.
    V4(Ipv4Addr, Ipv4Addr),
    /// Source and destination, IPv6.
    V6(Ipv6Addr, Ipv6Addr),
    /// Source and destination of a GRH: RoCE v1, without UDP.
    Grh(Ipv6Addr, Ipv6Addr),
}

/// The origin of a packet, and the other fields that the ICRC covers and that depend on how the packet came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The IP address and UDP port of the sender.
    pub address: SocketAddrV4,
    /// The headers of the packet.
    pub envelope: Envelope,
    /// The identification, flags and fragment offset of the IPv4 header. A UDP socket does not show them.
    pub fragment_fields: [u8; 4],
    /// The path bits of `InfiniBand`: they say at which of its own addresses the receiver got the packet.
    pub path_bits: u8,
}

/// The fragment fields of an IPv4 packet in one piece: no identification, DF set.
pub(crate) const UNFRAGMENTED: [u8; 4] = [0, 0, 0x40, 0];

impl From<SocketAddrV4> for Source {
    /// Makes the source of a packet with identification 0 and DF set, as softhca sends packets.
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
            // In this GID the universal/local bit is not inverted: a GID of InfiniBand.
            "fe80::200:aff:fe01:203",
            // These GIDs have the MAC address of hardware, another prefix, or no EUI-64.
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
