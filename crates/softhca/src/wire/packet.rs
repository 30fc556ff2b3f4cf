//! A RoCEv2 packet: parsed from, and written to, the payload of a UDP datagram.
//!
//! `BTH | extended headers | payload | pad | ICRC`. Parsing is total: any bytes give a packet or a [`PacketError`], never a
//! panic. It checks form only; whether a packet makes sense is for the requester and the responder to say, and whether it is
//! intact for [`icrc_matches`].

use super::headers::{Aeth, AtomicEth, Bth, MaskedAtomicEth, Reth};
use super::icrc::{Flow, ICRC_BYTES};
use super::opcode::{BthOpcode, Position};
use super::psn::Psn;

/// The longest run of headers: BTH and the masked atomic header.
pub const MAX_HEAD_BYTES: usize = Bth::BYTES + MaskedAtomicEth::BYTES;
/// What a packet needs besides its payload, at most: headers, padding, ICRC.
pub const MAX_OVERHEAD_BYTES: usize = MAX_HEAD_BYTES + 3 + ICRC_BYTES;

/// A packet in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Who it is for, its number and its flags.
    pub head: Head,
    /// What it says.
    pub body: Body,
    /// Message bytes, without padding. Empty unless the body is a SEND, a WRITE or a READ response.
    pub payload: &'a [u8],
}

/// What a BTH says besides the kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// QP that the packet is for, 24 bits.
    pub dest_qpn: u32,
    /// Number of the packet.
    pub psn: Psn,
    /// The sender wants an acknowledge.
    pub ack_request: bool,
    /// Solicited event.
    pub solicited: bool,
}

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

/// Why bytes are not a packet that an RC QP understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// Shorter than its headers and ICRC.
    #[error("{bytes} bytes, but {opcode:?} needs at least {needed}")]
    Short {
        /// What the first byte says, 0 if there is none.
        opcode: BthOpcode,
        /// Length found.
        bytes: usize,
        /// Shortest possible length.
        needed: usize,
    },
    /// Transport version other than 0.
    #[error("transport version {0}, not 0")]
    Version(u8),
    /// Another service or a reserved operation.
    #[error("{0:?} is not an RC operation")]
    Opcode(BthOpcode),
    /// More padding than payload.
    #[error("{pad} bytes of padding in {payload} bytes of payload")]
    Pad {
        /// The BTH's pad count.
        pad: u8,
        /// Bytes between headers and ICRC.
        payload: usize,
    },
    /// Bytes behind the headers of a packet that has no payload.
    #[error("{bytes} bytes behind the headers of {opcode:?}")]
    Surplus {
        /// What the packet is.
        opcode: BthOpcode,
        /// Bytes found.
        bytes: usize,
    },
    /// A masked atomic on an operand that is neither 4 nor 8 bytes.
    #[error("masked atomic on {0} bytes, not 4 or 8")]
    Operand(u8),
}

impl<'a> Packet<'a> {
    /// Reads the payload of a UDP datagram, ICRC included (but not verified).
    pub fn parse(datagram: &'a [u8]) -> Result<Self, PacketError> {
        let mut reader = Reader {
            opcode: BthOpcode(datagram.first().copied().unwrap_or(0)),
            whole: datagram,
            at: 0,
        };
        let (bth, version) = Bth::parse(reader.take()?);
        if version != 0 {
            return Err(PacketError::Version(version));
        }
        let body = reader.body(bth.opcode)?;
        let payload = reader.payload(bth.pad)?;
        let carries = matches!(
            body,
            Body::Send { .. } | Body::Write { .. } | Body::ReadResponse(_)
        );
        if !carries && !payload.is_empty() {
            return Err(PacketError::Surplus {
                opcode: bth.opcode,
                bytes: payload.len(),
            });
        }
        let head = Head {
            dest_qpn: bth.dest_qpn,
            psn: bth.psn,
            ack_request: bth.ack_request,
            solicited: bth.solicited,
        };
        Ok(Self {
            head,
            body,
            payload,
        })
    }
}

/// Takes headers off the front; always leaves room for the ICRC.
struct Reader<'a> {
    opcode: BthOpcode,
    whole: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], PacketError> {
        let needed = self.at + N + ICRC_BYTES;
        let header = self
            .whole
            .get(self.at..)
            .and_then(|rest| rest.first_chunk::<N>());
        match header {
            Some(header) if self.whole.len() >= needed => {
                self.at += N;
                Ok(header)
            }
            _ => Err(PacketError::Short {
                opcode: self.opcode,
                bytes: self.whole.len(),
                needed,
            }),
        }
    }

    fn word(&mut self) -> Result<u32, PacketError> {
        Ok(u32::from_be_bytes(*self.take::<4>()?))
    }

    fn reth(&mut self) -> Result<Reth, PacketError> {
        Ok(Reth::parse(self.take()?))
    }

    fn aeth(&mut self) -> Result<Aeth, PacketError> {
        Ok(Aeth::parse(self.take()?))
    }

    fn body(&mut self, opcode: BthOpcode) -> Result<Body, PacketError> {
        use BthOpcode as Op;
        Ok(match opcode {
            Op::SEND_FIRST => Body::Send {
                starts: true,
                end: None,
            },
            Op::SEND_MIDDLE => Body::Send {
                starts: false,
                end: None,
            },
            Op::SEND_LAST => Body::Send {
                starts: false,
                end: Some(SendEnd::Plain),
            },
            Op::SEND_ONLY => Body::Send {
                starts: true,
                end: Some(SendEnd::Plain),
            },
            Op::SEND_LAST_IMM | Op::SEND_ONLY_IMM => Body::Send {
                starts: opcode == Op::SEND_ONLY_IMM,
                end: Some(SendEnd::Immediate(self.word()?)),
            },
            Op::SEND_LAST_INVALIDATE | Op::SEND_ONLY_INVALIDATE => Body::Send {
                starts: opcode == Op::SEND_ONLY_INVALIDATE,
                end: Some(SendEnd::Invalidate(self.word()?)),
            },
            Op::WRITE_FIRST => Body::Write {
                start: Some(self.reth()?),
                end: None,
            },
            Op::WRITE_MIDDLE => Body::Write {
                start: None,
                end: None,
            },
            Op::WRITE_LAST => Body::Write {
                start: None,
                end: Some(WriteEnd::Plain),
            },
            Op::WRITE_LAST_IMM => Body::Write {
                start: None,
                end: Some(WriteEnd::Immediate(self.word()?)),
            },
            Op::WRITE_ONLY => Body::Write {
                start: Some(self.reth()?),
                end: Some(WriteEnd::Plain),
            },
            Op::WRITE_ONLY_IMM => Body::Write {
                start: Some(self.reth()?),
                end: Some(WriteEnd::Immediate(self.word()?)),
            },
            Op::READ_REQUEST => Body::ReadRequest(self.reth()?),
            Op::READ_RESPONSE_FIRST => Body::ReadResponse(ReadPart::First(self.aeth()?)),
            Op::READ_RESPONSE_MIDDLE => Body::ReadResponse(ReadPart::Middle),
            Op::READ_RESPONSE_LAST => Body::ReadResponse(ReadPart::Last(self.aeth()?)),
            Op::READ_RESPONSE_ONLY => Body::ReadResponse(ReadPart::Only(self.aeth()?)),
            Op::ACKNOWLEDGE => Body::Acknowledge(self.aeth()?),
            Op::ATOMIC_ACKNOWLEDGE => Body::AtomicAcknowledge {
                aeth: self.aeth()?,
                original: u64::from_be_bytes(*self.take()?),
            },
            Op::COMPARE_SWAP | Op::FETCH_ADD => {
                Body::Atomic(AtomicEth::parse(self.take()?, opcode))
            }
            Op::MASKED_COMPARE_SWAP | Op::MASKED_FETCH_ADD => Body::Atomic(
                MaskedAtomicEth::parse(self.take()?, opcode).map_err(PacketError::Operand)?,
            ),
            other => return Err(PacketError::Opcode(other)),
        })
    }

    fn payload(&self, pad: u8) -> Result<&'a [u8], PacketError> {
        let padded = &self.whole[self.at..self.whole.len() - ICRC_BYTES];
        let bytes = padded.len().checked_sub(usize::from(pad));
        bytes.map(|bytes| &padded[..bytes]).ok_or(PacketError::Pad {
            pad,
            payload: padded.len(),
        })
    }
}

impl Body {
    /// The opcode that says so.
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
    fn emit(&self, out: &mut [u8]) -> usize {
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

/// Writes the headers of a packet with `payload_bytes` of payload to the front of `out`; returns their length. The payload
/// belongs directly behind them; then [`seal`].
///
/// # Panics
/// If `out` is shorter than [`MAX_HEAD_BYTES`].
pub fn write_headers(head: &Head, body: &Body, payload_bytes: usize, out: &mut [u8]) -> usize {
    let bth = Bth {
        opcode: body.opcode(),
        solicited: head.solicited,
        migrated: true,
        pad: pad_of(payload_bytes),
        pkey: Bth::DEFAULT_PKEY,
        dest_qpn: head.dest_qpn,
        ack_request: head.ack_request,
        psn: head.psn,
    };
    out[..Bth::BYTES].copy_from_slice(&bth.emit());
    Bth::BYTES + body.emit(&mut out[Bth::BYTES..])
}

/// Pads and appends the ICRC to a packet whose headers and payload fill `out[..used]`; returns the datagram's length.
///
/// # Panics
/// If `out` has less than 7 bytes behind `used`.
pub fn seal(out: &mut [u8], used: usize, flow: &Flow) -> usize {
    // All headers are multiples of 4, so the whole needs the same padding as the payload.
    let padded = used + usize::from(pad_of(used));
    out[used..padded].fill(0);
    let icrc = flow.icrc(&out[..padded]);
    out[padded..padded + ICRC_BYTES].copy_from_slice(&icrc.to_le_bytes());
    padded + ICRC_BYTES
}

/// The last 4 bytes of a datagram are the ICRC of the rest, for a packet that came by `flow`.
pub fn icrc_matches(datagram: &[u8], flow: &Flow) -> bool {
    datagram
        .split_last_chunk::<ICRC_BYTES>()
        .is_some_and(|(covered, icrc)| flow.icrc(covered) == u32::from_le_bytes(*icrc))
}

const fn pad_of(bytes: usize) -> u8 {
    [0, 3, 2, 1][bytes % 4]
}

#[cfg(test)]
mod tests;
