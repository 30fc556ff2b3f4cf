//! The contents of a packet, without its addressing: one variant per kind, with its extended headers.

use crate::wire::headers::{Aeth, AtomicEth, Reth};
use crate::wire::opcode::{BthOpcode, Position};

/// The kind of a packet, with its extended headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Part of a SEND.
    Send {
        /// A message starts here.
        starts: bool,
        /// A message ends here, in this way.
        end: Option<SendEnd>,
    },
    /// Part of an RDMA WRITE.
    Write {
        /// A message starts here: it goes to this place.
        start: Option<Reth>,
        /// A message ends here, in this way.
        end: Option<WriteEnd>,
    },
    /// Asks for remote bytes.
    ReadRequest(Reth),
    /// Part of the answer to a READ request.
    ReadResponse(ReadPart),
    /// ACK, NAK or RNR NAK.
    Acknowledge(Aeth),
    /// Asks for an atomic.
    Atomic(AtomicEth),
    /// The answer to an atomic.
    AtomicAcknowledge {
        /// Outcome.
        aeth: Aeth,
        /// Value before the operation.
        original: u64,
    },
}

/// How a SEND ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendEnd {
    /// With its payload.
    Plain,
    /// With immediate data.
    Immediate(u32),
    /// With a key to invalidate.
    Invalidate(u32),
}

/// How a WRITE ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// With its payload.
    Plain,
    /// With immediate data, which consumes a receive WQE.
    Immediate(u32),
}

/// One packet of a READ response; all but middle ones carry an AETH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPart {
    /// First of several.
    First(Aeth),
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last(Aeth),
    /// The whole response.
    Only(Aeth),
}

impl ReadPart {
    /// The part at `position`, with `aeth` where that part carries one.
    pub const fn at(position: Position, aeth: Aeth) -> Self {
        match position {
            Position::First => Self::First(aeth),
            Position::Middle => Self::Middle,
            Position::Last => Self::Last(aeth),
            Position::Only => Self::Only(aeth),
        }
    }

    /// The message ends with this part.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last(_) | Self::Only(_))
    }
}

impl Body {
    /// Returns the RC opcode that says so.
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

    /// Writes the extended headers; returns their length.
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
