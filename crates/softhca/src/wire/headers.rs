//! The headers of RoCEv2: BTH and the extended transport headers, each with its bytes.
//!
//! Source: IBTA volume 1, chapter 9 "Transport Layer" (BTH, RETH, AETH, AtomicETH, AtomicAckETH, ImmDt, IETH). All fields are big-endian.
//! `emit` writes whole headers, with reserved bits 0; `parse` ignores reserved bits.

mod atomic;
mod fields;

pub use crate::transport::{AtomicEth, AtomicOp, NakCode};
pub use atomic::MaskedAtomicEth;

use super::opcode::BthOpcode;
use super::psn::Psn;
use crate::envelope::Envelope;
use crate::partition::PkeyTable;
use fields::{be32, be64};

/// Base transport header: the first 12 bytes of every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bth {
    /// The opcode, which says what the packet is.
    pub opcode: BthOpcode,
    /// True if the receiver's completion may wake software that waits (solicited event).
    pub solicited: bool,
    /// Migration request bit; Linux sets it, softhca does not read it.
    pub migrated: bool,
    /// Bytes (0 to 3) that fill the payload up to a multiple of 4.
    pub pad: u8,
    /// Partition key.
    pub pkey: u16,
    /// QP that the packet is for, 24 bits.
    pub dest_qpn: u32,
    /// True if the sender wants an acknowledge for this packet.
    pub ack_request: bool,
    /// Sequence number of the packet.
    pub psn: Psn,
}

impl Bth {
    /// Length of the header on the wire.
    pub const BYTES: usize = 12;
    /// The key of the default partition, full member.
    pub const DEFAULT_PKEY: u16 = PkeyTable::DEFAULT_PKEY;

    /// Reads the header. Returns it and the 4-bit transport version, which must be 0.
    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> (Self, u8) {
        let flags = bytes[1];
        let dest_qpn = u32::from_be_bytes([0, bytes[5], bytes[6], bytes[7]]);
        let psn = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]);
        let bth = Self {
            opcode: BthOpcode(bytes[0]),
            solicited: flags & 0x80 != 0,
            migrated: flags & 0x40 != 0,
            pad: flags >> 4 & 3,
            pkey: u16::from_be_bytes([bytes[2], bytes[3]]),
            dest_qpn,
            ack_request: bytes[8] & 0x80 != 0,
            psn: Psn::new(psn),
        };
        (bth, flags & 0xf)
    }

    /// Returns the partition key of a packet; the default key if the packet is too short to have one.
    pub(crate) fn pkey_of(packet: &[u8]) -> u16 {
        match packet {
            [_, _, high, low, ..] => u16::from_be_bytes([*high, *low]),
            _ => Self::DEFAULT_PKEY,
        }
    }

    /// Sets the partition key of a packet that is not sealed yet.
    pub(crate) fn set_pkey(packet: &mut [u8], pkey: u16) {
        if let [_, _, high, low, ..] = packet {
            [*high, *low] = pkey.to_be_bytes();
        }
    }

    pub(crate) fn emit(&self) -> [u8; Self::BYTES] {
        let [_, q2, q1, q0] = self.dest_qpn.to_be_bytes();
        let [_, p2, p1, p0] = self.psn.value().to_be_bytes();
        let [k1, k0] = self.pkey.to_be_bytes();
        let flags =
            u8::from(self.solicited) << 7 | u8::from(self.migrated) << 6 | (self.pad & 3) << 4;
        [
            self.opcode.0,
            flags,
            k1,
            k0,
            0,
            q2,
            q1,
            q0,
            u8::from(self.ack_request) << 7,
            p2,
            p1,
            p0,
        ]
    }
}

/// RDMA extended transport header: where a WRITE goes or a READ comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Remote virtual address.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole message, in bytes.
    pub bytes: u32,
}

impl Reth {
    /// Length of the header on the wire.
    pub const BYTES: usize = 16;

    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            va: be64(bytes, 0),
            rkey: be32(bytes, 8),
            bytes: be32(bytes, 12),
        }
    }

    pub(crate) fn emit(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.va.to_be_bytes());
        out[8..12].copy_from_slice(&self.rkey.to_be_bytes());
        out[12..].copy_from_slice(&self.bytes.to_be_bytes());
        out
    }
}

/// Datagram extended transport header: in front of every UD packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Queue key, which must be that of the receiver.
    pub qkey: u32,
    /// QP that sent the packet, 24 bits.
    pub source_qpn: u32,
    /// True if the sender used no GRH. This is bit 0 of the first reserved byte, between software HCAs on `InfiniBand` (see
    /// [`crate::link`]).
    pub without_grh: bool,
    /// The headers that the sender asked for. They are bits 1 to 3 of that reserved byte, 0 if the carrier keeps envelopes.
    pub envelope: Envelope,
    /// The LMC of the sender's port, 0 to 7: bits 4 to 6 of that reserved byte. It says which bits of the LID do not come from the GID.
    pub lmc: u8,
}

impl Deth {
    /// Length of the header on the wire.
    pub const BYTES: usize = 8;

    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            qkey: be32(bytes, 0),
            source_qpn: be32(bytes, 4) & 0xff_ffff,
            without_grh: bytes[4] & 1 != 0,
            envelope: Envelope::of_mark(bytes[4]),
            lmc: bytes[4] >> 4 & 7,
        }
    }

    pub(crate) fn emit(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.qkey.to_be_bytes());
        out[4..].copy_from_slice(&(self.source_qpn & 0xff_ffff).to_be_bytes());
        out[4] = (self.lmc & 7) << 4 | self.envelope.mark() | u8::from(self.without_grh);
        out
    }
}

/// XRC extended transport header, in front of every XRC request. It names the SRQ that receives, in 24 bits after 8 reserved bits (annex
/// A14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcEth {
    /// Number of the SRQ.
    pub srqn: u32,
}

impl XrcEth {
    /// Length of the header on the wire.
    pub const BYTES: usize = 4;

    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            srqn: be32(bytes, 0) & 0xff_ffff,
        }
    }

    pub(crate) fn emit(&self) -> [u8; Self::BYTES] {
        (self.srqn & 0xff_ffff).to_be_bytes()
    }
}

/// The meaning of an AETH's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// ACK: all packets up to the PSN of this packet have been carried out. `credits` has 5 bits; 31 means no end-to-end flow control.
    Ack {
        /// Encoded credit count.
        credits: u8,
    },
    /// RNR NAK: the receiver is not ready. Try again after the time that the 5-bit code `timer` stands for.
    RnrNak {
        /// Encoded delay; [`rnr_delay_ns`] decodes it.
        timer: u8,
    },
    /// NAK: the request is refused.
    Nak(NakCode),
    /// A syndrome that the standard reserves.
    Reserved(u8),
}

/// Value of `credits` of a responder that does no end-to-end flow control.
pub const NO_CREDITS: u8 = 31;

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// The outcome of the request.
    pub syndrome: Syndrome,
    /// Message sequence number: the number of messages that the responder has completed, 24 bits.
    pub msn: u32,
}

impl Aeth {
    /// Length of the header on the wire.
    pub const BYTES: usize = 4;

    pub(crate) fn parse(bytes: &[u8; Self::BYTES]) -> Self {
        let low = bytes[0] & 0x1f;
        let syndrome = match bytes[0] >> 5 {
            0 => Syndrome::Ack { credits: low },
            1 => Syndrome::RnrNak { timer: low },
            3 => Syndrome::Nak(NakCode(low)),
            _ => Syndrome::Reserved(bytes[0]),
        };
        Self {
            syndrome,
            msn: be32(bytes, 0) & 0xff_ffff,
        }
    }

    pub(crate) fn emit(&self) -> [u8; Self::BYTES] {
        let syndrome = match self.syndrome {
            Syndrome::Ack { credits } => credits & 0x1f,
            Syndrome::RnrNak { timer } => 0x20 | timer & 0x1f,
            Syndrome::Nak(NakCode(code)) => 0x60 | code & 0x1f,
            Syndrome::Reserved(byte) => byte,
        };
        let [_, m2, m1, m0] = self.msn.to_be_bytes();
        [syndrome, m2, m1, m0]
    }
}

/// Returns the delay in nanoseconds that the 5-bit RNR timer code stands for (IBTA "Encoding for RNR NAK Timer Field").
pub const fn rnr_delay_ns(code: u8) -> u64 {
    const HUNDREDTHS_OF_MS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    HUNDREDTHS_OF_MS[(code & 0x1f) as usize] as u64 * 10_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bth_bytes_both_ways() {
        let bytes = [
            0x0a, 0xf0, 0xff, 0xff, 0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd, 0xef,
        ];
        let bth = Bth {
            opcode: BthOpcode::WRITE_ONLY,
            solicited: true,
            migrated: true,
            pad: 3,
            pkey: 0xffff,
            dest_qpn: 0x12_3456,
            ack_request: true,
            psn: Psn::new(0xab_cdef),
        };
        assert_eq!(bth.emit(), bytes);
        assert_eq!(Bth::parse(&bytes), (bth, 0));
    }

    #[test]
    fn aeth_bytes_both_ways() {
        let cases = [
            (
                [0x1f, 0, 0, 1],
                Syndrome::Ack {
                    credits: NO_CREDITS,
                },
            ),
            ([0x2c, 0, 0, 1], Syndrome::RnrNak { timer: 12 }),
            ([0x60, 0, 0, 1], Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR)),
            ([0x61, 0, 0, 1], Syndrome::Nak(NakCode::INVALID_REQUEST)),
            ([0x62, 0, 0, 1], Syndrome::Nak(NakCode::REMOTE_ACCESS_ERROR)),
            (
                [0x63, 0, 0, 1],
                Syndrome::Nak(NakCode::REMOTE_OPERATIONAL_ERROR),
            ),
            ([0x81, 0, 0, 1], Syndrome::Reserved(0x81)),
            ([0x45, 0, 0, 1], Syndrome::Reserved(0x45)),
        ];
        for (bytes, syndrome) in cases {
            let aeth = Aeth { syndrome, msn: 1 };
            assert_eq!(Aeth::parse(&bytes), aeth);
            assert_eq!(aeth.emit(), bytes);
        }
    }

    #[test]
    fn the_rnr_table_has_its_ends_right() {
        assert_eq!(rnr_delay_ns(0), 655_360_000);
        assert_eq!(rnr_delay_ns(1), 10_000);
        assert_eq!(rnr_delay_ns(12), 640_000);
        assert_eq!(rnr_delay_ns(31), 491_520_000);
    }
}
