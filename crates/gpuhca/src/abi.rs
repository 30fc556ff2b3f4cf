//! The data that the kernel shares with softhca and with the host: the entries of softhca's tables (`softhca::device::external`), rendered
//! for C++ in `kernels/gpuhca/abi.h`. A test compares them with softhca's own.

use warpverbs::abi::DevicePtr;
use warpverbs::abi::header::{self, constant_items, struct_item};
use warpverbs::{abi_const, abi_struct};

abi_const! {
    /// Version of the tables.
    pub const VERSION: u32 = 1;
    /// Entries of the table of QPs.
    pub const QPS: u32 = 8192;
    /// Entries of the table of CQs.
    pub const CQS: u32 = 16384;
    /// Twins of UAR pages.
    pub const PAGES: u32 = 4096;
    /// HCAs that have keys.
    pub const HCAS: u32 = 64;
    /// Keys of an HCA.
    pub const KEYS: u32 = 1024;
    /// Bytes from one twin to the next.
    pub const PAGE_STRIDE: u32 = 4096;
    /// Offset in a UAR page of the word that holds the address of its twin.
    pub const TWIN: u32 = 256;
    /// HcaQp::flags: peers may write.
    pub const QP_RIGHT_WRITE: u32 = 1;
    /// HcaQp::flags: peers may read.
    pub const QP_RIGHT_READ: u32 = 2;
    /// HcaQp::flags: peers may do atomics.
    pub const QP_RIGHT_ATOMIC: u32 = 4;
    /// HcaQp::flags: nothing happens, and peers wait without limit.
    pub const QP_PAUSED: u32 = 8;
    /// HcaQp::flags: the QP is silent.
    pub const QP_DOWN: u32 = 16;
    /// HcaQp::flags: the doorbell itself says how far to run.
    pub const QP_NO_RECORD: u32 = 32;
    /// HcaCq::flags: one entry, written over and over.
    pub const CQ_COLLAPSED: u32 = 1;
    /// HcaCq::flags: entries are written whatever the consumer index is.
    pub const CQ_IGNORES_OVERRUN: u32 = 2;
    /// HcaQpProgress::failed: the QP refused a request of its peer.
    pub const FAILED_RESPONDER: u32 = 256;
    /// HcaQpProgress::odd: a doorbell went backwards.
    pub const ODD_BACKWARDS: u32 = 1;
    /// HcaQpProgress::odd: a doorbell goes further than the ring.
    pub const ODD_BEYOND_RING: u32 = 2;
    /// HcaQpProgress::odd: the WQE in the slot that is due has another index.
    pub const ODD_INDEX: u32 = 4;
    /// HcaQpProgress::odd: it names another QP.
    pub const ODD_QPN: u32 = 8;
    /// HcaQpProgress::odd: its length is 0, more than the ring, or more than its doorbell allows.
    pub const ODD_LENGTH: u32 = 16;
    /// HcaQpProgress::odd: its segments make no sense.
    pub const ODD_SEGMENT: u32 = 32;
    /// HcaQpProgress::odd: a local key does not give the memory.
    pub const ODD_LOCAL_KEY: u32 = 64;
    /// HcaQpProgress::odd: a key of the peer's does not give the memory.
    pub const ODD_REMOTE_KEY: u32 = 128;
}

abi_struct! {
    /// A QP. The kernel reads the head first, and the rest only while it is not 0.
    align(16)
    pub struct HcaQp {
        /// `life << 8 | state`; 0: none.
        pub head: u64,
        /// First byte of the send ring.
        pub ring: u64,
        /// Doorbell record; 0: none. With QP_NO_RECORD it is for receives alone.
        pub record: u64,
        /// Twin of the UAR page.
        pub page: u64,
        /// First byte of the receive ring.
        pub receive_ring: u64,
        /// How long a peer may be silent, ns; all ones: for ever.
        pub patience_ns: u64,
        /// How long to wait for a receive WQE before each retry, ns.
        pub rnr_delay_ns: u64,
        /// WQEBBs of the send ring.
        pub depth: u32,
        /// Its number.
        pub qpn: u32,
        /// Number of the peer's QP.
        pub remote_qpn: u32,
        /// Entry of the peer; all ones: none.
        pub peer: u32,
        /// Number of its HCA.
        pub hca: u32,
        /// Number of the peer's HCA.
        pub remote_hca: u32,
        /// Protection domain.
        pub pdn: u32,
        /// Rights of peers, how it is rung and what holds it up, QP_*.
        pub flags: u32,
        /// Payload of a packet, by which sequence numbers count.
        pub mtu: u32,
        /// First sequence number that it sends.
        pub send_psn: u32,
        /// First sequence number that it expects.
        pub receive_psn: u32,
        /// Entry of the CQ of sends.
        pub send_cq: u32,
        /// Entry of the CQ of receives.
        pub receive_cq: u32,
        /// `user_index` of CQEs.
        pub user_index: u32,
        /// Number of the first key of its HCA, without the low byte.
        pub first_key: u32,
        /// Entry of that key.
        pub keys: u32,
        /// WQEs of the receive ring; 0: none.
        pub receive_entries: u32,
        /// Bytes of a receive WQE.
        pub receive_stride: u32,
        /// How often to wait for a receive WQE; 7: for ever.
        pub rnr_retry: u32,
        /// Reserved, zero.
        pub reserved: u32,
        /// Reserved, zero.
        pub reserved2: [u64; 15],
    }
}

abi_struct! {
    /// A CQ.
    align(16)
    pub struct HcaCq {
        /// Life; 0: none.
        pub head: u64,
        /// First byte of the ring.
        pub ring: u64,
        /// Doorbell record, which has the consumer index.
        pub record: u64,
        /// CQEs that the ring holds.
        pub entries: u32,
        /// Bytes of an entry.
        pub stride: u32,
        /// CQ_*.
        pub flags: u32,
        /// Its number.
        pub cqn: u32,
        /// Reserved, zero.
        pub reserved: [u64; 3],
    }
}

abi_struct! {
    /// A memory key.
    align(16)
    pub struct HcaKey {
        /// `1 << 32 | key`, the low byte included; 0: none.
        pub head: u64,
        /// Address by which segments name the first byte.
        pub iova: u64,
        /// Length.
        pub bytes: u64,
        /// Where the first byte is.
        pub address: u64,
        /// Rights, as verbs have them.
        pub access: u32,
        /// Protection domain.
        pub pdn: u32,
        /// The only QP that may use it; 0: any.
        pub qpn: u32,
        /// Reserved, zero.
        pub reserved: [u32; 5],
    }
}

abi_struct! {
    /// What the kernel keeps of a QP. A life begins with zeros.
    align(16)
    pub struct HcaQpProgress {
        /// The life that the rest is of; written last when a life begins.
        pub life: u64,
        /// Why the QP is in error: a syndrome, with FAILED_RESPONDER the one that its peer got. 0: it is not.
        pub failed: u32,
        /// Packets sent, modulo 2^24.
        pub sent: u32,
        /// Packets received, modulo 2^24. Written by the peer's block.
        pub received: u32,
        /// WQEBBs that doorbells allow, modulo 2^16.
        pub posted: u32,
        /// WQEBBs fetched, modulo 2^16.
        pub fetched: u32,
        /// WQEBBs over, modulo 2^16.
        pub retired: u32,
        /// Receive WQEs taken, modulo 2^16.
        pub received_wqes: u32,
        /// Held by the block that takes a receive WQE or writes to the receive CQ.
        pub receive_lock: u32,
        /// Times that it has waited for a receive WQE of the peer.
        pub rnr_count: u32,
        /// Last index that a doorbell without record named.
        pub rung: u32,
        /// Since when the peer has been silent, ns; 0: it is not.
        pub silent_since_ns: u64,
        /// Not before this time, ns.
        pub not_before_ns: u64,
        /// WQEs begun.
        pub wqes: u64,
        /// Doorbells taken.
        pub doorbells: u64,
        /// CQEs written.
        pub cqes: u64,
        /// Of those, failed ones.
        pub error_cqes: u64,
        /// Payload bytes that its WQEs have sent.
        pub bytes_written: u64,
        /// Payload bytes that its READs brought.
        pub bytes_read: u64,
        /// RDMA WRITEs.
        pub writes: u64,
        /// Of those, inline ones.
        pub inline_writes: u64,
        /// RDMA READs.
        pub reads: u64,
        /// Atomics that the executor has carried out.
        pub atomics: u64,
        /// What was odd about its doorbells and WQEs, ODD_*.
        pub odd: u64,
        /// Reserved, zero.
        pub reserved: [u64; 13],
    }
}

abi_struct! {
    /// What the kernel keeps of a CQ.
    align(16)
    pub struct HcaCqProgress {
        /// The life that the rest is of.
        pub life: u64,
        /// Entries written.
        pub producer: u32,
        /// Nonzero: an entry found no room, and the queue is dead.
        pub overrun: u32,
    }
}

abi_struct! {
    /// Written by the host while the kernel runs, in device memory.
    pub struct HcaControl {
        /// Raised when entries have ended.
        pub generation: u64,
        /// Entries of the table of QPs that may be in use.
        pub qps: u64,
    }
}

abi_struct! {
    /// Words of host memory.
    pub struct HcaHostWords {
        /// Nonzero: the kernel ends.
        pub stop: u32,
        /// Raised after the kernel has failed a QP.
        pub attention: u32,
        /// Stored to by the kernel when a rank may have something new to see: on the CPU it wakes sleeping threads.
        pub news: u64,
    }
}

abi_struct! {
    /// What the kernel takes.
    pub struct GpuhcaParams {
        /// Generation and number of QPs.
        pub control: DevicePtr<HcaControl>,
        /// QPS entries.
        pub qps: DevicePtr<HcaQp>,
        /// CQS entries.
        pub cqs: DevicePtr<HcaCq>,
        /// HCAS * KEYS entries.
        pub keys: DevicePtr<HcaKey>,
        /// QPS entries.
        pub qp_progress: DevicePtr<HcaQpProgress>,
        /// CQS entries.
        pub cq_progress: DevicePtr<HcaCqProgress>,
        /// Host memory.
        pub host: DevicePtr<HcaHostWords>,
        /// Host memory: the generation that each block has finished a pass with.
        pub seen: DevicePtr<u64>,
        /// The kernel ends by itself after this time, ns.
        pub deadline_ns: u64,
    }
}

/// Returns the text of `kernels/gpuhca/abi.h`.
#[must_use]
pub fn render() -> String {
    let mut items = constant_items(constants());
    items.extend([
        struct_item::<HcaQp>(),
        struct_item::<HcaCq>(),
        struct_item::<HcaKey>(),
        struct_item::<HcaQpProgress>(),
        struct_item::<HcaCqProgress>(),
        struct_item::<HcaControl>(),
        struct_item::<HcaHostWords>(),
        struct_item::<GpuhcaParams>(),
    ]);
    let origin = "Rendered from src/abi.rs by tests/abi.rs; do not edit. Rewrite: UPDATE=1 cargo test -p gpuhca --test abi.";
    header::file(origin, "gpuhca", &["<warpverbs/abi.h>"], items)
}
