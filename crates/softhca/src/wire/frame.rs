//! Ethernet frames with RoCEv2 or ARP in them: written and read.
//!
//! Reading is total: any bytes give a [`Frame`] or a reason why not, never a panic. Of IPv4, what RoCEv2 needs: no options, no
//! fragments. The IPv4 header checksum is verified; the UDP checksum is not, since the ICRC covers the same and more, and
//! hosts that leave it to their network card hand over frames without it.

use super::carrier::Source;
use super::icrc::{Flow, ROCE_PORT};
use std::net::{Ipv4Addr, SocketAddrV4};

/// A MAC address.
pub type Mac = [u8; 6];

/// Ethernet, IPv4 and UDP headers.
pub const HEADER_BYTES: usize = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES;
/// Everybody on the net.
pub const BROADCAST: Mac = [0xff; 6];

const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const ARP_BYTES: usize = 28;
const TYPE_IPV4: [u8; 2] = [0x08, 0x00];
const TYPE_ARP: [u8; 2] = [0x08, 0x06];
const UDP: u8 = 17;
const TIME_TO_LIVE: u8 = 64;

/// The MAC address of the HCA at `ip`: locally administered, unique because the IP address is.
#[must_use]
pub const fn mac_of(ip: Ipv4Addr) -> Mac {
    let [a, b, c, d] = ip.octets();
    [0x02, 0x00, a, b, c, d]
}

/// Where a frame goes and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// MAC address of the sender.
    pub source_mac: Mac,
    /// MAC address of the receiver.
    pub destination_mac: Mac,
    /// Sender, and what its IPv4 header says of fragments.
    pub source: Source,
    /// Receiver.
    pub destination: Ipv4Addr,
}

/// The headers in front of `payload`, with their checksums.
#[must_use]
pub fn headers(route: &Route, payload: &[u8]) -> [u8; HEADER_BYTES] {
    let mut out = [0; HEADER_BYTES];
    let (ethernet, rest) = out.split_at_mut(ETHERNET_BYTES);
    ethernet[..6].copy_from_slice(&route.destination_mac);
    ethernet[6..12].copy_from_slice(&route.source_mac);
    ethernet[12..].copy_from_slice(&TYPE_IPV4);
    let (ip, udp) = rest.split_at_mut(IPV4_BYTES);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length(IPV4_BYTES + UDP_BYTES + payload.len()));
    ip[4..8].copy_from_slice(&route.source.fragment_fields);
    ip[8] = TIME_TO_LIVE;
    ip[9] = UDP;
    ip[12..16].copy_from_slice(&route.source.address.ip().octets());
    ip[16..].copy_from_slice(&route.destination.octets());
    let sum = checksum([&*ip]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp_length = length(UDP_BYTES + payload.len());
    udp[..2].copy_from_slice(&route.source.address.port().to_be_bytes());
    udp[2..4].copy_from_slice(&ROCE_PORT.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length);
    let pseudo = [0, UDP, udp_length[0], udp_length[1]];
    // 0 on the wire would say that there is none.
    let sum = match checksum([&ip[12..], &pseudo, &*udp, payload]) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..].copy_from_slice(&sum.to_be_bytes());
    out
}

/// A length field. No packet is near 64 KiB.
fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

/// The Internet checksum (RFC 1071). All parts but the last have an even length.
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

/// A frame that means something to an HCA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A UDP datagram for the port of RoCEv2.
    Roce {
        /// Where it comes from.
        source: Source,
        /// To whom it goes.
        destination: Ipv4Addr,
        /// BTH to ICRC.
        payload: &'a [u8],
    },
    /// A question or an answer about a MAC address.
    Arp(Arp),
}

/// An ARP packet for IPv4 over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Asks; otherwise answers.
    pub is_request: bool,
    /// Who sends it.
    pub sender: (Ipv4Addr, Mac),
    /// Whose address is asked for, or who asked.
    pub target: (Ipv4Addr, Mac),
}

/// Why a frame is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Shorter than its headers say.
    #[error("cut short")]
    Short,
    /// Neither IPv4 nor ARP for it.
    #[error("another protocol")]
    Protocol,
    /// An IPv4 header with options, or part of a packet.
    #[error("an IPv4 header with options, or a fragment")]
    Shape,
    /// The header's checksum is wrong.
    #[error("wrong IPv4 header checksum")]
    Checksum,
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
            _ => Err(FrameError::Protocol),
        }
    }

    fn parse_ipv4(packet: &'a [u8]) -> Result<Self, FrameError> {
        let (ip, rest) = split::<IPV4_BYTES>(packet)?;
        // More fragments, or not the first.
        if ip[0] != 0x45 || ip[6] & 0x3f != 0 || ip[7] != 0 {
            return Err(FrameError::Shape);
        }
        if ip[9] != UDP {
            return Err(FrameError::Protocol);
        }
        if checksum([&ip[..]]) != 0 {
            return Err(FrameError::Checksum);
        }
        // Frames of less than 60 bytes come padded: the lengths in the headers count.
        let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
        let ip_payload = total
            .checked_sub(IPV4_BYTES)
            .and_then(|len| rest.get(..len));
        let (udp, rest) = split::<UDP_BYTES>(ip_payload.ok_or(FrameError::Short)?)?;
        let bytes = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        let payload = bytes.checked_sub(UDP_BYTES).and_then(|len| rest.get(..len));
        if u16::from_be_bytes([udp[2], udp[3]]) != ROCE_PORT {
            return Err(FrameError::Protocol);
        }
        let address = SocketAddrV4::new(
            Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]),
            u16::from_be_bytes([udp[0], udp[1]]),
        );
        Ok(Self::Roce {
            source: Source {
                address,
                fragment_fields: [ip[4], ip[5], ip[6], ip[7]],
            },
            destination: Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]),
            payload: payload.ok_or(FrameError::Short)?,
        })
    }
}

impl Arp {
    /// Hardware type Ethernet, protocol IPv4, and their lengths.
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

    /// The whole frame: to everybody if it asks, else to the target.
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
    /// The route of a packet between two HCAs whose MAC addresses follow from their IP addresses.
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
    /// What the HCA at `address` sends.
    #[must_use]
    pub const fn of_hca(address: Ipv4Addr) -> Self {
        Self {
            address: SocketAddrV4::new(address, ROCE_PORT),
            fragment_fields: Flow::UNFRAGMENTED,
        }
    }
}

#[cfg(test)]
mod tests;
