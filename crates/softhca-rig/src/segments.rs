//! Segments of send WQEs, as bytes.

use mlx5_prm::be::{Be32, Be64};
use mlx5_prm::wqe::{DataSeg, DatagramSeg, InlineHeader, RaddrSeg, XrcSeg};

/// Returns a remote address segment.
pub fn raddr(address: u64, rkey: u32) -> [u8; 16] {
    bytemuck::cast(RaddrSeg {
        raddr: Be64::new(address),
        rkey: Be32::new(rkey),
        ..RaddrSeg::default()
    })
}

/// From GID 3: RoCE v2 over IPv4.
pub fn datagram(gid: [u8; 16], qpn: u32, qkey: u32) -> [u8; 48] {
    datagram_from(3, gid, qpn, qkey)
}

/// From this entry of the GID table.
pub fn datagram_from(index: u8, gid: [u8; 16], qpn: u32, qkey: u32) -> [u8; 48] {
    let to = DatagramSeg {
        qkey: Be32::new(qkey),
        dqp_dct: Be32::new(DatagramSeg::EXTENDED | qpn),
        hop_limit: 64,
        rgid: gid,
        ..DatagramSeg::default()
    };
    bytemuck::cast(to.with_source_gid(index))
}

/// Returns a segment that names the receive queue of an XRC target.
pub fn xrc(srqn: u32) -> [u8; 16] {
    bytemuck::cast(XrcSeg {
        xrc_srqn: Be32::new(srqn),
        ..XrcSeg::default()
    })
}

/// Returns a data segment.
pub fn data(bytes: u32, lkey: u32, address: u64) -> [u8; 16] {
    bytemuck::cast(DataSeg {
        byte_count: Be32::new(bytes),
        lkey: Be32::new(lkey),
        addr: Be64::new(address),
    })
}

/// Returns an inline segment with its padding.
pub fn inline(bytes: &[u8]) -> Vec<u8> {
    let header = InlineHeader::new(bytes.len().try_into().unwrap());
    let mut all = bytemuck::bytes_of(&header).to_vec();
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(16), 0);
    all
}
