//! Carries out the request packet that is next in order.

use super::{Job, Progress, REPLAYS, Responder, packets_of};
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

impl Responder {
    /// Carries out the expected packet. Returns how many PSNs it takes.
    pub(super) fn execute<D: Device>(
        &mut self,
        qpn: u32,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Result<u32, Refusal> {
        match packet.body {
            Body::Write { start, end } => self.write(qpn, start, end, packet, device),
            Body::Send { starts, end } => self.send(qpn, starts, end, packet, device),
            Body::ReadRequest(reth) => self.read(qpn, &reth, packet.head.psn, device),
            Body::Atomic(atomic) => self.atomic(qpn, &atomic, packet.head.psn, device),
            Body::Acknowledge(_) | Body::ReadResponse(_) | Body::AtomicAcknowledge { .. } => {
                Err(INVALID)
            }
        }
    }

    fn write<D: Device>(
        &mut self,
        qpn: u32,
        start: Option<Reth>,
        end: Option<WriteEnd>,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Result<u32, Refusal> {
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
        if end.is_some() {
            self.message_done();
        }
        Ok(1)
    }

    fn send<D: Device>(
        &mut self,
        qpn: u32,
        starts: bool,
        end: Option<SendEnd>,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Result<u32, Refusal> {
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
            self.message_done();
        }
        Ok(1)
    }

    fn read<D: Device>(
        &mut self,
        qpn: u32,
        reth: &Reth,
        psn: Psn,
        device: &mut D,
    ) -> Result<u32, Refusal> {
        if reth.bytes > MAX_MESSAGE_BYTES {
            return Err(INVALID);
        }
        self.resource_for_answer()?;
        if reth.bytes > 0 {
            device.check_remote(qpn, RemoteAccess::Read, reth.rkey, reth.va, reth.bytes)?;
        }
        self.message_done();
        self.jobs.push_back(Job::Read {
            psn,
            reth: *reth,
            sent: 0,
            msn: self.msn,
            again: false,
        });
        Ok(packets_of(reth.bytes, self.config.mtu))
    }

    fn atomic<D: Device>(
        &mut self,
        qpn: u32,
        atomic: &AtomicEth,
        psn: Psn,
        device: &mut D,
    ) -> Result<u32, Refusal> {
        self.resource_for_answer()?;
        let original = device.remote_atomic(qpn, atomic)?;
        self.message_done();
        if self.replays.len() == REPLAYS {
            self.replays.pop_front();
        }
        self.replays.push_back((psn, original));
        self.jobs.push_back(Job::Atomic {
            psn,
            original,
            msn: self.msn,
            again: false,
        });
        Ok(1)
    }

    /// Checks that a READ or atomic may begin: no message is unfinished, and a resource for its answer is free.
    fn resource_for_answer(&self) -> Result<(), Refusal> {
        if !matches!(self.progress, Progress::None) {
            return Err(INVALID);
        }
        self.room_for_answer()?;
        // A job that has been answered has left the list, though its answer may get lost and the requester may ask again. So if a requester
        // keeps to the limit, no more jobs than that ever wait.
        let waiting = |job: &&Job| {
            matches!(
                job,
                Job::Read { again: false, .. } | Job::Atomic { again: false, .. }
            )
        };
        let limit = usize::try_from(self.config.max_read_atomic).unwrap_or(usize::MAX);
        if self.jobs.iter().filter(waiting).count() < limit {
            Ok(())
        } else {
            Err(INVALID)
        }
    }

    /// Returns the length of the payload, if a packet at this position in a message may have that length.
    fn payload_bytes(&self, packet: &Packet<'_>, ends: bool) -> Result<u32, Refusal> {
        let bytes = u32::try_from(packet.payload.len()).map_err(|_| INVALID)?;
        let fits = if ends {
            bytes <= self.config.mtu
        } else {
            bytes == self.config.mtu
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
