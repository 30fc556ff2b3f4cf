//! The contents of a packet besides its addressing: one variant per kind, with its extended headers.

use crate::wire::headers::{Aeth, AtomicEth, Reth};
use crate::wire::opcode::{BthOpcode, Position};

/// The kind of a packet, with its extended headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Part of a SEND.
    Send {
        /// True if a message starts with this packet.
        starts: bool,
        /// The end of the message, if the message ends with this packet.
        end: Option<SendEnd>,
    },
    /// Part of an RDMA WRITE.
    Write {
        /// The place where the message goes, if the message starts with this packet.
        start: Option<Reth>,
        /// The end of the message, if the message ends with this packet.
        end: Option<WriteEnd>,
    },
    /// A request for remote bytes.
    ReadRequest(Reth),
    /// Part of the answer to a READ request.
    ReadResponse(ReadPart),
    /// ACK, NAK or RNR NAK.
    Acknowledge(Aeth),
    /// A request for an atomic.
    Atomic(AtomicEth),
    /// The answer to an atomic.
    AtomicAcknowledge {
        /// The outcome of the atomic.
        aeth: Aeth,
        /// The value before the operation.
        original: u64,
    },
}

/// What the last packet of a SEND carries besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// The SEND ends with its payload.
    Plain,
    /// The SEND ends with immediate data.
    Immediate(u32),
    /// The SEND ends with a key to invalidate.
    Invalidate(u32),
}

/// What the last packet of a WRITE carries besides data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// The WRITE ends with its payload.
    Plain,
    /// The WRITE ends with immediate data, which consumes a receive WQE.
    Immediate(u32),
}

/// One packet of a READ response. All packets but the middle ones have an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPart {
    /// The first of several packets.
    First(Aeth),
    /// A packet that is neither first nor last.
    Middle,
    /// The last of several packets.
    Last(Aeth),
    /// The packet that is the whole response.
    Only(Aeth),
}

impl ReadPart {
    /// Returns the part at `position`, with `aeth` if such a part has an AETH.
    pub const fn at(position: Position, aeth: Aeth) -> Self {
        match position {
            Position::First => Self::First(aeth),
            Position::Middle => Self::Middle,
            Position::Last => Self::Last(aeth),
            Position::Only => Self::Only(aeth),
        }
    }

    /// Returns whether the response ends with this part.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last(_) | Self::Only(_))
    }
}

impl Body {
    /// Returns the RC opcode of a packet with this body.
    pub const fn opcode(&self) -> BthOpcode {
        use BthOpcode as Op;
        match self {
            Self::Send {
                starts: true,
                end: None,
            } => Op::SEND_FIRST,
            Self::Send {
                starts: false,
                end: None,
            } => Op::SEND_MIDDLE,
            Self::Send {
                starts: false,
                end: Some(SendEnd::Plain),
            } => Op::SEND_LAST,
            Self::Send {
                starts: true,
                end: Some(SendEnd::Plain),
            } => Op::SEND_ONLY,
            Self::Send {
                starts: false,
                end: Some(SendEnd::Immediate(_)),
            } => Op::SEND_LAST_IMM,
            Self::Send {
                starts: true,
                end: Some(SendEnd::Immediate(_)),
            } => Op::SEND_ONLY_IMM,
            Self::Send {
                starts: false,
                end: Some(SendEnd::Invalidate(_)),
            } => Op::SEND_LAST_INVALIDATE,
            Self::Send {
                starts: true,
                end: Some(SendEnd::Invalidate(_)),
            } => Op::SEND_ONLY_INVALIDATE,
            Self::Write {
                start: Some(_),
                end: None,
            } => Op::WRITE_FIRST,
            Self::Write {
                start: None,
                end: None,
            } => Op::WRITE_MIDDLE,
            Self::Write {
                start: None,
                end: Some(WriteEnd::Plain),
            } => Op::WRITE_LAST,
            Self::Write {
                start: None,
                end: Some(WriteEnd::Immediate(_)),
            } => Op::WRITE_LAST_IMM,
            Self::Write {
                start: Some(_),
                end: Some(WriteEnd::Plain),
            } => Op::WRITE_ONLY,
            Self::Write {
                start: Some(_),
                end: Some(WriteEnd::Immediate(_)),
            } => Op::WRITE_ONLY_IMM,
            Self::ReadRequest(_) => Op::READ_REQUEST,
            Self::ReadResponse(ReadPart::First(_)) => Op::READ_RESPONSE_FIRST,
            Self::ReadResponse(ReadPart::Middle) => Op::READ_RESPONSE_MIDDLE,
            Self::ReadResponse(ReadPart::Last(_)) => Op::READ_RESPONSE_LAST,
            Self::ReadResponse(ReadPart::Only(_)) => Op::READ_RESPONSE_ONLY,
            Self::Acknowledge(_) => Op::ACKNOWLEDGE,
            Self::Atomic(atomic) => atomic.opcode(),
            Self::AtomicAcknowledge { .. } => Op::ATOMIC_ACKNOWLEDGE,
        }
    }

    /// Writes the extended headers to `out`. Returns their length.
    pub(super) fn emit(&self, out: &mut [u8]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            out[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        match self {
            Self::Send {
                end: Some(SendEnd::Immediate(word) | SendEnd::Invalidate(word)),
                ..
            } => {
                put(&word.to_be_bytes());
            }
            Self::Send { .. } | Self::ReadResponse(ReadPart::Middle) => {}
            Self::Write { start, end } => {
                if let Some(reth) = start {
                    put(&reth.emit());
                }
                if let Some(WriteEnd::Immediate(word)) = end {
                    put(&word.to_be_bytes());
                }
            }
            Self::ReadRequest(reth) => put(&reth.emit()),
            Self::ReadResponse(
                ReadPart::First(aeth) | ReadPart::Last(aeth) | ReadPart::Only(aeth),
            )
            | Self::Acknowledge(aeth) => put(&aeth.emit()),
            Self::Atomic(atomic) => return atomic.emit(out),
            Self::AtomicAcknowledge { aeth, original } => {
                put(&aeth.emit());
                put(&original.to_be_bytes());
            }
        }
        at
    }
}
