//! Writes and reads Ethernet frames with RoCE or ARP in them. RoCE is v1 (a GRH) or v2 (UDP over IPv4 or IPv6), as the [`Envelope`] of the
//! packet says.
//!
//! Any bytes can be read: they give a [`Frame`] or an error, never a panic. Of IP this module reads what RoCEv2 needs: no options, no
//! extension headers, no fragments. The IPv4 header checksum is verified. The UDP checksum is not: the ICRC covers the same bytes and more.
//! Hosts that leave the UDP checksum to their network card hand over frames without it.
//!
//! No crate replaces this. The crate smoltcp needs Rust 1.91 since 0.13, and its `Ipv4Repr` drops the identification, which the
//! ICRC of received packets covers. The crate etherparse is 85,000 lines, or 6 s of one core. It would replace 200 lines here that
//! read and write IP, UDP and ARP. The GRH and the shapes that a RoCE packet may not have would still be checked by hand.

mod error;
pub(crate) mod global;

pub use crate::link::{Mac, mac_of};
pub use error::FrameError;

use super::icrc::{Flow, IBA_TRANSPORT, ROCE_PORT};
use crate::envelope::{Addresses, Envelope, Name, Source, Version};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Deref;

/// Length of the longest headers: Ethernet, IPv6 and UDP.
pub const MAX_HEADER_BYTES: usize = ETHERNET_BYTES + global::BYTES + UDP_BYTES;
/// The MAC address of all hosts on the net.
pub const BROADCAST: Mac = [0xff; 6];

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ARP_BYTES: usize = 28;
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
const TYPE_IPV6: [u8; 2] = [0x86, 0xdd];
const TYPE_ROCE_V1: [u8; 2] = [0x89, 0x15];
const UDP: u8 = 17;
const TIME_TO_LIVE: u8 = 64;

/// The sender and the receiver of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// MAC address of the sender.
    pub source_mac: Mac,
    /// MAC address of the receiver.
    pub destination_mac: Mac,
    /// The sender with its headers, and what an IPv4 header says of fragments.
    pub source: Source,
    /// The receiver.
    pub destination: Ipv4Addr,
}

/// The headers in front of a payload.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    bytes: [u8; MAX_HEADER_BYTES],
    used: usize,
}

impl Deref for Headers {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.used]
    }
}

impl Headers {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
    }
}

/// Returns the headers in front of `payload`, with their checksums.
#[must_use]
pub fn headers(route: &Route, payload: &[u8]) -> Headers {
    let mut out = Headers {
        bytes: [0; MAX_HEADER_BYTES],
        used: 0,
    };
    out.put(&route.destination_mac);
    out.put(&route.source_mac);
    let source = &route.source;
    match source
        .envelope
        .addresses(*source.address.ip(), route.destination)
    {
        Addresses::V4(..) => {
            let ip = ipv4(route, UDP_BYTES + payload.len());
            out.put(&TYPE_IPV4);
            out.put(&ip);
            out.put(&udp_header(source.address.port(), &ip[12..], payload));
        }
        Addresses::V6(from, to) => {
            let ip = global::header(UDP, length(UDP_BYTES + payload.len()), from, to);
            out.put(&TYPE_IPV6);
            out.put(&ip);
            out.put(&udp_header(source.address.port(), &ip[8..], payload));
        }
        Addresses::Grh(from, to) => {
            out.put(&TYPE_ROCE_V1);
            out.put(&global::header(
                IBA_TRANSPORT,
                length(payload.len()),
                from,
                to,
            ));
        }
    }
    out
}

fn ipv4(route: &Route, payload_bytes: usize) -> [u8; IPV4_BYTES] {
    let mut ip = [0; IPV4_BYTES];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length(IPV4_BYTES + payload_bytes).to_be_bytes());
    ip[4..8].copy_from_slice(&route.source.fragment_fields);
    ip[8] = TIME_TO_LIVE;
    ip[9] = UDP;
    ip[12..16].copy_from_slice(&route.source.address.ip().octets());
    ip[16..].copy_from_slice(&route.destination.octets());
    let sum = checksum([&ip[..]]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    ip
}

/// Returns the UDP header in front of `payload`. `addresses` are those of the IP header before it.
fn udp_header(source_port: u16, addresses: &[u8], payload: &[u8]) -> [u8; UDP_BYTES] {
    let bytes = length(UDP_BYTES + payload.len()).to_be_bytes();
    let mut udp = [0; UDP_BYTES];
    udp[..2].copy_from_slice(&source_port.to_be_bytes());
    udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&bytes);
    let pseudo = [0, UDP, bytes[0], bytes[1]];
    // A checksum of 0 on the wire would mean that there is none.
    let sum = match checksum([addresses, &pseudo, &udp, payload]) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..].copy_from_slice(&sum.to_be_bytes());
    udp
}

/// Returns the value of a length field. No packet is near 64 KiB.
fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

/// Returns the Internet checksum (RFC 1071). All parts but the last have an even length.
fn checksum<const N: usize>(parts: [&[u8]; N]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        let (words, last) = part.as_chunks::<2>();
        for word in words {
            sum += u64::from(u16::from_be_bytes(*word));
        }
        if let [byte] = last {
            sum += u64::from(*byte) << 8;
        }
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let [.., high, low] = (!sum).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// A frame that an HCA can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A RoCE packet.
    Roce {
        /// The sender of the packet.
        source: Source,
        /// The receiver of the packet.
        destination: Ipv4Addr,
        /// The packet, from the BTH to the ICRC.
        payload: &'a [u8],
    },
    /// A request or an answer of ARP.
    Arp(Arp),
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// True if this is a request. Otherwise it is an answer.
    pub is_request: bool,
    /// Addresses of the host that sent the packet.
    pub sender: (Ipv4Addr, Mac),
    /// The addresses of a host: in a request the address that is asked for, in an answer the host that asked.
    pub target: (Ipv4Addr, Mac),
}

impl<'a> Frame<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// See [`FrameError`].
    pub fn parse(frame: &'a [u8]) -> Result<Self, FrameError> {
        let (ethernet, rest) = split::<ETHERNET_BYTES>(frame)?;
        match [ethernet[12], ethernet[13]] {
            TYPE_ARP => Ok(Self::Arp(Arp::parse(rest)?)),
            TYPE_IPV4 => Self::parse_ipv4(rest),
            TYPE_IPV6 => Self::parse_ipv6(rest),
            TYPE_ROCE_V1 => Self::parse_grh(rest),
            _ => Err(FrameError::Protocol),
        }
    }

    fn parse_ipv4(packet: &'a [u8]) -> Result<Self, FrameError> {
        let (ip, rest) = split::<IPV4_BYTES>(packet)?;
        // The header must have no options and must not be that of a fragment.
        if ip[0] != 0x45 || ip[6] & 0x3f != 0 || ip[7] != 0 {
            return Err(FrameError::Shape);
        }
        if ip[9] != UDP {
            return Err(FrameError::Protocol);
        }
        if checksum([&ip[..]]) != 0 {
            return Err(FrameError::Checksum);
        }
        // Frames of less than 60 bytes are padded, so the lengths in the headers count.
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let ip_payload = total
            .checked_sub(IPV4_BYTES)
            .and_then(|len| rest.get(..len));
        let (port, payload) = udp(ip_payload.ok_or(FrameError::Short)?)?;
        let address = SocketAddrV4::new(Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]), port);
        Ok(Self::Roce {
            source: Source {
                address,
                envelope: Envelope::V2_IPV4,
                fragment_fields: [ip[4], ip[5], ip[6], ip[7]],
                path_bits: 0,
            },
            destination: Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]),
            payload,
        })
    }

    fn parse_ipv6(packet: &'a [u8]) -> Result<Self, FrameError> {
        let parsed = global::parse(packet)?;
        if parsed.next != UDP {
            return Err(FrameError::Protocol);
        }
        let (port, payload) = udp(parsed.payload)?;
        Self::between_gids(Version::V2, &parsed, port, payload)
    }

    fn parse_grh(packet: &'a [u8]) -> Result<Self, FrameError> {
        let parsed = global::parse(packet)?;
        if parsed.next != IBA_TRANSPORT {
            return Err(FrameError::Protocol);
        }
        Self::between_gids(Version::V1, &parsed, ROCE_PORT, parsed.payload)
    }

    fn between_gids(
        version: Version,
        parsed: &global::Parsed<'_>,
        port: u16,
        payload: &'a [u8],
    ) -> Result<Self, FrameError> {
        let end = |gid| Name::of(gid).ok_or(FrameError::Gid);
        let (from, source) = end(&parsed.source)?;
        let (to, destination) = end(&parsed.destination)?;
        Ok(Self::Roce {
            source: Source {
                envelope: Envelope {
                    version,
                    source,
                    destination,
                },
                ..SocketAddrV4::new(from, port).into()
            },
            destination: to,
            payload,
        })
    }
}

/// Returns the source port and the payload of a UDP datagram to the port of RoCEv2.
fn udp(datagram: &[u8]) -> Result<(u16, &[u8]), FrameError> {
    let (udp, rest) = split::<UDP_BYTES>(datagram)?;
    let bytes = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let payload = bytes.checked_sub(UDP_BYTES).and_then(|len| rest.get(..len));
    if u16::from_be_bytes([udp[2], udp[3]]) != ROCE_PORT {
        return Err(FrameError::Protocol);
    }
    let port = u16::from_be_bytes([udp[0], udp[1]]);
    Ok((port, payload.ok_or(FrameError::Short)?))
}

impl Arp {
    /// The first fields of ARP: hardware type Ethernet, protocol IPv4, and the lengths of their addresses.
    const KIND: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

    fn parse(packet: &[u8]) -> Result<Self, FrameError> {
        let (arp, _) = split::<ARP_BYTES>(packet)?;
        let is_request = match [arp[6], arp[7]] {
            [0, 1] => true,
            [0, 2] => false,
            _ => return Err(FrameError::Protocol),
        };
        if arp[..6] != Self::KIND {
            return Err(FrameError::Protocol);
        }
        let party = |at: usize| {
            let mac = [0, 1, 2, 3, 4, 5].map(|byte| arp[at + byte]);
            let [a, b, c, d] = [6, 7, 8, 9].map(|byte| arp[at + byte]);
            (Ipv4Addr::new(a, b, c, d), mac)
        };
        Ok(Self {
            is_request,
            sender: party(8),
            target: party(18),
        })
    }

    /// Returns the whole frame: a request goes to all hosts, an answer to the target.
    #[must_use]
    pub fn frame(&self) -> [u8; ETHERNET_BYTES + ARP_BYTES] {
        let mut out = [0; ETHERNET_BYTES + ARP_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(if self.is_request {
            &BROADCAST
        } else {
            &self.target.1
        });
        put(&self.sender.1);
        put(&TYPE_ARP);
        put(&Self::KIND);
        put(&[0, if self.is_request { 1 } else { 2 }]);
        for (ip, mac) in [self.sender, self.target] {
            put(&mac);
            put(&ip.octets());
        }
        out
    }
}

fn split<const N: usize>(bytes: &[u8]) -> Result<(&[u8; N], &[u8]), FrameError> {
    bytes.split_first_chunk().ok_or(FrameError::Short)
}

impl Route {
    /// Returns the route of a packet between two HCAs whose MAC addresses follow from their IP addresses.
    #[must_use]
    pub const fn between(source: Source, destination: Ipv4Addr) -> Self {
        Self {
            source_mac: mac_of(*source.address.ip()),
            destination_mac: mac_of(destination),
            source,
            destination,
        }
    }
}

impl Source {
    /// Returns the source of packets that the HCA at `address` sends.
    #[must_use]
    pub const fn of_hca(address: Ipv4Addr) -> Self {
        Self {
            address: SocketAddrV4::new(address, ROCE_PORT),
            envelope: Envelope::V2_IPV4,
            fragment_fields: Flow::UNFRAGMENTED,
            path_bits: 0,
        }
    }
}

#[cfg(test)]
mod tests;
