//! Carries out the request packets of a QP, each when it is the next in order.

use super::answers::{Answers, packets_of};
use crate::transport::{Device, NakCode, ReceiveError, Received, RemoteAccess, SendWith};
use crate::wire::headers::{AtomicEth, Reth};
use crate::wire::packet::{Body, Packet, SendEnd, Transport, WriteEnd};
use crate::wire::psn::Psn;

/// The reason why the expected packet is not carried out.
pub(super) enum Refusal {
    Nak(NakCode),
    NotReady,
    Busy,
}

impl From<NakCode> for Refusal {
    fn from(code: NakCode) -> Self {
        Self::Nak(code)
    }
}

impl From<ReceiveError> for Refusal {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::NotReady => Self::NotReady,
            ReceiveError::Refused(code) => Self::Nak(code),
        }
    }
}

/// Length of the longest message of the standard. Its packets are fewer than half of all PSNs, or exactly half at MTU 256.
const MAX_MESSAGE_BYTES: u32 = 1 << 31;

const INVALID: Refusal = Refusal::Nak(NakCode::INVALID_REQUEST);

/// What a QP has carried out of the message that it is receiving.
#[derive(Debug)]
pub(super) struct Execution {
    progress: Progress,
    /// Payload bytes per packet.
    mtu: u32,
    /// Most READ requests and atomics that the peer may have under way at once.
    max_read_atomic: u32,
}

/// The message of several packets that is being received.
#[derive(Clone, Copy, Debug)]
enum Progress {
    None,
    Write {
        va: u64,
        rkey: u32,
        left: u32,
        bytes: u32,
    },
    Send {
        offset: u64,
    },
}

impl Execution {
    /// Returns the execution of a QP that has received nothing.
    pub(super) fn new(mtu: u32, max_read_atomic: u32) -> Self {
        Self {
            progress: Progress::None,
            mtu,
            max_read_atomic,
        }
    }

    /// Returns whether no message is being received.
    pub(super) fn is_between_messages(&self) -> bool {
        matches!(self.progress, Progress::None)
    }

    /// Gives up the message that is being received.
    pub(super) fn break_off(&mut self) {
        self.progress = Progress::None;
    }

    /// Carries out the expected packet, and queues the answer of a READ or an atomic. Returns how many PSNs the packet takes.
    ///
    /// # Errors
    ///
    /// The packet is not carried out, for the reason returned.
    pub(super) fn execute<D: Device>(
        &mut self,
        qpn: u32,
        packet: &Packet<'_>,
        answers: &mut Answers,
        device: &mut D,
    ) -> Result<u32, Refusal> {
        match packet.body {
            Body::Write { start, end } => {
                self.write(qpn, start, end, packet, device)?;
                if end.is_some() {
                    self.message_done(answers);
                }
                Ok(1)
            }
            Body::Send { starts, end } => {
                self.send(qpn, starts, end, packet, device)?;
                if end.is_some() {
                    self.message_done(answers);
                }
                Ok(1)
            }
            Body::ReadRequest(reth) => self.read(qpn, reth, packet.head.psn, answers, device),
            Body::Atomic(atomic) => self.atomic(qpn, &atomic, packet.head.psn, answers, device),
            Body::Acknowledge(_) | Body::ReadResponse(_) | Body::AtomicAcknowledge { .. } => {
                Err(INVALID)
            }
        }
    }

    fn message_done(&mut self, answers: &mut Answers) {
        self.progress = Progress::None;
        answers.message_done();
    }

    fn write<D: Device>(
        &mut self,
        qpn: u32,
        start: Option<Reth>,
        end: Option<WriteEnd>,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Result<(), Refusal> {
        let (va, rkey, left, message_bytes) = match (start, self.progress) {
            (Some(reth), Progress::None) => {
                if reth.bytes > MAX_MESSAGE_BYTES {
                    return Err(INVALID);
                }
                if reth.bytes > 0 {
                    device.check_remote(
                        qpn,
                        RemoteAccess::Write,
                        reth.rkey,
                        reth.va,
                        reth.bytes,
                    )?;
                }
                (reth.va, reth.rkey, reth.bytes, reth.bytes)
            }
            (
                None,
                Progress::Write {
                    va,
                    rkey,
                    left,
                    bytes,
                },
            ) => (va, rkey, left, bytes),
            _ => return Err(INVALID),
        };
        let bytes = self.payload_bytes(packet, end.is_some())?;
        let left = left
            .checked_sub(bytes)
            .filter(|left| (*left == 0) == end.is_some())
            .ok_or(INVALID)?;
        if let Some(WriteEnd::Immediate(_)) = end {
            device.receive_begin(qpn, srq(packet))?;
        }
        if bytes > 0 {
            device.remote_write(qpn, rkey, va, packet.payload)?;
        }
        let va = va.wrapping_add(u64::from(bytes));
        self.progress = Progress::Write {
            va,
            rkey,
            left,
            bytes: message_bytes,
        };
        if let Some(WriteEnd::Immediate(word)) = end {
            let (bytes, with) = (message_bytes, SendWith::Immediate(word));
            device.receive_done(
                qpn,
                &Received {
                    bytes,
                    send: false,
                    with,
                    solicited: packet.head.solicited,
                    source: None,
                },
            )?;
        }
        Ok(())
    }

    fn send<D: Device>(
        &mut self,
        qpn: u32,
        starts: bool,
        end: Option<SendEnd>,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Result<(), Refusal> {
        let bytes = self.payload_bytes(packet, end.is_some())?;
        let offset = match (starts, self.progress) {
            (true, Progress::None) => {
                device.receive_begin(qpn, srq(packet))?;
                0
            }
            // The last of several packets must not be empty.
            (false, Progress::Send { offset }) if bytes > 0 => offset,
            _ => return Err(INVALID),
        };
        if bytes > 0 {
            device.receive_bytes(qpn, offset, packet.payload)?;
        }
        let offset = offset + u64::from(bytes);
        self.progress = Progress::Send { offset };
        if let Some(end) = end {
            let with = match end {
                SendEnd::Plain => SendWith::Nothing,
                SendEnd::Immediate(word) => SendWith::Immediate(word),
                SendEnd::Invalidate(key) => SendWith::Invalidate(key),
            };
            let bytes = u32::try_from(offset).unwrap_or(u32::MAX);
            device.receive_done(
                qpn,
                &Received {
                    bytes,
                    send: true,
                    with,
                    solicited: packet.head.solicited,
                    source: None,
                },
            )?;
        }
        Ok(())
    }

    fn read<D: Device>(
        &mut self,
        qpn: u32,
        reth: Reth,
        psn: Psn,
        answers: &mut Answers,
        device: &mut D,
    ) -> Result<u32, Refusal> {
        if reth.bytes > MAX_MESSAGE_BYTES {
            return Err(INVALID);
        }
        self.need_answer(answers)?;
        if reth.bytes > 0 {
            device.check_remote(qpn, RemoteAccess::Read, reth.rkey, reth.va, reth.bytes)?;
        }
        self.message_done(answers);
        answers.read(psn, reth);
        Ok(packets_of(reth.bytes, self.mtu))
    }

    fn atomic<D: Device>(
        &mut self,
        qpn: u32,
        atomic: &AtomicEth,
        psn: Psn,
        answers: &mut Answers,
        device: &mut D,
    ) -> Result<u32, Refusal> {
        self.need_answer(answers)?;
        let original = device.remote_atomic(qpn, atomic)?;
        self.message_done(answers);
        answers.atomic(psn, original);
        Ok(1)
    }

    /// Checks that a READ or atomic may begin: no message is unfinished, and a resource for its answer is free.
    fn need_answer(&self, answers: &Answers) -> Result<(), Refusal> {
        if !self.is_between_messages() {
            return Err(INVALID);
        }
        if !answers.has_room() {
            return Err(Refusal::Busy);
        }
        // A job that has been answered has left the list, though its answer may get lost and the requester may ask again. So if a requester
        // keeps to the limit, no more jobs than that ever wait.
        let limit = usize::try_from(self.max_read_atomic).unwrap_or(usize::MAX);
        if answers.requests() < limit {
            Ok(())
        } else {
            Err(INVALID)
        }
    }

    /// Returns the length of the payload, if a packet at this position in a message may have that length.
    fn payload_bytes(&self, packet: &Packet<'_>, ends: bool) -> Result<u32, Refusal> {
        let bytes = u32::try_from(packet.payload.len()).map_err(|_| INVALID)?;
        let fits = if ends {
            bytes <= self.mtu
        } else {
            bytes == self.mtu
        };
        fits.then_some(bytes).ok_or(INVALID)
    }
}

/// Returns the SRQ that the packet names, if it is one of XRC.
fn srq(packet: &Packet<'_>) -> Option<u32> {
    match packet.head.transport {
        Transport::XrcRequest(xrc) => Some(xrc.srqn),
        _ => None,
    }
}
