//! The responder of a connected QP, which carries out requests in order, once, and answers.
//!
//! The rules of UC are at `on_unreliable`. The rest of this text is about RC and XRC.
//!
//! The responder does no I/O and has no clock. Answers wait in a queue of jobs and become packets when the carrier has room. So a READ of
//! any length is served from memory packet by packet. Acknowledges coalesce: an acknowledge answers for all earlier requests that have no
//! answer of their own, so a batch of arrivals costs one packet.
//!
//! A request with a later number than the expected one is dropped and answered once by a NAK (sequence error). A request with an earlier
//! number is a duplicate. A duplicate WRITE or SEND is only acknowledged again, and a duplicate READ is read again. A duplicate atomic is
//! answered from a table of the last [`REPLAYS`] results and not done again.

mod answers;
mod execution;

pub use answers::REPLAYS;

use super::headers::Syndrome;
use super::packet::{Body, Packet, Transport};
use super::psn::{PSN_MODULUS, Psn};
use crate::transport::{Device, NakCode, Service};
use answers::{ACK, Answers, packets_of};
use execution::{Execution, Refusal};

/// The attributes by which a QP receives, from the path attributes of INIT2RTR.
#[derive(Clone, Copy, Debug)]
pub struct ResponderConfig {
    /// Transport service of the QP.
    pub service: Service,
    /// Number of the peer's QP.
    pub remote_qpn: u32,
    /// PSN of the first packet that the peer sends.
    pub first_psn: Psn,
    /// Path MTU: payload bytes per packet, 256 to 4096.
    pub mtu: u32,
    /// 5-bit RNR timer code that goes into RNR NAKs.
    pub min_rnr_timer: u8,
    /// Most READ requests and atomics that the peer may have under way at once.
    pub max_read_atomic: u32,
}

/// The fate of a request packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The packet was the expected one, and was carried out.
    Executed,
    /// The packet had been carried out before.
    Duplicate,
    /// A packet before this one is missing.
    OutOfOrder,
    /// The packet was the expected one, and was refused.
    Refused,
    /// The packet was the expected one, but earlier answers wait for room.
    Dropped,
}

/// The receiving half of a connected QP.
#[derive(Debug)]
pub struct Responder {
    config: ResponderConfig,
    expected: Psn,
    execution: Execution,
    answers: Answers,
    /// True if a NAK or RNR NAK for the expected PSN has been sent. No second one is sent until the expected packet arrives.
    nak_sent: bool,
    refused: Option<NakCode>,
}

impl Responder {
    /// Returns the responder of a QP that has received nothing.
    pub fn new(config: ResponderConfig) -> Self {
        let transport = if config.service == Service::XrcTarget {
            Transport::XrcResponse
        } else {
            Transport::Rc
        };
        Self {
            config,
            expected: config.first_psn,
            execution: Execution::new(config.mtu, config.max_read_atomic),
            answers: Answers::new(config.remote_qpn, transport, config.mtu),
            nak_sent: false,
            refused: None,
        }
    }

    /// Returns the number of the request packet that is expected next.
    pub fn expected_psn(&self) -> Psn {
        self.expected
    }

    /// Handles a request packet.
    pub fn on_request<D: Device>(
        &mut self,
        qpn: u32,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Arrival {
        if self.config.service == Service::Uc {
            return self.on_unreliable(qpn, packet, device);
        }
        let ahead = packet.head.psn.distance_from(self.expected);
        if ahead >= PSN_MODULUS / 2 {
            self.on_duplicate(packet);
            return Arrival::Duplicate;
        }
        if let Some(code) = self.refused {
            self.push_refusal(code);
            return Arrival::Refused;
        }
        if ahead > 0 {
            if !self.nak_sent {
                self.nak_sent = true;
                let nak = Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR);
                self.answers.acknowledge(self.expected, nak);
            }
            return Arrival::OutOfOrder;
        }
        let executed = self
            .execution
            .execute(qpn, packet, &mut self.answers, device);
        match executed {
            Ok(packets) => {
                self.nak_sent = false;
                self.expected = self.expected.add(packets);
                let answered = matches!(packet.body, Body::ReadRequest(_) | Body::Atomic(_));
                if packet.head.ack_request && !answered {
                    self.answers.acknowledge(packet.head.psn, ACK);
                }
                Arrival::Executed
            }
            Err(Refusal::NotReady) => {
                self.nak_sent = true;
                let timer = self.config.min_rnr_timer;
                self.answers
                    .acknowledge(self.expected, Syndrome::RnrNak { timer });
                Arrival::Refused
            }
            Err(Refusal::Nak(code)) => {
                self.refuse(qpn, code, device);
                self.push_refusal(code);
                Arrival::Refused
            }
            Err(Refusal::Busy) => Arrival::Dropped,
        }
    }

    /// Returns whether an answer waits to be sent.
    pub fn has_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Returns whether a request was refused for good.
    pub fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Builds the next answer (headers and payload, no padding or ICRC) into `out`. Returns its length, or `None` if no answer waits.
    ///
    /// # Panics
    /// If `out` is shorter than the MTU and [`super::packet::MAX_OVERHEAD_BYTES`].
    pub fn poll_transmit<D: Device>(
        &mut self,
        qpn: u32,
        device: &mut D,
        out: &mut [u8],
    ) -> Option<usize> {
        match self.answers.transmit(qpn, device, out) {
            Ok(used) => used,
            Err(code) => {
                self.refuse(qpn, code, device);
                self.poll_transmit(qpn, device, out)
            }
        }
    }

    fn on_duplicate(&mut self, packet: &Packet<'_>) {
        let psn = packet.head.psn;
        match packet.body {
            Body::Write { .. } | Body::Send { .. } => {
                self.answers.acknowledge(self.expected.sub(1), ACK);
            }
            Body::ReadRequest(reth) => {
                let packets = packets_of(reth.bytes, self.config.mtu);
                if packets <= self.expected.distance_from(psn) {
                    self.answers.read_again(psn, reth);
                }
            }
            Body::Atomic(_) => self.answers.atomic_again(psn),
            Body::Acknowledge(_) | Body::ReadResponse(_) | Body::AtomicAcknowledge { .. } => {}
        }
    }

    fn refuse<D: Device>(&mut self, qpn: u32, code: NakCode, device: &mut D) {
        if self.refused.is_none() {
            self.refused = Some(code);
            device.responder_failed(qpn, code);
        }
    }

    fn push_refusal(&mut self, code: NakCode) {
        self.answers.acknowledge(self.expected, Syndrome::Nak(code));
    }

    /// Handles a request packet of an unreliable connection: the responder answers nothing, and drops broken messages.
    ///
    /// Source: IBTA volume 1, "Responder: Unreliable Connected". A message is carried out as its packets come. A packet that is not the
    /// next one ends the message without an answer. A packet that starts a message is taken whatever its number, and the count goes on from
    /// that number. The next SEND uses the receive WQE of a broken SEND.
    fn on_unreliable<D: Device>(
        &mut self,
        qpn: u32,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Arrival {
        let starts = matches!(
            packet.body,
            Body::Send { starts: true, .. } | Body::Write { start: Some(_), .. }
        );
        if starts {
            self.execution.break_off();
            self.expected = packet.head.psn;
        } else if packet.head.psn != self.expected || self.execution.is_between_messages() {
            self.execution.break_off();
            return Arrival::OutOfOrder;
        }
        let executed = self
            .execution
            .execute(qpn, packet, &mut self.answers, device);
        match executed {
            Ok(packets) => {
                self.expected = self.expected.add(packets);
                Arrival::Executed
            }
            Err(_) => {
                self.execution.break_off();
                Arrival::Dropped
            }
        }
    }
}

#[cfg(test)]
mod tests;
