//! The wire of a UD QP: each WQE is one packet with a destination of its own, and each packet is one message.
//!
//! The code does no I/O and reads no clock. A WQE is complete when its packet is on its way. An arriving datagram is taken if its queue key
//! is the QP's and the QP has a receive WQE. Otherwise it is dropped without an answer, as the service demands.

use crate::envelope::{Destination, Envelope, Kept, Source};
use crate::transport::{
    Datagram, DatagramSource, Device, Failure, Operation, OperationKind, Received, SendWith, Target,
};
use crate::wire::headers::Deth;
use crate::wire::packet::{Body, Head, Packet, SendEnd, Transport, write_headers};
use crate::wire::psn::Psn;
use crate::wire::requester::{Completion, MAX_OPERATIONS};
use crate::wire::responder::Arrival;
use std::collections::VecDeque;

/// The attributes of a UD QP.
#[derive(Clone, Copy, Debug)]
pub struct DatagramConfig {
    /// Most payload bytes of a packet.
    pub mtu: u32,
    /// PSN of the first packet sent. Receivers do not look at it.
    pub first_psn: Psn,
    /// LMC of the port.
    pub lmc: u8,
}

/// The operations and packets of a UD QP.
#[derive(Debug)]
pub struct Datagrams<W> {
    config: DatagramConfig,
    psn: Psn,
    waiting: VecDeque<(W, Operation)>,
    completions: VecDeque<Completion<W>>,
    failed: bool,
}

/// A packet that [`Datagrams::poll_transmit`] has built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Number of bytes of headers and payload.
    pub used: usize,
    /// The destination of the packet.
    pub destination: Destination,
}

impl<W> Datagrams<W> {
    /// Returns the state of a QP that has sent nothing.
    pub fn new(config: DatagramConfig) -> Self {
        Self {
            config,
            psn: config.first_psn,
            waiting: VecDeque::with_capacity(MAX_OPERATIONS),
            completions: VecDeque::with_capacity(MAX_OPERATIONS),
            failed: false,
        }
    }

    /// Returns whether another operation can be taken now.
    pub fn has_room(&self) -> bool {
        self.waiting.len() + self.completions.len() < MAX_OPERATIONS
    }

    /// Takes an operation. After a failure the operation comes back as flushed. If the queue is full, `Err` gives the WQE back.
    pub fn submit(&mut self, wqe: W, operation: Operation) -> Result<(), W> {
        if !self.has_room() {
            return Err(wqe);
        }
        if self.failed {
            let outcome = Err(Failure::Flushed);
            self.completions.push_back(Completion { wqe, outcome });
        } else {
            self.waiting.push_back((wqe, operation));
        }
        Ok(())
    }

    /// Returns the next operation that is over, in order of submission.
    pub fn take_completion(&mut self) -> Option<Completion<W>> {
        self.completions.pop_front()
    }

    /// Returns whether a packet could be sent now.
    pub fn wants_to_send(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Ends all waiting operations as flushed.
    pub fn flush(&mut self) {
        self.end_all(Failure::Flushed);
    }

    /// Builds the next packet (headers and payload, no padding or ICRC) into `out`. Returns `None` if none waits.
    ///
    /// A datagram for an address that no HCA can have is lost on its way, which is no error. If the carrier does not keep the packet's
    /// envelope (`kept`), the DETH of the packet says which envelope it was to have. The DETH also has the LMC of the own port.
    ///
    /// # Panics
    /// If `out` is shorter than the MTU and [`crate::wire::packet::MAX_OVERHEAD_BYTES`].
    pub fn poll_transmit<D: Device<Wqe = W>>(
        &mut self,
        qpn: u32,
        kept: Kept,
        device: &mut D,
        out: &mut [u8],
    ) -> Option<Outgoing> {
        while let Some((wqe, operation)) = self.waiting.front() {
            let origin = Origin {
                qpn,
                psn: self.psn,
                mtu: self.config.mtu,
                kept,
                lmc: self.config.lmc,
            };
            let built = build(&origin, wqe, operation, device, out);
            let outgoing = match built {
                Ok(outgoing) => outgoing,
                Err(failure) => {
                    self.end_all(failure);
                    return None;
                }
            };
            self.psn = self.psn.add(1);
            if let Some((wqe, _)) = self.waiting.pop_front() {
                let outcome = Ok(());
                self.completions.push_back(Completion { wqe, outcome });
            }
            if outgoing.is_some() {
                return outgoing;
            }
        }
        None
    }

    /// Ends all waiting operations: the first with failure `first`, the rest as flushed.
    fn end_all(&mut self, first: Failure) {
        let mut failure = first;
        for (wqe, _) in self.waiting.drain(..) {
            let outcome = Err(failure);
            self.completions.push_back(Completion { wqe, outcome });
            failure = Failure::Flushed;
        }
        self.failed = true;
    }
}

/// Takes a datagram that has arrived from `source`.
pub fn receive<D: Device>(
    qpn: u32,
    source: &Source,
    packet: &Packet<'_>,
    device: &mut D,
) -> Arrival {
    let (Transport::Ud(deth), Body::Send { end: Some(end), .. }) =
        (packet.head.transport, packet.body)
    else {
        return Arrival::Dropped;
    };
    let Ok(bytes) = u32::try_from(packet.payload.len()) else {
        return Arrival::Dropped;
    };
    if !device.accepts_datagram(qpn, deth.qkey) || device.receive_begin(qpn, None).is_err() {
        return Arrival::Dropped;
    }
    if bytes > 0 && device.receive_bytes(qpn, 0, packet.payload).is_err() {
        return Arrival::Dropped;
    }
    let received = Received {
        bytes,
        send: true,
        with: match end {
            SendEnd::Plain => SendWith::Nothing,
            SendEnd::Immediate(word) => SendWith::Immediate(word),
            SendEnd::Invalidate(key) => SendWith::Invalidate(key),
        },
        solicited: packet.head.solicited,
        source: Some(DatagramSource {
            qpn: deth.source_qpn,
            address: *source.address.ip(),
            lmc: deth.lmc,
            own_path_bits: source.path_bits,
            // If the envelope was kept, the DETH says nothing about it.
            envelope: match source.envelope {
                Envelope::V2_IPV4 => deth.envelope,
                kept => kept,
            },
            has_grh: !deth.without_grh,
        }),
    };
    // No requester learns what became of a datagram.
    let _ = device.receive_done(qpn, &received);
    Arrival::Executed
}

/// The fields that all packets of a QP have in common, and the number of the next packet.
struct Origin {
    qpn: u32,
    psn: Psn,
    mtu: u32,
    /// The envelopes that the carrier keeps.
    kept: Kept,
    /// LMC of the own port.
    lmc: u8,
}

/// Builds the packet of an operation. Returns `None` if it goes to an address that no HCA has.
fn build<D: Device>(
    origin: &Origin,
    wqe: &D::Wqe,
    operation: &Operation,
    device: &mut D,
    out: &mut [u8],
) -> Result<Option<Outgoing>, Failure> {
    let (to, end) = target(operation)?;
    if operation.bytes > origin.mtu {
        return Err(Failure::LocalLength);
    }
    let payload_bytes = usize::try_from(operation.bytes).map_err(|_| Failure::LocalLength)?;
    let destination = device.destination(wqe, &to);
    let envelope = destination.map_or(Envelope::V2_IPV4, |there| there.envelope);
    let (carried, told) = if origin.kept.holds(envelope) {
        (envelope, Envelope::V2_IPV4)
    } else {
        (Envelope::V2_IPV4, envelope)
    };
    let head = Head {
        dest_qpn: to.qpn,
        psn: origin.psn,
        ack_request: false,
        solicited: operation.solicited,
        transport: Transport::Ud(Deth {
            qkey: to.qkey,
            source_qpn: origin.qpn,
            without_grh: !to.has_grh,
            envelope: told,
            lmc: origin.lmc,
        }),
    };
    let body = Body::Send {
        starts: true,
        end: Some(end),
    };
    let start = write_headers(&head, &body, payload_bytes, out);
    let used = start + payload_bytes;
    if payload_bytes > 0 {
        device.gather(origin.qpn, wqe, 0, &mut out[start..used])?;
    }
    Ok(destination.map(|there| Outgoing {
        used,
        destination: Destination {
            envelope: carried,
            ..there
        },
    }))
}

/// Returns where an operation goes and how its packet ends, if the service has such an operation.
fn target(operation: &Operation) -> Result<(Datagram, SendEnd), Failure> {
    let Target::Datagram(to) = operation.to else {
        return Err(Failure::LocalOperation);
    };
    let OperationKind::Send { with } = operation.kind else {
        return Err(Failure::LocalOperation);
    };
    match with {
        SendWith::Nothing => Ok((to, SendEnd::Plain)),
        SendWith::Immediate(word) => Ok((to, SendEnd::Immediate(word))),
        SendWith::Invalidate(_) => Err(Failure::LocalOperation),
    }
}

#[cfg(test)]
mod tests;
