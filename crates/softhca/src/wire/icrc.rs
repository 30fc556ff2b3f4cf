//! The invariant CRC of RoCE and the flow (addresses and ports) that it covers.
//!
//! Source: InfiniBand Architecture "Annex A17: RoCEv2", ICRC; for v1 volume 1, "Invariant CRC", and "Annex A16: RoCE". The ICRC is a CRC-32
//! over eight 0xff bytes (in the place of an LRH), IP and UDP header (in v1 GRH) and everything after them. Fields that routers change
//! count as all ones. In IPv4 these are TOS, TTL and header checksum; in IPv6 and GRH traffic class, flow label and hop limit. The UDP
//! checksum and byte 4 of the BTH are all ones, too. The ICRC is sent little-endian after the padding.
//!
//! Identification and flags of IPv4 are covered too, but a UDP socket neither sets nor sees them. By convention they are what Linux sends
//! from an unconnected socket with IP_MTU_DISCOVER=DO: identification 0, DF set. Between softhcas that is exact. A carrier that sees whole
//! frames takes them from the frame.

use super::headers::Bth;
pub use crate::envelope::Addresses;

use crate::envelope::{Destination, Source, UNFRAGMENTED};
use crate::link;
use std::net::Ipv4Addr;

/// Length of the ICRC at the end of a packet.
pub const ICRC_BYTES: usize = 4;

/// The UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// Value of the next header in a GRH: a BTH follows.
pub const IBA_TRANSPORT: u8 = 0x1b;

/// The path of a packet: what the ICRC covers besides the packet itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The addresses, source first.
    pub addresses: Addresses,
    /// UDP source port; on Ethernet it distinguishes flows. Without UDP it does not count.
    pub source_port: u16,
    /// UDP destination port, [`ROCE_PORT`]. Without UDP it does not count.
    pub destination_port: u16,
    /// Identification, flags and fragment offset of an IPv4 header.
    pub fragment_fields: [u8; 4],
}

impl Flow {
    /// [`Self::fragment_fields`] of packets that softhca sends: identification 0, DF set.
    pub const UNFRAGMENTED: [u8; 4] = UNFRAGMENTED;

    /// Returns the flow over IPv4 between two RoCE ports.
    pub const fn v4(source: Ipv4Addr, destination: Ipv4Addr) -> Self {
        Self {
            addresses: Addresses::V4(source, destination),
            source_port: ROCE_PORT,
            destination_port: ROCE_PORT,
            fragment_fields: Self::UNFRAGMENTED,
        }
    }

    /// Returns the flow of packets that the HCA at `own` sends to `there`.
    pub fn outbound(own: Ipv4Addr, there: &Destination) -> Self {
        let own = link::address_with(own, there.path_bits);
        Self {
            addresses: there.envelope.addresses(own, there.address),
            ..Self::v4(own, there.address)
        }
    }

    /// Returns the flow of packets that have come to the HCA at `own` from `source`.
    pub fn inbound(source: &Source, own: Ipv4Addr) -> Self {
        let own = link::address_with(own, source.path_bits);
        Self {
            addresses: source.envelope.addresses(*source.address.ip(), own),
            source_port: source.address.port(),
            destination_port: ROCE_PORT,
            fragment_fields: source.fragment_fields,
        }
    }

    /// Returns the ICRC of `covered`: the packet from the BTH up to the last padding byte (that is, without the ICRC).
    ///
    /// The little-endian bytes of this number go on the wire.
    pub fn icrc(&self, covered: &[u8]) -> u32 {
        // The headers and the BTH are put in one piece: for IPv4 that is 48 bytes, a good length for the CRC's inner loop.
        let mut prefix = [0xff; 8 + 40 + 8 + Bth::BYTES];
        let used = 8 + self.pseudo_headers(&mut prefix[8..], covered.len());
        let (bth, rest) = covered.split_at(covered.len().min(Bth::BYTES));
        prefix[used..used + bth.len()].copy_from_slice(bth);
        if bth.len() > 4 {
            prefix[used + 4] = 0xff;
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&prefix[..used + bth.len()]);
        crc.update(rest);
        crc.finalize()
    }

    /// Writes the masked IP and UDP headers, or the GRH; returns their length (28, 48 or 40).
    fn pseudo_headers(&self, out: &mut [u8], covered_bytes: usize) -> usize {
        let udp_bytes = 8 + covered_bytes + ICRC_BYTES;
        let ip_bytes = match self.addresses {
            Addresses::V4(source, destination) => {
                let total = be16(20 + udp_bytes);
                out[..20].copy_from_slice(&[
                    0x45, 0xff, total[0], total[1], 0, 0, 0, 0, 0xff, 17, 0xff, 0xff, 0, 0, 0, 0,
                    0, 0, 0, 0,
                ]);
                out[4..8].copy_from_slice(&self.fragment_fields);
                out[12..16].copy_from_slice(&source.octets());
                out[16..20].copy_from_slice(&destination.octets());
                20
            }
            Addresses::V6(source, destination) => {
                let length = be16(udp_bytes);
                out[..8].copy_from_slice(&[0x6f, 0xff, 0xff, 0xff, length[0], length[1], 17, 0xff]);
                out[8..24].copy_from_slice(&source.octets());
                out[24..40].copy_from_slice(&destination.octets());
                40
            }
            Addresses::Grh(source, destination) => {
                let length = be16(covered_bytes + ICRC_BYTES);
                out[..8].copy_from_slice(&[
                    0x6f,
                    0xff,
                    0xff,
                    0xff,
                    length[0],
                    length[1],
                    IBA_TRANSPORT,
                    0xff,
                ]);
                out[8..24].copy_from_slice(&source.octets());
                out[24..40].copy_from_slice(&destination.octets());
                return 40;
            }
        };
        let udp = &mut out[ip_bytes..ip_bytes + 8];
        udp[..2].copy_from_slice(&self.source_port.to_be_bytes());
        udp[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        udp[4..6].copy_from_slice(&be16(udp_bytes));
        udp[6..8].copy_from_slice(&[0xff; 2]);
        ip_bytes + 8
    }
}

/// Returns the low 16 bits, big-endian. A longer packet cannot come from a UDP socket; its ICRC just does not match.
fn be16(bytes: usize) -> [u8; 2] {
    let raw = bytes.to_be_bytes();
    [raw[raw.len() - 2], raw[raw.len() - 1]]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv6Addr;

    /// Returns an RDMA WRITE ONLY of "0123456789abcde" to QP 0x11.
    fn write_packet() -> Vec<u8> {
        let mut covered = vec![0x0a, 0x50, 0xff, 0xff, 0, 0, 0, 0x11, 0x80, 0, 0, 0x64];
        covered.extend([
            0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0x10, 0x01, 0, 0, 0, 15,
        ]);
        covered.extend(b"0123456789abcde\0");
        covered
    }

    /// The expected ICRC was computed by scapy 2.5, `BTH.compute_icrc`.
    #[test]
    fn a_fixed_packet_over_ipv4_has_the_icrc_that_scapy_gives() {
        let flow = Flow {
            source_port: 49152,
            ..Flow::v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2))
        };
        assert_eq!(
            flow.icrc(&write_packet()).to_le_bytes(),
            [0xdf, 0x95, 0x84, 0xcf]
        );
    }

    /// The expected ICRC was computed by zlib.crc32 over the pseudo headers written out byte by byte.
    #[test]
    fn a_fixed_packet_over_ipv6_has_the_icrc_of_the_recipe() {
        let host = |number| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number);
        let flow = Flow {
            addresses: Addresses::V6(host(1), host(2)),
            source_port: 49152,
            destination_port: ROCE_PORT,
            fragment_fields: Flow::UNFRAGMENTED,
        };
        assert_eq!(
            flow.icrc(&write_packet()).to_le_bytes(),
            [0x78, 0xd8, 0x25, 0x1a]
        );
    }

    /// The expected ICRC was computed by zlib.crc32 over eight 0xff bytes, the GRH with its changeable fields all ones, and the packet.
    #[test]
    fn a_fixed_packet_of_v1_has_the_icrc_of_the_recipe() {
        let host = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x0aff, 0xfe00, last);
        for source_port in [0, 49152] {
            let flow = Flow {
                addresses: Addresses::Grh(host(1), host(2)),
                source_port,
                destination_port: ROCE_PORT,
                fragment_fields: [1, 2, 3, 4],
            };
            let icrc = flow.icrc(&write_packet());
            assert_eq!(icrc.to_le_bytes(), [0x81, 0x4d, 0xf8, 0x3f]);
        }
    }

    #[test]
    fn congestion_bits_are_not_covered_and_everything_else_is() {
        let flow = Flow::v4(Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 2));
        let packet: Vec<u8> = (0..40).collect();
        let reference = flow.icrc(&packet);
        for index in 0..packet.len() {
            let mut changed = packet.clone();
            changed[index] ^= 0x40;
            assert_eq!(flow.icrc(&changed) == reference, index == 4, "byte {index}");
        }
    }

    #[test]
    fn any_length_is_taken() {
        let flow = Flow {
            addresses: Addresses::V6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            source_port: 1,
            destination_port: 2,
            fragment_fields: Flow::UNFRAGMENTED,
        };
        for bytes in 0..16 {
            flow.icrc(&vec![0x55; bytes]);
        }
    }
}
