//! Doorbell records in memory and doorbell registers in a UAR page.
//!
//! Source: PRM "Doorbell Record", "UAR Page Format"; `mlx5_bf_copy`, `mlx5_cq_update_cons_index` in rdma-core.
//! Both records are two big-endian dwords on an 8-byte boundary.

/// Doorbell record of a queue pair.
pub mod qp_record {
    /// Byte offset of the receive counter: receive WQEs posted, modulo 2^16.
    pub const RCV: usize = 0;
    /// Byte offset of the send counter: WQEBBs posted, modulo 2^16.
    pub const SND: usize = 4;
    /// Bytes of the record: one big-endian 32-bit counter for each direction.
    pub const BYTES: usize = 8;
}

/// Doorbell record of a completion queue.
pub mod cq_record {
    /// Byte offset of the consumer index, 24 bits.
    pub const CONSUMER_INDEX: usize = 0;
    /// Byte offset of the arm word: sequence `[29:28]`, solicited only `[24]`, consumer index `[23:0]`.
    pub const ARM: usize = 4;
    /// Bytes of the record: the consumer counter and the arm word, 32 bits each, big-endian.
    pub const BYTES: usize = 8;
    /// Mask of the consumer index.
    pub const INDEX_MASK: u32 = 0x00ff_ffff;
}

/// A UAR page of 4 KiB.
pub mod uar {
    /// Bytes of a UAR page, whatever the page size of the CPU.
    pub const PAGE_BYTES: usize = 4096;
    /// Doorbell registers in a page.
    pub const REGISTERS: usize = 2;
    /// Byte offset of the first register.
    pub const FIRST_REGISTER: usize = 0x800;
    /// Distance of two registers.
    pub const REGISTER_STRIDE: usize = 0x200;
    /// A register has two halves; software may alternate between them, they mean the same.
    pub const HALF: usize = 0x100;
    /// Byte offset of the register for send queues without a doorbell record: the value that software stores in it says how far to
    /// run.
    pub const NO_RECORD: usize = 0x600;
    /// Byte offset at which completion queues are armed.
    pub const CQ_ARM: usize = 0x20;

    /// Byte offset of register `index` (0 or 1).
    #[must_use]
    pub const fn register(index: usize) -> usize {
        FIRST_REGISTER + index * REGISTER_STRIDE
    }
}

/// The 8 bytes that ring a send queue: `next_index << 8` and `qpn << 8`, both big-endian. The result is a host-order word for one
/// 8-byte store on a little-endian machine.
///
/// `next_index` is the index after the last WQE posted. Software may also store the first 8 bytes of its last WQE.
#[must_use]
pub const fn doorbell_value(next_index: u16, qpn: u32) -> u64 {
    let first = ((next_index as u32) << 8).to_be_bytes();
    let second = (qpn << 8).to_be_bytes();
    u64::from_le_bytes([
        first[0], first[1], first[2], first[3], second[0], second[1], second[2], second[3],
    ])
}

/// Returns the queue pair that a doorbell word (see [`doorbell_value`]) names.
#[must_use]
pub const fn doorbell_qpn(value: u64) -> u32 {
    let b = value.to_le_bytes();
    u32::from_be_bytes([0, b[4], b[5], b[6]])
}

/// Returns the index that a doorbell word carries: the next one, or that of the last WQE.
#[must_use]
pub const fn doorbell_index(value: u64) -> u16 {
    let b = value.to_le_bytes();
    u16::from_be_bytes([b[1], b[2]])
}

/// Returns the index after the last WQE posted, that a doorbell word names: itself, or by the beginning of that WQE, which has a length.
#[must_use]
pub const fn doorbell_next(value: u64) -> u16 {
    /// `ds`: 16-byte units of the WQE, of which a WQEBB has four.
    const UNITS: u8 = 0x3f;
    let units = value.to_le_bytes()[7] & UNITS;
    doorbell_index(value).wrapping_add((units as u16).div_ceil(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_doorbell_has_the_bytes_of_the_first_half_of_a_control_segment() {
        let value = doorbell_value(0x1234, 0x00ab_cdef);
        assert_eq!(value.to_le_bytes(), [0, 0x12, 0x34, 0, 0xab, 0xcd, 0xef, 0]);
        assert_eq!(doorbell_qpn(value), 0x00ab_cdef);
        assert_eq!(doorbell_index(value), 0x1234);
    }

    #[test]
    fn the_next_index_is_in_the_word_or_follows_from_the_length_of_its_wqe() {
        let of = |units: u8| {
            let mut bytes = doorbell_value(0xffff, 5).to_le_bytes();
            bytes[7] = units;
            doorbell_next(u64::from_le_bytes(bytes))
        };
        let units = [0, 1, 4, 5, 8, 63];
        assert_eq!(units.map(of), [0xffff, 0, 0, 1, 1, 15]);
    }

    #[test]
    fn a_page_has_two_registers_of_two_halves() {
        assert_eq!((uar::register(0), uar::register(1)), (0x800, 0xa00));
        assert_eq!(uar::register(1) + uar::HALF, 0xb00);
    }
}
