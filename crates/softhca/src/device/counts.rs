//! Counters of a device, and the numbers of its live objects.

use crate::sysfs::{MAX_PORTS, port_number};
use crate::wire::endpoint::{LidCounters, WireCounters};
use mlx5_prm::qpc::Qpc;

/// Counters of one HCA since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Send WQEs that were begun. Flushed WQEs are not counted.
    pub wqes: u64,
    /// The part of `wqes` by QPs that name port 1 and port 2 of a link aggregation group.
    pub wqes_by_lag_port: [u64; 2],
    /// The part of `wqes` by QPs of port 1 and of port 2.
    pub wqes_by_port: [u64; MAX_PORTS as usize],
    /// Doorbells that were taken from UAR registers.
    pub doorbells: u64,
    /// Completion entries that were written, error entries included.
    pub cqes: u64,
    /// Error completion entries that were written.
    pub error_cqes: u64,
    /// Payload bytes sent: writes and sends, and answers to reads.
    pub bytes_sent: u64,
    /// Payload bytes received: writes and sends of peers, and results of this HCA's reads.
    pub bytes_received: u64,
    /// RDMA WRITE WQEs, with and without immediate, inline ones included.
    pub write_requests: u64,
    /// RDMA WRITE WQEs whose data is all inline. The signals of the warpverbs runtime are such WQEs.
    pub inline_write_requests: u64,
    /// RDMA READ WQEs.
    pub read_requests: u64,
    /// Atomic WQEs, masked atomics included.
    pub atomic_requests: u64,
    /// Packets sent over UDP, retransmissions included.
    pub packets_sent: u64,
    /// Packets received over UDP.
    pub packets_received: u64,
    /// Packets sent again.
    pub retransmissions: u64,
    /// Packets received again and dropped.
    pub duplicates: u64,
    /// Findings of the checker, repetitions included.
    pub findings: u64,
}

/// Counters of one port of an HCA since the HCA was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortCounters {
    /// True if the port is down, so that it carries nothing.
    pub is_down: bool,
    /// Send WQEs that QPs of the port have begun.
    pub wqes: u64,
    /// Packets of each LID of the port, by path bits: as many entries as its LMC says. On Ethernet one entry for the only address.
    pub lids: Vec<LidCounters>,
    /// Other counters of the wire of the port.
    pub wire: WireCounters,
}

impl PortCounters {
    /// Returns the number of packets sent, retransmissions included.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.lids.iter().map(|lid| lid.sent).sum()
    }

    /// Returns the number of packets that have come to the port.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.lids.iter().map(|lid| lid.received).sum()
    }

    /// Returns the number of bytes of the packets sent.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.lids.iter().map(|lid| lid.sent_bytes).sum()
    }

    /// Returns the number of bytes of the packets that have come to the port.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.lids.iter().map(|lid| lid.received_bytes).sum()
    }
}

impl Counters {
    /// Counts `wqes` WQEs that a QP with context `qpc` has begun.
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

/// Numbers of live objects of one HCA.
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
    /// Returns the number of all these objects.
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
