//! The entries of an executor's tables. They are plain bytes, which softhca and kernels lay out alike.
//!
//! `crates/gpuhca` has the same structs for C++; a test of that crate compares the two.

use bytemuck::{Pod, Zeroable};

/// A QP as an executor sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct Qp {
    /// `life << 8 | state`, the state as in the PRM (2 Rtr, 3 Rts, 4 SQerr, 5 SQD, 6 Err). 0: the entry holds no QP.
    pub head: u64,
    /// Address of the send ring.
    pub ring: u64,
    /// Address of the doorbell record. 0: the QP has none. With `NO_RECORD` the doorbell itself says how far to run, and the record is for
    /// receives.
    pub record: u64,
    /// Address of the twin of the UAR page.
    pub page: u64,
    /// Address of the receive ring.
    pub receive_ring: u64,
    /// How long a peer may be silent, ns; all ones: for ever.
    pub patience_ns: u64,
    /// How long to wait for a receive WQE before each retry, ns.
    pub rnr_delay_ns: u64,
    /// WQEBBs of the send ring.
    pub depth: u32,
    /// Number of this QP.
    pub qpn: u32,
    /// Number of the peer's QP.
    pub remote_qpn: u32,
    /// Entry of the peer in the QP table; all ones: none.
    pub peer: u32,
    /// Number of the HCA of this QP.
    pub hca: u32,
    /// Number of the HCA of the peer.
    pub remote_hca: u32,
    /// Protection domain.
    pub pdn: u32,
    /// Rights of peers, the kind of doorbell, and what holds the QP up: `RIGHT_*`, `NO_RECORD`, `PAUSED`, `DOWN`.
    pub flags: u32,
    /// Payload bytes of a packet, by which sequence numbers count.
    pub mtu: u32,
    /// First sequence number that this QP sends.
    pub send_psn: u32,
    /// First sequence number that this QP expects.
    pub receive_psn: u32,
    /// Entry of the send CQ in the CQ table.
    pub send_cq: u32,
    /// Entry of the receive CQ in the CQ table.
    pub receive_cq: u32,
    /// `user_index` of CQEs.
    pub user_index: u32,
    /// Number of the first key of its HCA, shifted right by 8 bits.
    pub first_key: u32,
    /// Entry of the first key of its HCA in the key table.
    pub keys: u32,
    /// WQEs of the receive ring; 0: the QP has none.
    pub receive_entries: u32,
    /// Bytes of a receive WQE.
    pub receive_stride: u32,
    /// How often to wait for a receive WQE of the peer; 7: without limit.
    pub rnr_retry: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// Reserved, zero.
    pub reserved2: [u64; 15],
}

impl Qp {
    /// Peers may write.
    pub const RIGHT_WRITE: u32 = 1;
    /// Peers may read.
    pub const RIGHT_READ: u32 = 2;
    /// Peers may do atomics.
    pub const RIGHT_ATOMIC: u32 = 4;
    /// The HCA is paused: the QP does nothing, and its peer waits without limit.
    pub const PAUSED: u32 = 8;
    /// The port is down or the HCA has failed: the QP is silent.
    pub const DOWN: u32 = 16;
    /// The doorbell itself says how far to run.
    pub const NO_RECORD: u32 = 32;
    /// Value of `peer` if the QP has no peer.
    pub const NONE: u32 = u32::MAX;
}

/// A CQ as an executor sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct Cq {
    /// Life of the CQ. 0: the entry holds no CQ.
    pub head: u64,
    /// Address of the ring.
    pub ring: u64,
    /// Address of the doorbell record, which has the consumer index.
    pub record: u64,
    /// CQEs that the ring holds.
    pub entries: u32,
    /// Bytes of an entry.
    pub stride: u32,
    /// Flags: `COLLAPSED`, `IGNORES_OVERRUN`.
    pub flags: u32,
    /// Number of this CQ.
    pub cqn: u32,
    /// Reserved, zero.
    pub reserved: [u64; 3],
}

impl Cq {
    /// The CQ has one entry, which is written over and over.
    pub const COLLAPSED: u32 = 1;
    /// Entries are written whatever the consumer index is.
    pub const IGNORES_OVERRUN: u32 = 2;
}

/// A memory key as an executor sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct Key {
    /// `1 << 32 | key`, the low byte of the key included. 0: the entry holds no key.
    pub head: u64,
    /// Address by which segments name the first byte of the memory.
    pub iova: u64,
    /// Length of the memory in bytes.
    pub bytes: u64,
    /// Address of the first byte of the memory.
    pub address: u64,
    /// Rights, as [`Access`](crate::device::Access) has them.
    pub access: u32,
    /// Protection domain.
    pub pdn: u32,
    /// The only QP that may use it; 0: any.
    pub qpn: u32,
    /// Reserved, zero.
    pub reserved: [u32; 5],
}

/// The state of a QP that an executor keeps. A life of the QP begins with zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct QpProgress {
    /// The life to which the other fields belong. It is written last when a life begins.
    pub life: u64,
    /// Why the QP is in error: its own syndrome, or `RESPONDER` with the syndrome that its peer got. 0: it is not in error.
    pub failed: u32,
    /// Packets sent, modulo 2^24.
    pub sent: u32,
    /// Packets received, modulo 2^24. The block of the peer writes it.
    pub received: u32,
    /// WQEBBs that doorbells allow, modulo 2^16.
    pub posted: u32,
    /// WQEBBs that were fetched, modulo 2^16.
    pub fetched: u32,
    /// WQEBBs whose WQEs are over, modulo 2^16.
    pub retired: u32,
    /// Receive WQEs taken, modulo 2^16.
    pub received_wqes: u32,
    /// Lock for taking a receive WQE and for writing to the receive CQ.
    pub receive_lock: u32,
    /// How often the QP has waited for a receive WQE of the peer.
    pub rnr_count: u32,
    /// The last index that a doorbell has named, for a QP without doorbell record.
    pub rung: u32,
    /// Since when the peer has been silent, ns. 0: it is not silent.
    pub silent_since_ns: u64,
    /// The QP does nothing before this time, ns.
    pub not_before_ns: u64,
    /// Send WQEs begun in this life. This counter and the following ones are as in [`Counters`](crate::device::Counters).
    pub wqes: u64,
    /// Doorbells taken.
    pub doorbells: u64,
    /// CQEs written.
    pub cqes: u64,
    /// CQEs with an error that were written.
    pub error_cqes: u64,
    /// Payload bytes sent by its own WQEs.
    pub bytes_written: u64,
    /// Payload bytes that its own READs have read.
    pub bytes_read: u64,
    /// RDMA WRITEs.
    pub writes: u64,
    /// Inline RDMA WRITEs.
    pub inline_writes: u64,
    /// RDMA READs.
    pub reads: u64,
    /// Atomics that the executor has carried out for this QP.
    pub atomics: u64,
    /// Mistakes in its doorbells and WQEs: bits `ODD_*`.
    pub odd: u64,
    /// Reserved, zero.
    pub reserved: [u64; 13],
}

impl QpProgress {
    /// Flag of `failed`: the QP refused a request of its peer.
    pub const RESPONDER: u32 = 1 << 8;
    /// A doorbell went back.
    pub const ODD_BACKWARDS: u64 = 1;
    /// A doorbell goes further than the ring, so WQEs were overwritten before they were fetched.
    pub const ODD_BEYOND_RING: u64 = 2;
    /// The WQE in the slot that is due has another index.
    pub const ODD_INDEX: u64 = 4;
    /// A WQE names another QP.
    pub const ODD_QPN: u64 = 8;
    /// The length of a WQE is 0, more than the ring, or more than its doorbell allows.
    pub const ODD_LENGTH: u64 = 16;
    /// The segments of a WQE make no sense.
    pub const ODD_SEGMENT: u64 = 32;
    /// A local key does not give the memory.
    pub const ODD_LOCAL_KEY: u64 = 64;
    /// A key of the peer does not give the memory.
    pub const ODD_REMOTE_KEY: u64 = 128;
}

/// The state of a CQ that an executor keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct CqProgress {
    /// The life to which the other fields belong.
    pub life: u64,
    /// Entries written.
    pub producer: u32,
    /// Not 0 once an entry found no room: the CQ is dead.
    pub overrun: u32,
}

const _: () = assert!(
    size_of::<Qp>() == 256
        && size_of::<Cq>() == 64
        && size_of::<Key>() == 64
        && size_of::<QpProgress>() == 256
        && size_of::<CqProgress>() == 16
);
