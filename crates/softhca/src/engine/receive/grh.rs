//! The 40 bytes in front of a received datagram.
//!
//! With RoCE v2 over IPv4 the first 20 bytes mean nothing and the last 20 are the IPv4 header of the packet. Software
//! (`ibv_init_ah_from_wc`) distinguishes this by that place from an IPv6 header, which takes all 40 bytes: RoCE v2 uses IPv6 between GIDs
//! that are not IPv4 addresses. Source: annex A17 of the InfiniBand specification. In RoCE v1 and on `InfiniBand` the 40 bytes are the GRH
//! itself (chapter 8 of the specification). A GRH differs from an IPv6 header only in its next header.

use crate::envelope::Addresses;
use crate::wire::frame::global;
use crate::wire::icrc::IBA_TRANSPORT;
use std::net::Ipv4Addr;

/// Length of a GRH, and of the header that stands in its place.
pub(in crate::engine) const BYTES: usize = 40;

/// Length of BTH, DETH and ICRC together.
const AROUND: u32 = 12 + 8 + 4;
const UDP_BYTES: u32 = 8;
const TIME_TO_LIVE: u8 = 64;
const UDP: u8 = 17;

/// Returns the 40 bytes for a datagram of `bytes` bytes, with or without immediate data, whose packet had headers with these addresses.
pub(in crate::engine) fn of_datagram(
    addresses: Addresses,
    bytes: u32,
    immediate: bool,
) -> [u8; BYTES] {
    let packet = AROUND + if immediate { 4 } else { 0 } + bytes.next_multiple_of(4);
    match addresses {
        Addresses::V4(source, destination) => ipv4(source, destination, UDP_BYTES + packet),
        Addresses::V6(source, destination) => {
            global::header(UDP, low_16(UDP_BYTES + packet), source, destination)
        }
        Addresses::Grh(source, destination) => {
            global::header(IBA_TRANSPORT, low_16(packet), source, destination)
        }
    }
}

fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, payload: u32) -> [u8; BYTES] {
    let mut grh = [0; BYTES];
    let header = &mut grh[20..];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&low_16(20 + payload).to_be_bytes());
    header[6] = 0x40; // not to be fragmented
    header[8] = TIME_TO_LIVE;
    header[9] = UDP;
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    grh
}

/// Returns the low 16 bits of a length. No length is larger, since a datagram is at most an MTU long.
fn low_16(length: u32) -> u16 {
    let [_, _, high, low] = length.to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// Returns the checksum of an IPv4 header whose checksum field is 0.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let [_, _, high, low] = ((folded & 0xffff) + (folded >> 16)).to_be_bytes();
    !u16::from_be_bytes([high, low])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::Name;

    const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const THERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    #[test]
    fn the_ipv4_header_is_one_that_ip_accepts() {
        let grh = of_datagram(Addresses::V4(HERE, THERE), 5, true);
        assert_eq!(grh[..20], [0; 20]);
        assert_eq!(grh[20], 0x45);
        assert_eq!(grh[22..24], [0, 20 + 32 + 4 + 8]);
        assert_eq!(grh[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        // The sum over a header with its checksum is 0.
        assert_eq!(checksum(&grh[20..]), 0);
    }

    #[test]
    fn a_grh_and_an_ipv6_header_differ_in_next_header_and_length() {
        let [here, there] = [HERE, THERE].map(|ip| Name::LinkLocal.gid(ip));
        let v1 = of_datagram(Addresses::Grh(here.into(), there.into()), 5, true);
        let v2 = of_datagram(Addresses::V6(here.into(), there.into()), 5, true);
        assert_eq!(v1[..8], [0x60, 0, 0, 0, 0, 24 + 4 + 8, 0x1b, 64]);
        assert_eq!(v2[..8], [0x60, 0, 0, 0, 0, 8 + 24 + 4 + 8, 17, 64]);
        for header in [v1, v2] {
            assert_eq!(header[8..24], here);
            assert_eq!(header[24..], there);
        }
    }

    #[test]
    fn the_checksum_is_that_of_a_published_example() {
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }
}
