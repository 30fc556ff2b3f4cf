//! The answers of a responder: those that wait to be sent, and the results of atomics that are kept for duplicates.

use crate::transport::{Device, NakCode};
use crate::wire::headers::{Aeth, NO_CREDITS, Reth, Syndrome};
use crate::wire::opcode::Position;
use crate::wire::packet::{Body, Head, ReadPart, Transport, write_headers};
use crate::wire::psn::{PSN_MODULUS, Psn};
use std::collections::VecDeque;

/// Most answers to READs and atomics that wait at once. A request beyond that is dropped as if it had got lost.
pub(super) const MAX_JOBS: usize = 64;
/// Number of results of atomics that are kept for duplicates. A requester has fewer in flight.
pub const REPLAYS: usize = 32;

/// The acknowledge of a request that was carried out.
pub(super) const ACK: Syndrome = Syndrome::Ack {
    credits: NO_CREDITS,
};

/// The answers of a responder.
#[derive(Debug)]
pub(super) struct Answers {
    /// The peer's QP, and the service of the packets to it.
    dest_qpn: u32,
    transport: Transport,
    /// Most payload bytes of a packet.
    mtu: u32,
    /// Number of messages completed, 24 bits.
    msn: u32,
    jobs: VecDeque<Job>,
    replays: VecDeque<(Psn, u64)>,
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

impl Answers {
    /// Returns the answers of a QP that has received nothing. They go to QP `dest_qpn` in packets of at most `mtu` bytes.
    pub(super) fn new(dest_qpn: u32, transport: Transport, mtu: u32) -> Self {
        Self {
            dest_qpn,
            transport,
            mtu,
            msn: 0,
            jobs: VecDeque::with_capacity(2 * MAX_JOBS + 2),
            replays: VecDeque::with_capacity(REPLAYS),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns whether the answer of one more READ or atomic may wait.
    pub(super) fn has_room(&self) -> bool {
        self.jobs.len() < MAX_JOBS
    }

    /// Returns the number of READs and atomics whose answers wait. Duplicates do not count.
    pub(super) fn requests(&self) -> usize {
        let waiting = |job: &&Job| {
            matches!(
                job,
                Job::Read { again: false, .. } | Job::Atomic { again: false, .. }
            )
        };
        self.jobs.iter().filter(waiting).count()
    }

    /// Counts a message that is complete. The answers from now on have the new count.
    pub(super) fn message_done(&mut self) {
        self.msn = (self.msn + 1) % PSN_MODULUS;
    }

    /// Queues an acknowledge. Consecutive acknowledges of one kind become one.
    pub(super) fn acknowledge(&mut self, psn: Psn, syndrome: Syndrome) {
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

    /// Queues the answer of a READ.
    pub(super) fn read(&mut self, psn: Psn, reth: Reth) {
        self.jobs.push_back(Job::Read {
            psn,
            reth,
            sent: 0,
            msn: self.msn,
            again: false,
        });
    }

    /// Queues the answer of an atomic whose operand was `original`, and keeps that for duplicates.
    pub(super) fn atomic(&mut self, psn: Psn, original: u64) {
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
    }

    /// Queues the answer of a duplicate READ, if there is room and the same answer does not wait already.
    pub(super) fn read_again(&mut self, psn: Psn, reth: Reth) {
        let waiting =
            |job: &Job| matches!(job, Job::Read { psn: other, sent: 0, .. } if *other == psn);
        if !self.has_room() || self.jobs.iter().any(waiting) {
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

    /// Queues the answer of a duplicate atomic, if its result is kept and there is room.
    pub(super) fn atomic_again(&mut self, psn: Psn) {
        // The latest result is taken: numbers come again after 2^24 packets.
        let replay = self.replays.iter().rfind(|(other, _)| *other == psn);
        if let Some(&(psn, original)) = replay
            && self.has_room()
        {
            self.jobs.push_back(Job::Atomic {
                psn,
                original,
                msn: self.msn,
                again: true,
            });
        }
    }

    /// Builds the next answer into `out`. Returns its length, or `None` if no answer waits.
    ///
    /// # Errors
    ///
    /// The memory of a READ cannot be read any more. The answer is a NAK then, which waits in its place.
    pub(super) fn transmit<D: Device>(
        &mut self,
        qpn: u32,
        device: &mut D,
        out: &mut [u8],
    ) -> Result<Option<usize>, NakCode> {
        let head = |psn| Head {
            dest_qpn: self.dest_qpn,
            psn,
            ack_request: false,
            solicited: false,
            transport: self.transport,
        };
        let Some(job) = self.jobs.front_mut() else {
            return Ok(None);
        };
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
                let (mtu, index) = (self.mtu, *sent);
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
                        return Err(code);
                    }
                }
                if index + 1 < count {
                    return Ok(Some(start + payload));
                }
                start + payload
            }
        };
        self.jobs.pop_front();
        Ok(Some(used))
    }
}

/// Returns the number of packets that `bytes` bytes take.
pub(super) fn packets_of(bytes: u32, mtu: u32) -> u32 {
    bytes.div_ceil(mtu).max(1)
}
