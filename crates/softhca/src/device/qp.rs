//! A reliable-connection queue pair: rings, counters, path.

use super::memory::Region;
use super::work::{Current, Work};
use crate::engine::scrutiny::Scrutiny;
use mlx5_prm::doorbell::qp_record;
use mlx5_prm::qp::{QpState, Qpc};
use std::collections::VecDeque;

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) context: u32,
    pub(crate) pdn: u32,
    pub(crate) uar: u32,
    pub(crate) send_cqn: u32,
    pub(crate) receive_cqn: u32,
    /// UMEMs of the rings and of the doorbell record.
    pub(crate) umems: [u32; 2],
    pub(crate) record: Region,
    pub(crate) state: QpState,
    /// As made; transitions put their fields in.
    pub(crate) qpc: Qpc,
    /// What [`Self::qpc`] was when the QP was made: what a reset goes back to.
    pub(crate) made: Qpc,
    pub(crate) send: SendQueue,
    pub(crate) receive: Option<ReceiveQueue>,
    pub(crate) route: Route,
    /// The wire has not been told yet that the QP is in error.
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
}

/// The send queue. All indices count WQEBBs modulo 2^16.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// `None`: the QP has none.
    pub(crate) ring: Option<Region>,
    /// Behind the last WQE that a doorbell allowed to run.
    pub(crate) posted: u16,
    /// The next WQE to fetch.
    pub(crate) fetched: u16,
    /// Behind the last WQE that is over.
    pub(crate) retired: u16,
    /// In the HCA's list of QPs with work.
    pub(crate) scheduled: bool,
    /// The operation that is being carried out inside the process.
    pub(crate) current: Option<Current>,
    /// Operations handed to the wire, and those it has completed.
    pub(crate) submitted: u64,
    pub(crate) completed: u64,
    /// What the checker remembers of it.
    pub(crate) scrutiny: Scrutiny,
    /// A WQE failed because somebody asked for it: those behind it are flushed, whatever became of them.
    pub(crate) failed_by_fault: bool,
    /// NOPs that wait for the operations before them: (submitted before it, the NOP).
    pub(crate) parked: VecDeque<(u64, Work)>,
}

impl SendQueue {
    /// WQEBBs of the ring, at most 2^15.
    pub(crate) fn depth(&self) -> u16 {
        self.ring
            .and_then(|ring| u16::try_from(ring.bytes() / 64).ok())
            .unwrap_or(0)
    }

    /// As after 2RST: nothing posted, counters 0.
    pub(crate) fn reset(&mut self) {
        *self = Self {
            ring: self.ring,
            scheduled: self.scheduled,
            ..Self::default()
        };
    }
}

/// The receive queue.
#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    pub(crate) ring: Region,
    /// Bytes of a receive WQE.
    pub(crate) stride: u64,
    /// The next receive WQE to take, modulo 2^16.
    pub(crate) taken: u16,
    /// The one that a message is using.
    pub(crate) current: Option<Received>,
}

/// A receive WQE in use.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) index: u16,
    pub(crate) pieces: Vec<super::work::Segment>,
}

impl ReceiveQueue {
    pub(crate) fn entries(&self) -> u64 {
        self.ring.bytes() / self.stride
    }
}

impl Qp {
    /// The send counter of the doorbell record.
    pub(crate) fn send_record(&self) -> u16 {
        // The record holds a 16-bit counter.
        (self.record.load_be32(qp_record::SND) & 0xffff) as u16
    }

    /// The receive counter of the doorbell record.
    pub(crate) fn receive_record(&self) -> u16 {
        (self.record.load_be32(qp_record::RCV) & 0xffff) as u16
    }

    /// The context as `QUERY_QP` shows it.
    pub(crate) fn queried(&self) -> Qpc {
        let taken = self.receive.as_ref().map_or(0, |queue| queue.taken);
        self.qpc
            .with_state(u32::from(self.state.0))
            .with_next_send_psn(self.send_psn)
            .with_next_rcv_psn(self.receive_psn)
            .with_hw_sq_wqebb_counter(u32::from(self.send.fetched))
            .with_sw_sq_wqebb_counter(u32::from(self.send.posted))
            .with_hw_rq_counter(u32::from(taken))
            .with_sw_rq_counter(u32::from(self.receive_record()))
    }
}
