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

mod execute;

use super::headers::{Aeth, NO_CREDITS, Reth, Syndrome};
use super::opcode::Position;
use super::packet::{Body, Head, Packet, ReadPart, Transport, write_headers};
use super::psn::{PSN_MODULUS, Psn};
use crate::transport::{Device, NakCode, Service};
use execute::Refusal;
use std::collections::VecDeque;

/// Most answers to READs and atomics that wait at once. A request beyond that is dropped as if it had got lost.
const MAX_JOBS: usize = 64;
/// Number of results of atomics that are kept for duplicates. A requester has fewer in flight.
pub const REPLAYS: usize = 32;

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
    /// Number of messages completed, 24 bits.
    msn: u32,
    progress: Progress,
    jobs: VecDeque<Job>,
    replays: VecDeque<(Psn, u64)>,
    /// True if a NAK or RNR NAK for the expected PSN has been sent. No second one is sent until the expected packet arrives.
    nak_sent: bool,
    refused: Option<NakCode>,
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

/// An answer that has not been sent.
#[derive(Clone, Copy, Debug)]
enum Job {
    Answer {
        psn: Psn,
        syndrome: Syndrome,
        msn: u32,
    },
    Atomic {
        psn: Psn,
        original: u64,
        msn: u32,
        /// True if this answers a duplicate.
        again: bool,
    },
    Read {
        psn: Psn,
        reth: Reth,
        sent: u32,
        msn: u32,
        /// True if this answers a duplicate.
        again: bool,
    },
}

impl Responder {
    /// Returns the responder of a QP that has received nothing.
    pub fn new(config: ResponderConfig) -> Self {
        Self {
            config,
            expected: config.first_psn,
            msn: 0,
            progress: Progress::None,
            jobs: VecDeque::with_capacity(2 * MAX_JOBS + 2),
            replays: VecDeque::with_capacity(REPLAYS),
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
                self.push_answer(self.expected, Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR));
            }
            return Arrival::OutOfOrder;
        }
        match self.execute(qpn, packet, device) {
            Ok(packets) => {
                self.nak_sent = false;
                self.expected = self.expected.add(packets);
                let answered = matches!(packet.body, Body::ReadRequest(_) | Body::Atomic(_));
                if packet.head.ack_request && !answered {
                    self.push_answer(packet.head.psn, ACK);
                }
                Arrival::Executed
            }
            Err(Refusal::NotReady) => {
                self.nak_sent = true;
                self.push_answer(
                    self.expected,
                    Syndrome::RnrNak {
                        timer: self.config.min_rnr_timer,
                    },
                );
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
        !self.jobs.is_empty()
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
        let head = |psn| Head {
            dest_qpn: self.config.remote_qpn,
            psn,
            ack_request: false,
            solicited: false,
            transport: if self.config.service == Service::XrcTarget {
                Transport::XrcResponse
            } else {
                Transport::Rc
            },
        };
        let job = self.jobs.front_mut()?;
        device.answering(qpn);
        let used = match job {
            Job::Answer { psn, syndrome, msn } => write_headers(
                &head(*psn),
                &Body::Acknowledge(Aeth {
                    syndrome: *syndrome,
                    msn: *msn,
                }),
                0,
                out,
            ),
            Job::Atomic {
                psn, original, msn, ..
            } => {
                let body = Body::AtomicAcknowledge {
                    aeth: Aeth {
                        syndrome: ACK,
                        msn: *msn,
                    },
                    original: *original,
                };
                write_headers(&head(*psn), &body, 0, out)
            }
            Job::Read {
                psn,
                reth,
                sent,
                msn,
                ..
            } => {
                let (mtu, index) = (self.config.mtu, *sent);
                let count = packets_of(reth.bytes, mtu);
                let offset = u64::from(index) * u64::from(mtu);
                let bytes = (u64::from(reth.bytes) - offset).min(u64::from(mtu));
                let payload = usize::try_from(bytes).unwrap_or(usize::MAX);
                let at = psn.add(index);
                let part = ReadPart::at(
                    Position::of(index, count),
                    Aeth {
                        syndrome: ACK,
                        msn: *msn,
                    },
                );
                let start = write_headers(&head(at), &Body::ReadResponse(part), payload, out);
                let data = &mut out[start..start + payload];
                let read = if data.is_empty() {
                    Ok(())
                } else {
                    device.remote_read(qpn, reth.rkey, reth.va.wrapping_add(offset), data)
                };
                match read {
                    Ok(()) => *sent += 1,
                    Err(code) => {
                        *job = Job::Answer {
                            psn: at,
                            syndrome: Syndrome::Nak(code),
                            msn: *msn,
                        };
                        self.refuse(qpn, code, device);
                        return self.poll_transmit(qpn, device, out);
                    }
                }
                if index + 1 < count {
                    return Some(start + payload);
                }
                start + payload
            }
        };
        self.jobs.pop_front();
        Some(used)
    }

    fn on_duplicate(&mut self, packet: &Packet<'_>) {
        let psn = packet.head.psn;
        match packet.body {
            Body::Write { .. } | Body::Send { .. } => self.push_answer(self.expected.sub(1), ACK),
            Body::ReadRequest(reth) => {
                let covered =
                    packets_of(reth.bytes, self.config.mtu) <= self.expected.distance_from(psn);
                let waiting = |job: &Job| matches!(job, Job::Read { psn: other, sent: 0, .. } if *other == psn);
                if !covered || self.room_for_answer().is_err() || self.jobs.iter().any(waiting) {
                    return;
                }
                // The range was allowed when the request first came. If it is not allowed any more, the later read fails.
                self.jobs.push_back(Job::Read {
                    psn,
                    reth,
                    sent: 0,
                    msn: self.msn,
                    again: true,
                });
            }
            Body::Atomic(_) => {
                // The latest result is taken: numbers come again after 2^24 packets.
                let replay = self.replays.iter().rfind(|(other, _)| *other == psn);
                if let Some(&(psn, original)) = replay
                    && self.room_for_answer().is_ok()
                {
                    self.jobs.push_back(Job::Atomic {
                        psn,
                        original,
                        msn: self.msn,
                        again: true,
                    });
                }
            }
            Body::Acknowledge(_) | Body::ReadResponse(_) | Body::AtomicAcknowledge { .. } => {}
        }
    }

    fn room_for_answer(&self) -> Result<(), Refusal> {
        if self.jobs.len() < MAX_JOBS {
            Ok(())
        } else {
            Err(Refusal::Busy)
        }
    }

    fn message_done(&mut self) {
        self.progress = Progress::None;
        self.msn = (self.msn + 1) % PSN_MODULUS;
    }

    fn refuse<D: Device>(&mut self, qpn: u32, code: NakCode, device: &mut D) {
        if self.refused.is_none() {
            self.refused = Some(code);
            device.responder_failed(qpn, code);
        }
    }

    fn push_refusal(&mut self, code: NakCode) {
        self.push_answer(self.expected, Syndrome::Nak(code));
    }

    /// Queues an acknowledge. Consecutive acknowledges of one kind become one.
    fn push_answer(&mut self, psn: Psn, syndrome: Syndrome) {
        let msn = self.msn;
        if let Some(Job::Answer {
            psn: last_psn,
            syndrome: last,
            msn: last_msn,
        }) = self.jobs.back_mut()
            && *last == syndrome
        {
            (*last_psn, *last_msn) = (psn, msn);
        } else if self.jobs.len() < 2 * MAX_JOBS {
            self.jobs.push_back(Job::Answer { psn, syndrome, msn });
        } // otherwise it is lost, as an acknowledge may be: the requester asks again
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
            self.progress = Progress::None;
            self.expected = packet.head.psn;
        } else if packet.head.psn != self.expected || matches!(self.progress, Progress::None) {
            self.progress = Progress::None;
            return Arrival::OutOfOrder;
        }
        match self.execute(qpn, packet, device) {
            Ok(packets) => {
                self.expected = self.expected.add(packets);
                Arrival::Executed
            }
            Err(_) => {
                self.progress = Progress::None;
                Arrival::Dropped
            }
        }
    }
}

const ACK: Syndrome = Syndrome::Ack {
    credits: NO_CREDITS,
};

fn packets_of(bytes: u32, mtu: u32) -> u32 {
    bytes.div_ceil(mtu).max(1)
}

#[cfg(test)]
mod tests;
