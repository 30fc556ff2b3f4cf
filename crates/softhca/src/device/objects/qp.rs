//! A queue pair: rings, counters, path.

use super::work::{Current, Segment, Work};
use crate::device::checker::scrutiny::Scrutiny;
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
    /// 0: none, as are the numbers below (an XRC target has none of these).
    pub(crate) pdn: u32,
    pub(crate) uar: u32,
    pub(crate) send_cqn: u32,
    pub(crate) receive_cqn: u32,
    /// UMEMs of the rings and of the doorbell record.
    pub(crate) umems: [u32; 2],
    /// `None`: the QP has neither a send queue nor a receive queue of its own.
    pub(crate) record: Option<Region>,
    pub(crate) state: QpState,
    /// As made; transitions put their fields in.
    pub(crate) qpc: Qpc,
    /// What [`Self::qpc`] was when the QP was made: what a reset goes back to.
    pub(crate) made: Qpc,
    /// Options of enhanced connection establishment in force.
    pub(crate) ece: u32,
    pub(crate) send: SendQueue,
    pub(crate) receive: Option<ReceiveQueue>,
    /// The SRQ that it takes receive WQEs from.
    pub(crate) srqn: Option<u32>,
    /// The receive WQE that a message is using.
    pub(crate) receiving: Option<Receiving>,
    /// Notices that are owed or have been given, once per life.
    pub(crate) notices: Notices,
    pub(crate) route: Route,
    /// Address of the HCA that the path names; unspecified before Rtr.
    pub(crate) remote: Ipv4Addr,
    /// Which of the LIDs of its HCA it sends from and takes packets to; 0 before Rtr.
    pub(crate) path_bits: u8,
    /// The wire has yet to learn that the QP is in error.
    pub(crate) wire_must_fail: bool,
    /// Sequence number of the next packet sent, and of the next expected.
    pub(crate) send_psn: u32,
    pub(crate) receive_psn: u32,
}

/// Where the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Not known before Rtr.
    None,
    /// An HCA of this process, by its number.
    Process(usize),
    /// Somewhere behind a socket.
    Wire,
    /// Wherever each WQE says.
    Datagram,
}

/// Events of a QP that are raised once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Notices {
    /// Software waits for the event that the send queue has drained.
    pub(crate) drain: bool,
    /// Software has got the event that the last WQE of the SRQ is taken.
    pub(crate) last_wqe: bool,
    /// Software has got the event of the first request that arrived before Rts.
    pub(crate) established: bool,
}

/// The send queue. All indices count WQEBBs modulo 2^16.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// `None`: the QP has none.
    pub(crate) ring: Option<Region>,
    /// After the last WQE that a doorbell allowed to run.
    pub(crate) posted: u16,
    /// What the last doorbell said, if the QP has no doorbell record.
    pub(crate) rung: Option<u16>,
    /// A doorbell has been taken since the QP was made or reset.
    pub(crate) begun: bool,
    /// The next WQE to fetch.
    pub(crate) fetched: u16,
    /// After the last WQE that is over.
    pub(crate) retired: u16,
    /// In the HCA's list of QPs with work.
    pub(crate) scheduled: bool,
    /// The operation that is being carried out inside the process.
    pub(crate) current: Option<Current>,
    /// How many operations this QP has handed to the wire, and how many of them the wire has completed.
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    /// What the checker remembers of it.
    pub(crate) scrutiny: Scrutiny,
    /// A WQE failed by a fault of the spec. The WQEs after it are flushed, whatever became of them.
    pub(crate) failed_by_fault: bool,
    /// NOPs that wait for the operations before them: (submitted before it, the NOP).
    pub(crate) parked: VecDeque<(u64, Work)>,
    /// A WQE that cannot be run and fails once those before it are over. Nothing after it is begun.
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
    /// WQEBBs of the ring, at most 2^15.
    pub(crate) fn depth(&self) -> u16 {
        self.ring
            .and_then(|ring| u16::try_from(ring.bytes() / 64).ok())
            .unwrap_or(0)
    }

    /// Operations are on the wire.
    pub(crate) fn is_outstanding(&self) -> bool {
        self.submitted != self.completed
    }

    /// Everything that was begun is over.
    pub(crate) fn is_drained(&self) -> bool {
        self.current.is_none()
            && self.doomed.is_none()
            && self.parked.is_empty()
            && !self.is_outstanding()
    }

    /// As after 2RST: nothing posted, counters 0.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            ring: self.ring,
            scheduled: self.scheduled,
            rung: self.rung.map(|_| 0),
            ..Self::default()
        };
    }
}

/// The receive ring that a QP has of its own.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) ring: Region,
    /// Bytes of a receive WQE.
    pub(crate) stride: u64,
    /// The next receive WQE to take, modulo 2^16.
    pub(crate) taken: u16,
}

/// A receive WQE in use.
#[derive(Debug)]
pub(crate) struct Receiving {
    /// The SRQ that it was taken from.
    pub(crate) srqn: Option<u32>,
    /// Whose keys its segments name.
    pub(crate) user: KeyUser,
    pub(crate) index: u16,
    pub(crate) pieces: Vec<Segment>,
}

impl Receiving {
    /// Bytes that fit.
    pub(crate) fn room(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }
}

/// Returns the segments of a receive WQE: up to the invalid key, those of length 0 skipped.
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
    /// The send counter of the doorbell record; without one, that of the last doorbell.
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
        // The record holds a 16-bit counter.
        self.record
            .map_or(0, |record| (record.load_be32(at) & 0xffff) as u16)
    }

    /// Returns the XRC domain that it belongs to.
    pub(crate) fn xrcd(&self) -> Option<u32> {
        (self.service == Service::XrcTarget).then(|| self.qpc.xrcd())
    }

    /// Receive WQEs come from an SRQ, its own or one that packets name.
    pub(crate) fn shares_receives(&self) -> bool {
        self.srqn.is_some() || self.service == Service::XrcTarget
    }

    /// Returns the context as `QUERY_QP` shows it. `reads`: the doorbell record may be read.
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
