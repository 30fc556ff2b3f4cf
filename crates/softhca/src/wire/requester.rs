//! The requester of a connected QP, which makes packets of operations, and completions of acknowledges.
//!
//! A peer of UC does not acknowledge: a packet counts as acknowledged once it is sent. The rest of this text is about RC and XRC.
//!
//! The requester does no I/O and has no clock of its own: time, memory and buffers come as arguments. Packets are numbered by a 64-bit
//! `sequence` that never wraps. The PSN on the wire is the first PSN plus the low 24 bits of that.
//!
//! ```text
//!   completed | in flight ............ | not in flight again | never sent ... |
//!             unacked                  next                  sent             assigned
//! ```
//!
//! `next` runs ahead of `unacked` by at most the window. A loss (NAK, a response out of order, a timeout) moves `next` back to `unacked`:
//! go-back-N. After a timeout one packet is sent, and the rest waits for the answer to it. A READ is cut into requests of [`READ_CHUNK`]
//! packets, at fixed places of the message. So the responses too keep to the window, and a request that is sent again never reaches beyond
//! the one before it.

mod responses;

use super::headers::{Reth, XrcEth};
use super::packet::{Body, Head, SendEnd, Transport, WriteEnd, write_headers};
use super::psn::{PSN_MODULUS, Psn};
use super::timer::{Expiry, RetransmissionTimer};
use crate::transport::{Device, Failure, Operation, OperationKind, SendWith, Service, Target};
use std::collections::VecDeque;

/// Number of operations that a requester holds at once. The engine keeps further ones in its ring.
pub const MAX_OPERATIONS: usize = 32;
/// Most response packets that one READ request asks for.
pub const READ_CHUNK: u64 = 8;

/// The attributes by which a QP sends, from the path attributes of RTR2RTS.
#[derive(Clone, Copy, Debug)]
pub struct RequesterConfig {
    /// Transport service of the QP.
    pub service: Service,
    /// Number of the peer's QP.
    pub remote_qpn: u32,
    /// PSN of the first packet.
    pub first_psn: Psn,
    /// Path MTU: payload bytes per packet, 256 to 4096.
    pub mtu: u32,
    /// The number of further rounds of silence that are tolerated after the first, 0 to 7.
    pub retry_count: u8,
    /// The number of RNR NAKs in a row that are tolerated, 0 to 6; 7 means without limit.
    pub rnr_retry: u8,
    /// 5-bit code of the ack timeout; see [`super::timer`].
    pub ack_timeout: u8,
    /// Most READ requests and atomics in flight at once, at least 1.
    pub max_read_atomic: u32,
    /// Most packets in flight at once, at least 1.
    pub window: u32,
}

/// An operation that is over.
#[derive(Debug)]
pub struct Completion<W> {
    /// The WQE of the operation.
    pub wqe: W,
    /// The outcome of the operation.
    pub outcome: Result<(), Failure>,
}

/// The news from a packet or a timeout about the path to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// Number of packets newly acknowledged.
    pub acked: u32,
    /// True if packets were lost, or are late.
    pub lost: bool,
}

/// The sending half of a connected QP.
#[derive(Debug)]
pub struct Requester<W> {
    config: RequesterConfig,
    /// Operations that have not completed, the oldest first. `unacked` lies in the first of them.
    messages: VecDeque<Message<W>>,
    completions: VecDeque<Completion<W>>,
    unacked: u64,
    next: u64,
    sent: u64,
    assigned: u64,
    /// Index in `messages` of the operation that holds `next`; if none does, the length of `messages`.
    cursor: usize,
    /// Ends of the READ requests and atomics in flight.
    awaited: VecDeque<u64>,
    timer: RetransmissionTimer,
    /// The packet whose round trip is being measured, and when it was sent.
    timed: Option<(u64, u64)>,
    /// True if only one packet may be sent until something is acknowledged.
    probing: bool,
    /// The value of `unacked` at which a gap last made the requester go back. The requester goes back once per value; after that the timer
    /// repairs.
    gap_at: Option<u64>,
    /// The end of the silence that an RNR NAK asked for.
    hold_until_ns: Option<u64>,
    rnr_left: u8,
    /// The packet for which local memory failed. Its operation fails when the operations before it are complete.
    fault: Option<(u64, Failure)>,
    failed: bool,
    retransmitted: u64,
}

#[derive(Debug)]
struct Message<W> {
    wqe: W,
    operation: Operation,
    first: u64,
    packets: u64,
}

impl<W> Message<W> {
    fn end(&self) -> u64 {
        self.first + self.packets
    }

    /// Returns whether the operation completes by a response and not by an ACK.
    fn awaits_response(&self) -> bool {
        matches!(
            self.operation.kind,
            OperationKind::Read { .. } | OperationKind::Atomic(_)
        )
    }

    /// Returns offset and length of the payload of packet `sequence`.
    fn span(&self, sequence: u64, mtu: u32) -> (u64, usize) {
        let offset = (sequence - self.first) * u64::from(mtu);
        let bytes = (u64::from(self.operation.bytes) - offset).min(u64::from(mtu));
        (offset, usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}

impl<W> Requester<W> {
    /// Returns the requester of a QP that has sent nothing.
    pub fn new(config: RequesterConfig) -> Self {
        Self {
            config,
            messages: VecDeque::with_capacity(MAX_OPERATIONS),
            completions: VecDeque::with_capacity(MAX_OPERATIONS),
            unacked: 0,
            next: 0,
            sent: 0,
            assigned: 0,
            cursor: 0,
            awaited: VecDeque::with_capacity(MAX_OPERATIONS),
            timer: RetransmissionTimer::new(config.ack_timeout, config.retry_count),
            timed: None,
            probing: false,
            gap_at: None,
            hold_until_ns: None,
            rnr_left: config.rnr_retry,
            fault: None,
            failed: false,
            retransmitted: 0,
        }
    }

    /// Returns whether another operation can be taken now.
    pub fn has_room(&self) -> bool {
        self.messages.len() + self.completions.len() < MAX_OPERATIONS
    }

    /// Takes an operation. After a failure the operation comes back as flushed. If the queue is full, `Err` gives the WQE back.
    pub fn submit(&mut self, wqe: W, operation: Operation) -> Result<(), W> {
        if !self.has_room() {
            return Err(wqe);
        }
        if self.failed {
            self.completions.push_back(Completion {
                wqe,
                outcome: Err(Failure::Flushed),
            });
            return Ok(());
        }
        if let Err(failure) = check(self.config.service, &operation) {
            self.fault.get_or_insert((self.assigned, failure));
        }
        let packets = match operation.kind {
            OperationKind::Atomic(_) => 1,
            _ => u64::from(operation.bytes.div_ceil(self.config.mtu).max(1)),
        };
        self.messages.push_back(Message {
            wqe,
            operation,
            first: self.assigned,
            packets,
        });
        self.assigned += packets;
        self.apply_fault();
        Ok(())
    }

    /// Returns the next operation that is over, in order of submission.
    pub fn take_completion(&mut self) -> Option<Completion<W>> {
        self.completions.pop_front()
    }

    /// Returns the number of packets in flight, counting the responses that READ requests ask for.
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.next - self.unacked).unwrap_or(u32::MAX)
    }

    /// Returns the number of packets sent again so far.
    pub fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// Returns whether everything that was taken is complete.
    pub fn is_idle(&self) -> bool {
        self.messages.is_empty() && self.completions.is_empty()
    }

    /// Returns whether a packet could be sent now, if the destination has room.
    pub fn wants_to_send(&self) -> bool {
        self.sendable(u32::MAX).is_some()
    }

    /// Returns when [`Self::on_clock`] must be called next, if ever.
    pub fn deadline_ns(&self) -> Option<u64> {
        match (self.timer.deadline_ns(), self.hold_until_ns) {
            (Some(timer), Some(hold)) => Some(timer.min(hold)),
            (timer, hold) => timer.or(hold),
        }
    }

    /// Ends all operations as flushed: the QP has left Rts.
    pub fn flush(&mut self) {
        self.end_all(Failure::Flushed);
    }

    /// Handles the timer if it has run out. Packets that have arrived should be handled first.
    pub fn on_clock(&mut self, now_ns: u64) -> Feedback {
        if self.hold_until_ns.is_some_and(|until| until <= now_ns) {
            self.hold_until_ns = None;
        }
        match self.timer.expire(now_ns) {
            None => Feedback::default(),
            Some(Expiry::Retry) => {
                self.go_back();
                self.probing = true;
                Feedback {
                    acked: 0,
                    lost: true,
                }
            }
            Some(Expiry::GiveUp) => {
                self.end_all(Failure::RetryExceeded);
                Feedback {
                    acked: 0,
                    lost: true,
                }
            }
        }
    }

    /// Builds the next packet (headers and payload, no padding or ICRC) into `out`. Returns its length, or `None` if nothing may be sent
    /// now. `allowance` is the number of packets that the destination takes.
    ///
    /// # Panics
    /// If `out` is shorter than the MTU and [`super::packet::MAX_OVERHEAD_BYTES`].
    pub fn poll_transmit<D: Device<Wqe = W>>(
        &mut self,
        now_ns: u64,
        qpn: u32,
        allowance: u32,
        device: &mut D,
        out: &mut [u8],
    ) -> Option<usize> {
        let cost = self.sendable(allowance)?;
        let sequence = self.next;
        let message = self.messages.get(self.cursor)?;
        let ends = sequence + cost == message.end();
        let (offset, payload_bytes) = message.span(sequence, self.config.mtu);
        let body = request_body(message, sequence, cost, self.config.mtu);
        let carried = if message.awaits_response() {
            0
        } else {
            payload_bytes
        };
        let blocked = self.in_flight() + 1 >= self.config.window || allowance <= 1;
        let head = Head {
            dest_qpn: self.config.remote_qpn,
            psn: self.psn_of(sequence),
            ack_request: self.is_reliable()
                && !message.awaits_response()
                && (ends || blocked || self.probing || sequence % 8 == 7),
            solicited: ends && message.operation.solicited,
            transport: match (self.config.service, message.operation.to) {
                (Service::Uc, _) => Transport::Uc,
                (_, Target::Srq(srqn)) => Transport::XrcRequest(XrcEth { srqn }),
                _ => Transport::Rc,
            },
        };
        let start = write_headers(&head, &body, carried, out);
        if carried > 0
            && let Err(failure) =
                device.gather(qpn, &message.wqe, offset, &mut out[start..start + carried])
        {
            self.fault = Some((sequence, failure));
            self.apply_fault();
            return None;
        }
        self.note_sent(now_ns, sequence, cost, ends);
        Some(start + carried)
    }

    /// Returns whether the peer acknowledges.
    fn is_reliable(&self) -> bool {
        self.config.service != Service::Uc
    }

    fn go_back(&mut self) {
        self.next = self.unacked;
        self.cursor = 0;
        self.awaited.clear();
        self.timed = None;
        self.timer.stop(); // runs again when a packet is sent: waiting for a turn of this QP is not the peer's silence
    }

    /// Returns the number of PSNs that the next packet takes, if it may be sent now.
    fn sendable(&self, allowance: u32) -> Option<u64> {
        let in_flight = self.in_flight();
        if self.failed || self.hold_until_ns.is_some() || (self.probing && in_flight > 0) {
            return None;
        }
        if self
            .fault
            .is_some_and(|(sequence, _)| sequence <= self.next)
        {
            return None;
        }
        let message = self.messages.get(self.cursor)?;
        if message.operation.fence && self.next == message.first && !self.awaited.is_empty() {
            return None;
        }
        let max_awaited = usize::try_from(self.config.max_read_atomic).unwrap_or(usize::MAX);
        if message.awaits_response() && self.awaited.len() >= max_awaited.max(1) {
            return None;
        }
        let cost = match message.operation.kind {
            OperationKind::Read { .. } => {
                let index = self.next - message.first;
                (message.packets - index).min(READ_CHUNK - index % READ_CHUNK)
            }
            _ => 1,
        };
        // A first READ request may exceed the window: it cannot be cut.
        let fits = u64::from(in_flight) + cost <= u64::from(self.config.window);
        (allowance > 0 && (in_flight == 0 || (fits && cost <= u64::from(allowance))))
            .then_some(cost)
    }

    fn note_sent(&mut self, now_ns: u64, sequence: u64, cost: u64, ends: bool) {
        self.next = sequence + cost;
        if sequence < self.sent {
            self.retransmitted += 1;
        } else if self.timed.is_none() {
            self.timed = Some((sequence, now_ns));
        }
        self.sent = self.sent.max(self.next);
        if self
            .messages
            .get(self.cursor)
            .is_some_and(Message::awaits_response)
        {
            self.awaited.push_back(self.next);
        }
        if ends {
            self.cursor += 1;
        }
        if self.is_reliable() {
            self.timer.sent(now_ns);
        } else {
            self.acknowledge_before(now_ns, self.next);
            self.apply_fault();
        }
    }

    fn apply_fault(&mut self) {
        if let Some((sequence, failure)) = self.fault
            && self
                .messages
                .front()
                .is_some_and(|message| message.first <= sequence && sequence < message.end())
        {
            self.end_all(failure);
        }
    }

    /// Ends all operations: the first with failure `first`, the rest as flushed.
    fn end_all(&mut self, first: Failure) {
        let mut failure = first;
        for message in self.messages.drain(..) {
            self.completions.push_back(Completion {
                wqe: message.wqe,
                outcome: Err(failure),
            });
            failure = Failure::Flushed;
        }
        self.failed = true;
        self.unacked = self.assigned;
        self.next = self.assigned;
        self.sent = self.assigned;
        self.cursor = 0;
        self.awaited.clear();
        self.timer.stop();
        self.hold_until_ns = None;
        self.fault = None;
    }

    fn psn_of(&self, sequence: u64) -> Psn {
        let low = u32::try_from(sequence % u64::from(PSN_MODULUS)).unwrap_or(0);
        self.config.first_psn.add(low)
    }
}

/// Checks that the service has the operation.
fn check(service: Service, operation: &Operation) -> Result<(), Failure> {
    let fits = match (service, operation.to) {
        (Service::Rc, Target::Connected) | (Service::XrcInitiator, Target::Srq(_)) => true,
        (Service::Uc, Target::Connected) => matches!(
            operation.kind,
            OperationKind::Write { .. }
                | OperationKind::Send {
                    with: SendWith::Nothing | SendWith::Immediate(_)
                }
        ),
        _ => false,
    };
    fits.then_some(()).ok_or(Failure::LocalOperation)
}

/// Returns the headers of packet `sequence` of a message. A READ request covers `packets` packets.
fn request_body<W>(message: &Message<W>, sequence: u64, packets: u64, mtu: u32) -> Body {
    let starts = sequence == message.first;
    let ends = sequence + 1 == message.end();
    match message.operation.kind {
        OperationKind::Write {
            va,
            rkey,
            immediate,
        } => Body::Write {
            start: starts.then_some(Reth {
                va,
                rkey,
                bytes: message.operation.bytes,
            }),
            end: ends.then_some(immediate.map_or(WriteEnd::Plain, WriteEnd::Immediate)),
        },
        OperationKind::Send { with } => Body::Send {
            starts,
            end: ends.then_some(match with {
                SendWith::Nothing => SendEnd::Plain,
                SendWith::Immediate(word) => SendEnd::Immediate(word),
                SendWith::Invalidate(key) => SendEnd::Invalidate(key),
            }),
        },
        OperationKind::Read { va, rkey } => {
            let (offset, _) = message.span(sequence, mtu);
            let asked = (u64::from(message.operation.bytes) - offset).min(packets * u64::from(mtu));
            let bytes = u32::try_from(asked).unwrap_or(u32::MAX);
            Body::ReadRequest(Reth {
                va: va.wrapping_add(offset),
                rkey,
                bytes,
            })
        }
        OperationKind::Atomic(atomic) => Body::Atomic(atomic),
    }
}

#[cfg(test)]
mod tests;
