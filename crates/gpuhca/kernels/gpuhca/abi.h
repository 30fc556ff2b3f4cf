// Rendered from src/abi.rs and crate gpuhca-abi by tests/abi.rs; do not edit. Rewrite: UPDATE=1 cargo test -p gpuhca --test abi.
#pragma once

#include <warpverbs/abi.h>

namespace gpuhca {

/// Version of the tables.
inline constexpr uint32_t VERSION = 0x1;

/// Number of entries of the table of QPs.
inline constexpr uint32_t QPS = 0x2000;

/// Number of entries of the table of CQs.
inline constexpr uint32_t CQS = 0x4000;

/// Number of twins of UAR pages.
inline constexpr uint32_t PAGES = 0x1000;

/// Number of HCAs that have keys in the table of keys.
inline constexpr uint32_t HCAS = 0x40;

/// Number of keys of one HCA.
inline constexpr uint32_t KEYS = 0x400;

/// Bytes from one twin of a UAR page to the next.
inline constexpr uint32_t PAGE_STRIDE = 0x1000;

/// Offset in a UAR page of the word that holds the address of its twin.
inline constexpr uint32_t TWIN = 0x100;

/// HcaQp::flags: peers may write.
inline constexpr uint32_t QP_RIGHT_WRITE = 0x1;

/// HcaQp::flags: peers may read.
inline constexpr uint32_t QP_RIGHT_READ = 0x2;

/// HcaQp::flags: peers may do atomics.
inline constexpr uint32_t QP_RIGHT_ATOMIC = 0x4;

/// HcaQp::flags: the HCA is paused. The QP does nothing, and its peer waits without limit.
inline constexpr uint32_t QP_PAUSED = 0x8;

/// HcaQp::flags: the port is down or the HCA has failed. The QP is silent.
inline constexpr uint32_t QP_DOWN = 0x10;

/// HcaQp::flags: the doorbell itself says how far to run.
inline constexpr uint32_t QP_NO_RECORD = 0x20;

/// HcaCq::flags: the CQ has one entry, which is written over and over.
inline constexpr uint32_t CQ_COLLAPSED = 0x1;

/// HcaCq::flags: entries are written whatever the consumer index is.
inline constexpr uint32_t CQ_IGNORES_OVERRUN = 0x2;

/// HcaQpProgress::failed: the QP refused a request of its peer.
inline constexpr uint32_t FAILED_RESPONDER = 0x100;

/// HcaQpProgress::odd: a doorbell went back.
inline constexpr uint32_t ODD_BACKWARDS = 0x1;

/// HcaQpProgress::odd: a doorbell goes further than the ring, so WQEs were overwritten before they were fetched.
inline constexpr uint32_t ODD_BEYOND_RING = 0x2;

/// HcaQpProgress::odd: the WQE in the slot that is due has another index.
inline constexpr uint32_t ODD_INDEX = 0x4;

/// HcaQpProgress::odd: a WQE names another QP.
inline constexpr uint32_t ODD_QPN = 0x8;

/// HcaQpProgress::odd: the length of a WQE is 0, more than the ring, or more than its doorbell allows.
inline constexpr uint32_t ODD_LENGTH = 0x10;

/// HcaQpProgress::odd: the segments of a WQE make no sense.
inline constexpr uint32_t ODD_SEGMENT = 0x20;

/// HcaQpProgress::odd: a local key does not give the memory.
inline constexpr uint32_t ODD_LOCAL_KEY = 0x40;

/// HcaQpProgress::odd: a key of the peer does not give the memory.
inline constexpr uint32_t ODD_REMOTE_KEY = 0x80;

/// A QP as the kernel sees it. The kernel reads the head first, and the rest only while the head is not 0.
struct alignas(16) HcaQp {
  /// `life << 8 | state`, the state as in the PRM (2 Rtr, 3 Rts, 4 SQerr, 5 SQD, 6 Err). 0: the entry holds no QP.
  uint64_t head;
  /// Address of the send ring.
  uint64_t ring;
  /// Address of the doorbell record. 0: the QP has none. With QP_NO_RECORD the record is for receives alone.
  uint64_t record;
  /// Address of the twin of the UAR page.
  uint64_t page;
  /// Address of the receive ring.
  uint64_t receive_ring;
  /// How long a peer may be silent, ns; all ones: for ever.
  uint64_t patience_ns;
  /// How long to wait for a receive WQE before each retry, ns.
  uint64_t rnr_delay_ns;
  /// WQEBBs of the send ring.
  uint32_t depth;
  /// Number of this QP.
  uint32_t qpn;
  /// Number of the peer's QP.
  uint32_t remote_qpn;
  /// Entry of the peer; all ones: none.
  uint32_t peer;
  /// Number of the HCA of this QP.
  uint32_t hca;
  /// Number of the HCA of the peer.
  uint32_t remote_hca;
  /// Protection domain.
  uint32_t pdn;
  /// Rights of peers, the kind of doorbell, and what holds the QP up: QP_*.
  uint32_t flags;
  /// Payload bytes of a packet, by which sequence numbers count.
  uint32_t mtu;
  /// First sequence number that this QP sends.
  uint32_t send_psn;
  /// First sequence number that this QP expects.
  uint32_t receive_psn;
  /// Entry of the CQ of sends.
  uint32_t send_cq;
  /// Entry of the CQ of receives.
  uint32_t receive_cq;
  /// `user_index` of CQEs.
  uint32_t user_index;
  /// Number of the first key of its HCA, without the low byte.
  uint32_t first_key;
  /// Entry of that key.
  uint32_t keys;
  /// WQEs of the receive ring; 0: the QP has none.
  uint32_t receive_entries;
  /// Bytes of a receive WQE.
  uint32_t receive_stride;
  /// How often to wait for a receive WQE of the peer; 7: without limit.
  uint32_t rnr_retry;
  /// Reserved, zero.
  uint32_t reserved;
  /// Reserved, zero.
  uint64_t reserved2[15];
};
static_assert(sizeof(HcaQp) == 256 && alignof(HcaQp) == 16);
static_assert(offsetof(HcaQp, head) == 0);
static_assert(offsetof(HcaQp, ring) == 8);
static_assert(offsetof(HcaQp, record) == 16);
static_assert(offsetof(HcaQp, page) == 24);
static_assert(offsetof(HcaQp, receive_ring) == 32);
static_assert(offsetof(HcaQp, patience_ns) == 40);
static_assert(offsetof(HcaQp, rnr_delay_ns) == 48);
static_assert(offsetof(HcaQp, depth) == 56);
static_assert(offsetof(HcaQp, qpn) == 60);
static_assert(offsetof(HcaQp, remote_qpn) == 64);
static_assert(offsetof(HcaQp, peer) == 68);
static_assert(offsetof(HcaQp, hca) == 72);
static_assert(offsetof(HcaQp, remote_hca) == 76);
static_assert(offsetof(HcaQp, pdn) == 80);
static_assert(offsetof(HcaQp, flags) == 84);
static_assert(offsetof(HcaQp, mtu) == 88);
static_assert(offsetof(HcaQp, send_psn) == 92);
static_assert(offsetof(HcaQp, receive_psn) == 96);
static_assert(offsetof(HcaQp, send_cq) == 100);
static_assert(offsetof(HcaQp, receive_cq) == 104);
static_assert(offsetof(HcaQp, user_index) == 108);
static_assert(offsetof(HcaQp, first_key) == 112);
static_assert(offsetof(HcaQp, keys) == 116);
static_assert(offsetof(HcaQp, receive_entries) == 120);
static_assert(offsetof(HcaQp, receive_stride) == 124);
static_assert(offsetof(HcaQp, rnr_retry) == 128);
static_assert(offsetof(HcaQp, reserved) == 132);
static_assert(offsetof(HcaQp, reserved2) == 136);

/// A CQ as the kernel sees it.
struct alignas(16) HcaCq {
  /// Life of the CQ. 0: the entry holds no CQ.
  uint64_t head;
  /// Address of the ring.
  uint64_t ring;
  /// Address of the doorbell record, which has the consumer index.
  uint64_t record;
  /// CQEs that the ring holds.
  uint32_t entries;
  /// Bytes of an entry.
  uint32_t stride;
  /// Flags: CQ_*.
  uint32_t flags;
  /// Number of this CQ.
  uint32_t cqn;
  /// Reserved, zero.
  uint64_t reserved[3];
};
static_assert(sizeof(HcaCq) == 64 && alignof(HcaCq) == 16);
static_assert(offsetof(HcaCq, head) == 0);
static_assert(offsetof(HcaCq, ring) == 8);
static_assert(offsetof(HcaCq, record) == 16);
static_assert(offsetof(HcaCq, entries) == 24);
static_assert(offsetof(HcaCq, stride) == 28);
static_assert(offsetof(HcaCq, flags) == 32);
static_assert(offsetof(HcaCq, cqn) == 36);
static_assert(offsetof(HcaCq, reserved) == 40);

/// A memory key as the kernel sees it.
struct alignas(16) HcaKey {
  /// `1 << 32 | key`, the low byte of the key included. 0: the entry holds no key.
  uint64_t head;
  /// Address by which segments name the first byte of the memory.
  uint64_t iova;
  /// Length of the memory in bytes.
  uint64_t bytes;
  /// Address of the first byte of the memory.
  uint64_t address;
  /// Rights, as verbs have them.
  uint32_t access;
  /// Protection domain.
  uint32_t pdn;
  /// The only QP that may use it; 0: any.
  uint32_t qpn;
  /// Reserved, zero.
  uint32_t reserved[5];
};
static_assert(sizeof(HcaKey) == 64 && alignof(HcaKey) == 16);
static_assert(offsetof(HcaKey, head) == 0);
static_assert(offsetof(HcaKey, iova) == 8);
static_assert(offsetof(HcaKey, bytes) == 16);
static_assert(offsetof(HcaKey, address) == 24);
static_assert(offsetof(HcaKey, access) == 32);
static_assert(offsetof(HcaKey, pdn) == 36);
static_assert(offsetof(HcaKey, qpn) == 40);
static_assert(offsetof(HcaKey, reserved) == 44);

/// The state of a QP that the kernel keeps. A life of the QP begins with zeros.
struct alignas(16) HcaQpProgress {
  /// The life to which the other fields belong. It is written last when a life begins.
  uint64_t life;
  /// Why the QP is in error: its own syndrome, or FAILED_RESPONDER with the one that its peer got. 0: it is not in error.
  uint32_t failed;
  /// Packets sent, modulo 2^24.
  uint32_t sent;
  /// Packets received, modulo 2^24. The block of the peer writes it.
  uint32_t received;
  /// WQEBBs that doorbells allow, modulo 2^16.
  uint32_t posted;
  /// WQEBBs that were fetched, modulo 2^16.
  uint32_t fetched;
  /// WQEBBs whose WQEs are over, modulo 2^16.
  uint32_t retired;
  /// Receive WQEs taken, modulo 2^16.
  uint32_t received_wqes;
  /// Held by the block that takes a receive WQE or writes to the receive CQ.
  uint32_t receive_lock;
  /// How often the QP has waited for a receive WQE of the peer.
  uint32_t rnr_count;
  /// The last index that a doorbell has named, for a QP without doorbell record.
  uint32_t rung;
  /// Since when the peer has been silent, ns. 0: it is not silent.
  uint64_t silent_since_ns;
  /// The QP does nothing before this time, ns.
  uint64_t not_before_ns;
  /// Send WQEs begun in this life. This counter and the following ones are as in `softhca::device::Counters`.
  uint64_t wqes;
  /// Doorbells taken.
  uint64_t doorbells;
  /// CQEs written.
  uint64_t cqes;
  /// CQEs with an error that were written.
  uint64_t error_cqes;
  /// Payload bytes sent by its own WQEs.
  uint64_t bytes_written;
  /// Payload bytes that its own READs have read.
  uint64_t bytes_read;
  /// RDMA WRITEs.
  uint64_t writes;
  /// Inline RDMA WRITEs.
  uint64_t inline_writes;
  /// RDMA READs.
  uint64_t reads;
  /// Atomics that the kernel has carried out for this QP.
  uint64_t atomics;
  /// Mistakes in its doorbells and WQEs: ODD_*.
  uint64_t odd;
  /// Reserved, zero.
  uint64_t reserved[13];
};
static_assert(sizeof(HcaQpProgress) == 256 && alignof(HcaQpProgress) == 16);
static_assert(offsetof(HcaQpProgress, life) == 0);
static_assert(offsetof(HcaQpProgress, failed) == 8);
static_assert(offsetof(HcaQpProgress, sent) == 12);
static_assert(offsetof(HcaQpProgress, received) == 16);
static_assert(offsetof(HcaQpProgress, posted) == 20);
static_assert(offsetof(HcaQpProgress, fetched) == 24);
static_assert(offsetof(HcaQpProgress, retired) == 28);
static_assert(offsetof(HcaQpProgress, received_wqes) == 32);
static_assert(offsetof(HcaQpProgress, receive_lock) == 36);
static_assert(offsetof(HcaQpProgress, rnr_count) == 40);
static_assert(offsetof(HcaQpProgress, rung) == 44);
static_assert(offsetof(HcaQpProgress, silent_since_ns) == 48);
static_assert(offsetof(HcaQpProgress, not_before_ns) == 56);
static_assert(offsetof(HcaQpProgress, wqes) == 64);
static_assert(offsetof(HcaQpProgress, doorbells) == 72);
static_assert(offsetof(HcaQpProgress, cqes) == 80);
static_assert(offsetof(HcaQpProgress, error_cqes) == 88);
static_assert(offsetof(HcaQpProgress, bytes_written) == 96);
static_assert(offsetof(HcaQpProgress, bytes_read) == 104);
static_assert(offsetof(HcaQpProgress, writes) == 112);
static_assert(offsetof(HcaQpProgress, inline_writes) == 120);
static_assert(offsetof(HcaQpProgress, reads) == 128);
static_assert(offsetof(HcaQpProgress, atomics) == 136);
static_assert(offsetof(HcaQpProgress, odd) == 144);
static_assert(offsetof(HcaQpProgress, reserved) == 152);

/// The state of a CQ that the kernel keeps.
struct alignas(16) HcaCqProgress {
  /// The life to which the other fields belong.
  uint64_t life;
  /// Entries written.
  uint32_t producer;
  /// Not 0 once an entry found no room: the CQ is dead.
  uint32_t overrun;
};
static_assert(sizeof(HcaCqProgress) == 16 && alignof(HcaCqProgress) == 16);
static_assert(offsetof(HcaCqProgress, life) == 0);
static_assert(offsetof(HcaCqProgress, producer) == 8);
static_assert(offsetof(HcaCqProgress, overrun) == 12);

/// Words that softhca writes while the kernel runs, in the kernel's memory.
struct HcaControl {
  /// Raised when entries have ended.
  uint64_t generation;
  /// Bound of the entries of the table of QPs that are in use.
  uint64_t qps;
};
static_assert(sizeof(HcaControl) == 16 && alignof(HcaControl) == 8);
static_assert(offsetof(HcaControl, generation) == 0);
static_assert(offsetof(HcaControl, qps) == 8);

/// Words of host memory.
struct HcaHostWords {
  /// Nonzero: the kernel ends.
  uint32_t stop;
  /// Raised after the kernel has failed a QP.
  uint32_t attention;
  /// Stored to by the kernel when a rank may have something new to see: on the CPU it wakes sleeping threads.
  uint64_t news;
};
static_assert(sizeof(HcaHostWords) == 16 && alignof(HcaHostWords) == 8);
static_assert(offsetof(HcaHostWords, stop) == 0);
static_assert(offsetof(HcaHostWords, attention) == 4);
static_assert(offsetof(HcaHostWords, news) == 8);

/// What the kernel takes.
struct GpuhcaParams {
  /// Generation and number of QPs.
  HcaControl *control;
  /// QPS entries.
  HcaQp *qps;
  /// CQS entries.
  HcaCq *cqs;
  /// HCAS * KEYS entries.
  HcaKey *keys;
  /// QPS entries.
  HcaQpProgress *qp_progress;
  /// CQS entries.
  HcaCqProgress *cq_progress;
  /// Host memory.
  HcaHostWords *host;
  /// Host memory: the generation that each block has finished a pass with.
  uint64_t *seen;
  /// The kernel ends by itself after this time, ns.
  uint64_t deadline_ns;
};
static_assert(sizeof(GpuhcaParams) == 72 && alignof(GpuhcaParams) == 8);
static_assert(offsetof(GpuhcaParams, control) == 0);
static_assert(offsetof(GpuhcaParams, qps) == 8);
static_assert(offsetof(GpuhcaParams, cqs) == 16);
static_assert(offsetof(GpuhcaParams, keys) == 24);
static_assert(offsetof(GpuhcaParams, qp_progress) == 32);
static_assert(offsetof(GpuhcaParams, cq_progress) == 40);
static_assert(offsetof(GpuhcaParams, host) == 48);
static_assert(offsetof(GpuhcaParams, seen) == 56);
static_assert(offsetof(GpuhcaParams, deadline_ns) == 64);

}  // namespace gpuhca
