//! The requester's handling of responses: acknowledges, refusals, READ data, results of atomics.

use super::{Completion, Feedback, Requester};
use crate::transport::{Device, Failure, NakCode, OperationKind};
use crate::wire::headers::{Aeth, Syndrome, rnr_delay_ns};
use crate::wire::packet::{Body, Packet};
use crate::wire::psn::PSN_MODULUS;

impl<W> Requester<W> {
    /// Handles a response packet.
    pub fn on_response<D: Device<Wqe = W>>(
        &mut self,
        now_ns: u64,
        qpn: u32,
        packet: &Packet<'_>,
        device: &mut D,
    ) -> Feedback {
        let Packet {
            head,
            body,
            payload,
        } = *packet;
        let ahead = head.psn.distance_from(self.psn_of(self.unacked));
        let sequence = self.unacked + u64::from(ahead);
        if self.failed || ahead >= PSN_MODULUS / 2 || sequence >= self.sent {
            return Feedback::default(); // old, or about a packet that was never sent
        }
        let before = self.unacked;
        let lost = match body {
            Body::Acknowledge(aeth) => self.on_acknowledge(now_ns, sequence, aeth),
            Body::ReadResponse(_) => self.on_read_response(now_ns, qpn, sequence, payload, device),
            Body::AtomicAcknowledge { original, .. } => {
                self.on_atomic_response(now_ns, qpn, sequence, original, device)
            }
            _ => false,
        };
        let acked = if self.failed {
            0
        } else {
            self.unacked - before
        };
        self.apply_fault();
        Feedback {
            acked: u32::try_from(acked).unwrap_or(u32::MAX),
            lost,
        }
    }

    /// Handles an AETH for packet `sequence`. Returns true if it reports a loss.
    fn on_acknowledge(&mut self, now_ns: u64, sequence: u64, aeth: Aeth) -> bool {
        let done_before = if matches!(aeth.syndrome, Syndrome::Ack { .. }) {
            sequence + 1
        } else {
            sequence
        };
        if !self.acknowledge_before(now_ns, done_before) {
            return self.repair_gap(); // an earlier response got lost
        }
        match aeth.syndrome {
            Syndrome::Ack { .. } | Syndrome::Reserved(_) => false,
            Syndrome::RnrNak { timer } => {
                self.on_receiver_not_ready(now_ns, timer);
                false
            }
            Syndrome::Nak(code) => match code {
                NakCode::PSN_SEQUENCE_ERROR => self.repair_gap(),
                NakCode::INVALID_REQUEST => self.refused(Failure::RemoteInvalidRequest),
                NakCode::REMOTE_ACCESS_ERROR => self.refused(Failure::RemoteAccess),
                NakCode::REMOTE_OPERATIONAL_ERROR => self.refused(Failure::RemoteOperation),
                _ => self.refused(Failure::BadResponse),
            },
        }
    }

    fn refused(&mut self, failure: Failure) -> bool {
        self.end_all(failure);
        false
    }

    fn on_receiver_not_ready(&mut self, now_ns: u64, timer: u8) {
        if self.hold_until_ns.is_some() {
            return;
        }
        const NO_BOUND: u8 = 7;
        if self.config.rnr_retry < NO_BOUND {
            match self.rnr_left.checked_sub(1) {
                Some(left) => self.rnr_left = left,
                None => return self.end_all(Failure::RnrRetryExceeded),
            }
        }
        self.go_back();
        self.hold_until_ns = Some(now_ns.saturating_add(rnr_delay_ns(timer)));
    }

    fn on_read_response<D: Device<Wqe = W>>(
        &mut self,
        now_ns: u64,
        qpn: u32,
        sequence: u64,
        payload: &[u8],
        device: &mut D,
    ) -> bool {
        if !self.acknowledge_before(now_ns, sequence) {
            return self.repair_gap();
        }
        let mtu = self.config.mtu;
        let Some(message) = self.messages.front() else {
            return false;
        };
        if !matches!(message.operation.kind, OperationKind::Read { .. }) {
            return false;
        }
        let (offset, bytes) = message.span(sequence, mtu);
        if payload.len() != bytes {
            return self.refused(Failure::BadResponse);
        }
        if !payload.is_empty()
            && let Err(failure) = device.scatter(qpn, &message.wqe, offset, payload)
        {
            return self.refused(failure);
        }
        self.acknowledge_one(now_ns);
        false
    }

    fn on_atomic_response<D: Device<Wqe = W>>(
        &mut self,
        now_ns: u64,
        qpn: u32,
        sequence: u64,
        original: u64,
        device: &mut D,
    ) -> bool {
        if !self.acknowledge_before(now_ns, sequence) {
            return self.repair_gap();
        }
        let Some(message) = self.messages.front() else {
            return false;
        };
        let OperationKind::Atomic(atomic) = message.operation.kind else {
            return false;
        };
        let narrow = original & u64::from(u32::MAX);
        let stored = match (atomic.operand_bytes(), u32::try_from(narrow)) {
            // The capability that says how results of 8 bytes come does not apply to results of 4 bytes.
            (4, Ok(word)) => device.scatter(qpn, &message.wqe, 0, &word.to_be_bytes()),
            _ => device.scatter(qpn, &message.wqe, 0, &original.to_ne_bytes()),
        };
        if let Err(failure) = stored {
            return self.refused(failure);
        }
        self.acknowledge_one(now_ns);
        false
    }

    /// Marks all packets before `limit` as acknowledged. Returns false if it stops at a packet whose response is missing.
    pub(super) fn acknowledge_before(&mut self, now_ns: u64, limit: u64) -> bool {
        let before = self.unacked;
        while self.unacked < limit {
            let Some(message) = self
                .messages
                .front()
                .filter(|message| !message.awaits_response())
            else {
                break;
            };
            self.unacked = message.end().min(limit);
            self.complete_front();
        }
        if self.unacked > before {
            self.note_progress(now_ns);
        }
        self.unacked >= limit
    }

    fn acknowledge_one(&mut self, now_ns: u64) {
        self.unacked += 1;
        self.complete_front();
        self.note_progress(now_ns);
    }

    /// Completes the first operation if all its packets are acknowledged.
    fn complete_front(&mut self) {
        if self
            .messages
            .front()
            .is_some_and(|message| message.end() == self.unacked)
            && let Some(message) = self.messages.pop_front()
        {
            self.cursor = self.cursor.saturating_sub(1);
            self.completions.push_back(Completion {
                wqe: message.wqe,
                outcome: Ok(()),
            });
        }
    }

    /// Goes back, once for each value of `unacked`. Returns whether it did.
    fn repair_gap(&mut self) -> bool {
        if self.gap_at == Some(self.unacked) {
            return false;
        }
        self.go_back();
        self.gap_at = Some(self.unacked);
        true
    }

    fn note_progress(&mut self, now_ns: u64) {
        self.probing = false;
        self.gap_at = self.gap_at.filter(|at| *at == self.unacked);
        self.rnr_left = self.config.rnr_retry;
        if self.next < self.unacked {
            self.next = self.unacked;
            self.cursor = 0;
        }
        while self.awaited.front().is_some_and(|end| *end <= self.unacked) {
            self.awaited.pop_front();
        }
        if let Some((sequence, at_ns)) = self.timed
            && sequence < self.unacked
        {
            self.timer.measured(now_ns.saturating_sub(at_ns));
            self.timed = None;
        }
        self.timer.progressed(now_ns, self.next > self.unacked);
    }
}
