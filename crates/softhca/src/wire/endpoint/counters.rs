//! Counters of the wire.

/// What the wire of an HCA has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WireCounters {
    /// Packets sent, those sent again included.
    pub packets_sent: u64,
    /// Packets received and taken to a QP.
    pub packets_received: u64,
    /// Request packets sent again.
    pub retransmissions: u64,
    /// Requests received that had been carried out before.
    pub duplicates: u64,
    /// Requests received ahead of a missing one, and dropped.
    pub out_of_order: u64,
    /// Datagrams that are no packet.
    pub malformed: u64,
    /// Congestion notifications, which are ignored.
    pub congestion: u64,
    /// Packets of another service than the QP's.
    pub wrong_service: u64,
    /// Packets whose ICRC is wrong.
    pub bad_icrc: u64,
    /// Packets for a QP that is not there or not ready.
    pub unknown_qp: u64,
    /// Packets for a QP from an address that is not its peer's.
    pub unknown_source: u64,
    /// Packets that the kernel did not send: no route, or larger than the path's MTU.
    pub unsendable: u64,
    /// Frames on the HCA's Ethernet that are for others, or no RoCE and no ARP.
    pub foreign_frames: u64,
}
