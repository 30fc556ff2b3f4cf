//! The 40 bytes in front of a received datagram.
//!
//! With RoCE v2 over IPv4 the first 20 mean nothing and the last 20 are the IPv4 header of the packet; that is how
//! software (`ibv_init_ah_from_wc`) tells it from an IPv6 header. Source: annex A17 of the InfiniBand specification. On
//! `InfiniBand` it is the GRH itself (chapter 8 of the specification).

/// Bytes of a GRH, and of what stands in its place.
pub(super) const BYTES: usize = 40;

/// Headers behind the IPv4 header and the ICRC: UDP, BTH, DETH.
const AROUND: u32 = 8 + 12 + 8 + 4;
const TIME_TO_LIVE: u8 = 64;
const UDP: u8 = 17;

/// For a datagram of `bytes` bytes, with or without immediate data, between GIDs of the form `::ffff:a.b.c.d`.
pub(super) fn ipv4(
    source: &[u8; 16],
    destination: &[u8; 16],
    bytes: u32,
    immediate: bool,
) -> [u8; BYTES] {
    let length = 20 + AROUND + if immediate { 4 } else { 0 } + bytes.next_multiple_of(4);
    let mut grh = [0; BYTES];
    let header = &mut grh[20..];
    header[0] = 0x45;
    // A datagram is at most an MTU long.
    let [_, _, high, low] = length.to_be_bytes();
    header[2..4].copy_from_slice(&[high, low]);
    header[6] = 0x40; // not to be fragmented
    header[8] = TIME_TO_LIVE;
    header[9] = UDP;
    header[12..16].copy_from_slice(&source[12..]);
    header[16..20].copy_from_slice(&destination[12..]);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    grh
}

/// For a datagram of `bytes` bytes, with or without immediate data, between `InfiniBand` GIDs.
pub(super) fn infiniband(
    source: &[u8; 16],
    destination: &[u8; 16],
    bytes: u32,
    immediate: bool,
) -> [u8; BYTES] {
    /// IP version 6; traffic class and flow label 0.
    const VERSION: u8 = 6 << 4;
    /// What follows is a BTH.
    const IBA_TRANSPORT: u8 = 0x1b;
    // BTH, DETH and ICRC.
    let length = 12 + 8 + 4 + if immediate { 4 } else { 0 } + bytes.next_multiple_of(4);
    let mut grh = [0; BYTES];
    grh[0] = VERSION;
    let [_, _, high, low] = length.to_be_bytes();
    grh[4..6].copy_from_slice(&[high, low]);
    grh[6] = IBA_TRANSPORT;
    grh[7] = TIME_TO_LIVE;
    grh[8..24].copy_from_slice(source);
    grh[24..].copy_from_slice(destination);
    grh
}

/// The checksum of an IPv4 header whose own field is 0.
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

    #[test]
    fn the_header_is_one_that_ip_accepts() {
        let gid = |last| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last];
        let grh = ipv4(&gid(1), &gid(2), 5, true);
        assert_eq!(grh[..20], [0; 20]);
        assert_eq!(grh[20], 0x45);
        assert_eq!(grh[22..24], [0, 20 + 32 + 4 + 8]);
        assert_eq!(grh[32..], [10, 0, 0, 1, 10, 0, 0, 2]);
        // The sum over a header with its checksum is 0.
        assert_eq!(checksum(&grh[20..]), 0);
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
