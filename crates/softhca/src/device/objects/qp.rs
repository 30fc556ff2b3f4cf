//! The state of a queue pair: rings, counters, path.

use super::work::{Current, Segment, Work};
use crate::device::check::scrutiny::Scrutiny;
use crate::device::memory::Region;
use crate::device::memory::keys::KeyUser;
use crate::transport::Service;
use mlx5_prm::cqe::Syndrome;
use mlx5_prm::doorbell::qp_record;
use mlx5_prm::qp::{QpState, Qpc};
use mlx5_prm::wqe::{DataSeg, SEG_BYTES, WqeOpcode};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) context: u32,
    pub(crate) service: Service,
    /// Number of the protection domain. In this field and the numbers below 0 means none (an XRC target has none of these).
    pub(crate) pdn: u32,
    pub(crate) uar: u32,
    pub(crate) send_cqn: u32,
    pub(crate) receive_cqn: u32,
    /// Ids of the UMEMs of the rings and of the doorbell record.
    pub(crate) umems: [u32; 2],
    /// The doorbell record. `None`: neither the send queue nor a receive queue of the QP needs it.
    pub(crate) record: Option<Region>,
    pub(crate) state: QpState,
    /// The context as the QP was made, with the fields that transitions have set.
    pub(crate) qpc: Qpc,
    /// The context as the QP was made. A reset goes back to it.
    pub(crate) made: Qpc,
    /// The options of enhanced connection establishment (ECE) that are in force.
    pub(crate) ece: u32,
    pub(crate) send: SendQueue,
    pub(crate) receive: Option<ReceiveQueue>,
    /// The SRQ from which the QP takes receive WQEs.
    pub(crate) srqn: Option<u32>,
    /// The receive WQE that a message is using.
    pub(crate) receiving: Option<Receiving>,
    /// Notices that are owed or have been given, once per life.
    pub(crate) notices: Notices,
    pub(crate) route: Route,
    /// Address of the HCA that the path leads to; unspecified before Rtr.
    pub(crate) remote: Ipv4Addr,
    /// Path bits of the LID of its port that the QP uses; 0 before Rtr.
    pub(crate) path_bits: u8,
    /// True if the wire must still be told that the QP is in error.
    pub(crate) wire_must_fail: bool,
    /// Sequence number of the next packet sent. `receive_psn` is that of the next packet expected.
    pub(crate) send_psn: u32,
    pub(crate) receive_psn: u32,
}

/// The way to the peer of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The way is not known before Rtr.
    None,
    /// The operations go by memory, to the HCA of this process with this number.
    Process(usize),
    /// The operations go by packets.
    Wire,
    /// The way depends on the address in each WQE.
    Datagram,
}

/// Events of a QP that are raised once per life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices {
    /// True if software waits for the event that the send queue has drained.
    pub(crate) drain: bool,
    /// True if software has got the event that the QP takes no more WQEs from its SRQ.
    pub(crate) last_wqe: bool,
    /// True if software has got the event of the first request that arrived before Rts.
    pub(crate) established: bool,
}

/// The send queue. All indices count WQEBBs modulo 2^16.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// The send ring; `None` if the QP has none.
    pub(crate) ring: Option<Region>,
    /// Index after the last WQE that a doorbell allowed to run.
    pub(crate) posted: u16,
    /// Index in the last doorbell, if the QP has no doorbell record.
    pub(crate) rung: Option<u16>,
    /// True if a doorbell has been taken since the QP was made or reset.
    pub(crate) begun: bool,
    /// Index of the next WQE to fetch.
    pub(crate) fetched: u16,
    /// Index after the last WQE that is over.
    pub(crate) retired: u16,
    /// True if the QP is in the HCA's list of QPs with work.
    pub(crate) scheduled: bool,
    /// The operation between QPs of this process that is being carried out.
    pub(crate) current: Option<Current>,
    /// The number of operations that this QP has handed to the wire, and the number of them that the wire has completed.
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    /// The checker's record of the queue.
    pub(crate) scrutiny: Scrutiny,
    /// True if a fault of the spec has failed a WQE. Then the WQEs after it are flushed, whatever became of them.
    pub(crate) failed_by_fault: bool,
    /// NOPs that wait for the operations before them. Each has the value of `submitted` at which it was parked.
    pub(crate) parked: VecDeque<(u64, Work)>,
    /// A WQE that cannot be run and fails once the WQEs before it are over. No WQE after it is begun.
    pub(crate) doomed: Option<Doomed>,
}

/// A WQE that cannot be run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doomed {
    pub(crate) index: u16,
    pub(crate) blocks: u16,
    pub(crate) opcode: WqeOpcode,
    pub(crate) syndrome: Syndrome,
}

impl SendQueue {
    /// Returns the number of WQEBBs of the ring, at most 2^15.
    pub(crate) fn depth(&self) -> u16 {
        self.ring
            .and_then(|ring| u16::try_from(ring.bytes() / 64).ok())
            .unwrap_or(0)
    }

    /// Returns whether operations are on the wire.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.submitted != self.completed
    }

    /// Returns whether everything that was begun is over.
    pub(crate) fn is_drained(&self) -> bool {
        self.current.is_none()
            && self.doomed.is_none()
            && self.parked.is_empty()
            && !self.is_outstanding()
    }

    /// Resets the queue as 2RST does: nothing posted, counters 0.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            ring: self.ring,
            scheduled: self.scheduled,
            rung: self.rung.map(|_| 0),
            ..Self::default()
        };
    }
}

/// The receive queue that a QP has of its own.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) ring: Region,
    /// Length of a receive WQE in bytes.
    pub(crate) stride: u64,
    /// Index of the next receive WQE to take, modulo 2^16.
    pub(crate) taken: u16,
}

/// A receive WQE that a message is using.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// The SRQ that the WQE was taken from.
    pub(crate) srqn: Option<u32>,
    /// The user of the keys in its segments.
    pub(crate) user: KeyUser,
    pub(crate) index: u16,
    pub(crate) pieces: Vec<Segment>,
}

impl Receiving {
    /// Returns the number of bytes that fit into the WQE.
    pub(crate) fn room(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// Returns the segments of a receive WQE, up to the first with the invalid key. Segments of length 0 are left out.
pub(crate) fn segments(wqe: &[u8]) -> Vec<Segment> {
    wqe.chunks_exact(SEG_BYTES)
        .filter_map(|unit| bytemuck::try_pod_read_unaligned::<DataSeg>(unit).ok())
        .take_while(|data| data.lkey.get() != DataSeg::INVALID_LKEY)
        .filter(|data| data.byte_count.get() != 0)
        .map(|data| Segment {
            lkey: data.lkey.get(),
            address: data.addr.get(),
            bytes: data.byte_count.get().into(),
        })
        .collect()
}

impl ReceiveQueue {
    pub(crate) fn entries(&self) -> u64 {
        self.ring.bytes() / self.stride
    }
}

impl Qp {
    /// Returns the send counter of the doorbell record; without a record, the counter in the last doorbell.
    pub(crate) fn send_record(&self) -> u16 {
        self.send
            .rung
            .unwrap_or_else(|| self.counter(qp_record::SND))
    }

    /// Returns the receive counter of the doorbell record.
    pub(crate) fn receive_record(&self) -> u16 {
        self.counter(qp_record::RCV)
    }

    fn counter(&self, at: usize) -> u16 {
        // The word of the record holds a 16-bit counter.
        self.record
            .map_or(0, |record| (record.load_be32(at) & 0xffff) as u16)
    }

    /// Returns the XRC domain of the QP, if it is an XRC target.
    pub(crate) fn xrcd(&self) -> Option<u32> {
        (self.service == Service::XrcTarget).then(|| self.qpc.xrcd())
    }

    /// Returns whether its receive WQEs come from an SRQ: the SRQ of the QP, or one that packets name.
    pub(crate) fn shares_receives(&self) -> bool {
        self.srqn.is_some() || self.service == Service::XrcTarget
    }

    /// Returns the context as `QUERY_QP` shows it. `reads`: this process may read the doorbell record.
    pub(crate) fn queried(&self, reads: bool) -> Qpc {
        let taken = self.receive.as_ref().map_or(0, |queue| queue.taken);
        let state = match self.state {
            QpState::SQD if !self.send.is_drained() => QpState::SQ_DRAINING,
            state => state,
        };
        self.qpc
            .with_state(u32::from(state.0))
            .with_next_send_psn(self.send_psn)
            .with_next_rcv_psn(self.receive_psn)
            .with_hw_sq_wqebb_counter(u32::from(self.send.fetched))
            .with_sw_sq_wqebb_counter(u32::from(self.send.posted))
            .with_hw_rq_counter(u32::from(taken))
            .with_sw_rq_counter(if reads {
                self.receive_record().into()
            } else {
                0
            })
    }
}
