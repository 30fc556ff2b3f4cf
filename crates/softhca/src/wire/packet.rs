//! A RoCE packet, parsed from and written to the bytes after the network headers (in v2 the payload of a UDP datagram).
//!
//! `BTH | extended headers | payload | pad | ICRC`. Any bytes can be parsed: they give a packet or a [`PacketError`], never a panic.
//! Parsing checks form only. The requester and the responder decide whether a packet makes sense, and [`icrc_matches`] whether it is
//! intact.

mod body;

pub use body::{Body, ReadPart, SendEnd, WriteEnd};

use super::headers::{Aeth, AtomicEth, Bth, Deth, MaskedAtomicEth, Reth, XrcEth};
use super::icrc::{Flow, ICRC_BYTES};
use super::opcode::{BthOpcode, WireService};
use super::psn::Psn;

/// Length of the longest run of headers: that of a masked atomic of XRC.
pub const MAX_HEAD_BYTES: usize = Bth::BYTES + XrcEth::BYTES + MaskedAtomicEth::BYTES;
/// Most bytes that a packet needs besides its payload: headers, padding, ICRC.
pub const MAX_OVERHEAD_BYTES: usize = MAX_HEAD_BYTES + 3 + ICRC_BYTES;

/// A packet in its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The destination, the number and the flags of the packet.
    pub head: Head,
    /// The kind of the packet, with its extended headers.
    pub body: Body,
    /// The bytes of the message, without padding. Empty unless the body is a SEND, a WRITE or a READ response.
    pub payload: &'a [u8],
}

/// The fields of a BTH besides the kind of packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// QP to which the packet goes, 24 bits.
    pub dest_qpn: u32,
    /// Sequence number of the packet.
    pub psn: Psn,
    /// True if the sender wants an acknowledge.
    pub ack_request: bool,
    /// True if the receiver's completion may wake software that waits (solicited event).
    pub solicited: bool,
    /// The service, with the header that it puts in front of all others.
    pub transport: Transport,
}

/// The service of a packet, with the header that the service puts into each packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud(Deth),
    /// Request of an extended reliable connection.
    XrcRequest(XrcEth),
    /// Response of an extended reliable connection.
    XrcResponse,
}

impl Transport {
    /// Returns the service alone.
    pub const fn service(self) -> WireService {
        match self {
            Self::Rc => WireService::Rc,
            Self::Uc => WireService::Uc,
            Self::Ud(_) => WireService::Ud,
            Self::XrcRequest(_) | Self::XrcResponse => WireService::Xrc,
        }
    }
}

/// The reason why bytes are not a packet that a QP can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    /// The datagram is shorter than its headers and ICRC.
    #[error("{bytes} bytes, but {opcode:?} needs at least {needed}")]
    Short {
        /// The opcode in the first byte, 0 if the packet is empty.
        opcode: BthOpcode,
        /// The length of the datagram.
        bytes: usize,
        /// The shortest possible length.
        needed: usize,
    },
    /// The transport version is not 0.
    #[error("transport version {0}, not 0")]
    Version(u8),
    /// The service is unknown, or it does not have the operation.
    #[error("{0:?} is no operation of RC, UC, UD or XRC")]
    Opcode(BthOpcode),
    /// There is more padding than payload.
    #[error("{pad} bytes of padding in {payload} bytes of payload")]
    Pad {
        /// The pad count of the BTH.
        pad: u8,
        /// The number of bytes between headers and ICRC.
        payload: usize,
    },
    /// There are bytes after the headers of a packet that has no payload.
    #[error("{bytes} bytes behind the headers of {opcode:?}")]
    Surplus {
        /// The opcode of the packet.
        opcode: BthOpcode,
        /// The number of these bytes.
        bytes: usize,
    },
    /// A masked atomic has an operand of neither 4 nor 8 bytes.
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
        let (service, rc) = bth.opcode.split().ok_or(PacketError::Opcode(bth.opcode))?;
        let transport = match service {
            WireService::Rc => Transport::Rc,
            WireService::Uc => Transport::Uc,
            WireService::Ud => Transport::Ud(Deth::parse(reader.take()?)),
            WireService::Xrc if rc.is_response() => Transport::XrcResponse,
            WireService::Xrc => Transport::XrcRequest(XrcEth::parse(reader.take()?)),
        };
        let body = reader.body(rc)?;
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
            transport,
        };
        Ok(Self {
            head,
            body,
            payload,
        })
    }
}

/// A reader that takes headers off the front of a datagram. It always leaves room for the ICRC.
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

impl Packet<'_> {
    /// Returns the opcode of the BTH.
    pub const fn opcode(&self) -> BthOpcode {
        self.body.opcode().of_service(self.head.transport.service())
    }
}

/// Writes the headers of a packet with `payload_bytes` of payload to the front of `out`. Returns their length. The caller puts the payload
/// directly after them, and then calls [`seal`].
///
/// # Panics
/// If `out` is shorter than [`MAX_HEAD_BYTES`].
pub fn write_headers(head: &Head, body: &Body, payload_bytes: usize, out: &mut [u8]) -> usize {
    let bth = Bth {
        opcode: body.opcode().of_service(head.transport.service()),
        solicited: head.solicited,
        migrated: true,
        pad: pad_of(payload_bytes),
        pkey: Bth::DEFAULT_PKEY,
        dest_qpn: head.dest_qpn,
        ack_request: head.ack_request,
        psn: head.psn,
    };
    out[..Bth::BYTES].copy_from_slice(&bth.emit());
    let mut at = Bth::BYTES;
    match head.transport {
        Transport::Ud(deth) => {
            out[at..at + Deth::BYTES].copy_from_slice(&deth.emit());
            at += Deth::BYTES;
        }
        Transport::XrcRequest(xrc) => {
            out[at..at + XrcEth::BYTES].copy_from_slice(&xrc.emit());
            at += XrcEth::BYTES;
        }
        Transport::Rc | Transport::Uc | Transport::XrcResponse => {}
    }
    at + body.emit(&mut out[at..])
}

/// Pads a packet whose headers and payload fill `out[..used]`, and appends the ICRC. Returns the length of the datagram.
///
/// # Panics
/// If `out` has less than 7 bytes after `used`.
pub fn seal(out: &mut [u8], used: usize, flow: &Flow) -> usize {
    // All headers have lengths that are multiples of 4, so the whole needs the same padding as the payload.
    let padded = used + usize::from(pad_of(used));
    out[used..padded].fill(0);
    let icrc = flow.icrc(&out[..padded]);
    out[padded..padded + ICRC_BYTES].copy_from_slice(&icrc.to_le_bytes());
    padded + ICRC_BYTES
}

/// Returns whether the last 4 bytes of a datagram are the ICRC of the rest, for a packet that came by `flow`.
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
