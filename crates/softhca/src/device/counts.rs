//! What a device counts, and how many objects live on it.

use crate::sysfs::{MAX_PORTS, port_number};
use crate::wire::endpoint::{LidCounters, WireCounters};
use mlx5_prm::qpc::Qpc;

/// Counters of one HCA since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Send WQEs begun, flushed ones not included.
    pub wqes: u64,
    /// Of them, those of QPs that name port 1 and port 2 of a link aggregation group.
    pub wqes_by_lag_port: [u64; 2],
    /// Of all, those of QPs for port 1 and for port 2.
    pub wqes_by_port: [u64; MAX_PORTS as usize],
    /// Doorbells taken from UAR registers.
    pub doorbells: u64,
    /// Completion entries written, failed ones included.
    pub cqes: u64,
    /// Failed completion entries written.
    pub error_cqes: u64,
    /// Payload bytes sent: writes and sends, and answers to reads.
    pub bytes_sent: u64,
    /// Payload bytes received: writes and sends of peers, and results of own reads.
    pub bytes_received: u64,
    /// RDMA WRITE WQEs, with and without immediate, inline ones included.
    pub write_requests: u64,
    /// RDMA WRITE WQEs whose data is all inline: what the runtime's signals are.
    pub inline_write_requests: u64,
    /// RDMA READ WQEs.
    pub read_requests: u64,
    /// Atomic WQEs, masked ones included.
    pub atomic_requests: u64,
    /// Packets sent over UDP, those sent again included.
    pub packets_sent: u64,
    /// Packets received over UDP.
    pub packets_received: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Packets received again and dropped.
    pub duplicates: u64,
    /// What the checker objected to, repetitions included.
    pub findings: u64,
}

/// Counters of one port of an HCA since the HCA was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortCounters {
    /// The port carries nothing now.
    pub is_down: bool,
    /// Send WQEs of its QPs that were begun.
    pub wqes: u64,
    /// Packets of its LIDs by their path bits, as many as its LMC says; on Ethernet those of its only address.
    pub lids: Vec<LidCounters>,
    /// What its wire has seen besides.
    pub wire: WireCounters,
}

impl PortCounters {
    /// Packets sent, those sent again included.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.lids.iter().map(|lid| lid.sent).sum()
    }

    /// Packets that have come to it.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.lids.iter().map(|lid| lid.received).sum()
    }

    /// Bytes of the packets sent.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.lids.iter().map(|lid| lid.sent_bytes).sum()
    }

    /// Bytes of the packets that have come to it.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.lids.iter().map(|lid| lid.received_bytes).sum()
    }
}

impl Counters {
    /// So many WQEs of a QP with this context were begun.
    pub(crate) fn on_port(&mut self, qpc: &Qpc, wqes: u64) {
        let port = usize::from(port_number(qpc) - 1);
        if let Some(count) = self.wqes_by_port.get_mut(port) {
            *count += wqes;
        }
        let place = (qpc.lag_tx_port_affinity() as usize).checked_sub(1);
        if let Some(count) = place.and_then(|place| self.wqes_by_lag_port.get_mut(place)) {
            *count += wqes;
        }
    }
}

/// Live objects of one HCA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectCounts {
    /// Opened contexts.
    pub context: usize,
    /// Protection domains.
    pub pd: usize,
    /// Registered regions.
    pub mr: usize,
    /// Memory windows.
    pub mw: usize,
    /// Memory keys made by command.
    pub mkey: usize,
    /// User memories (UMEMs) that DevX has registered.
    pub umem: usize,
    /// UAR pages.
    pub uar: usize,
    /// Completion queues.
    pub cq: usize,
    /// Queue pairs.
    pub qp: usize,
    /// Shared receive queues.
    pub srq: usize,
    /// XRC domains.
    pub xrcd: usize,
    /// Event queues made by command.
    pub eq: usize,
    /// Event descriptors.
    pub event_fd: usize,
}

impl ObjectCounts {
    /// All of them.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.context
            + self.pd
            + self.mr
            + self.mw
            + self.mkey
            + self.umem
            + self.uar
            + self.cq
            + self.qp
            + self.srq
            + self.xrcd
            + self.eq
            + self.event_fd
    }
}
