// Rendered from src/abi.rs by tests/abi.rs; do not edit. Rewrite: UPDATE=1 cargo test -p gpuhca --test abi.
#pragma once

#include <warpverbs/abi.h>

namespace gpuhca {

/// Version of the tables.
inline constexpr uint32_t VERSION = 0x1;

/// Entries of the table of QPs.
inline constexpr uint32_t QPS = 0x2000;

/// Entries of the table of CQs.
inline constexpr uint32_t CQS = 0x4000;

/// Twins of UAR pages.
inline constexpr uint32_t PAGES = 0x1000;

/// HCAs that have keys.
inline constexpr uint32_t HCAS = 0x40;

/// Keys of an HCA.
inline constexpr uint32_t KEYS = 0x400;

/// Bytes from one twin to the next.
inline constexpr uint32_t PAGE_STRIDE = 0x1000;

/// Offset in a UAR page of the word that holds the address of its twin.
inline constexpr uint32_t TWIN = 0x100;

/// HcaQp::flags: peers may write.
inline constexpr uint32_t QP_RIGHT_WRITE = 0x1;

/// HcaQp::flags: peers may read.
inline constexpr uint32_t QP_RIGHT_READ = 0x2;

/// HcaQp::flags: peers may do atomics.
inline constexpr uint32_t QP_RIGHT_ATOMIC = 0x4;

/// HcaQp::flags: nothing happens, and peers wait without limit.
inline constexpr uint32_t QP_PAUSED = 0x8;

/// HcaQp::flags: the QP is silent.
inline constexpr uint32_t QP_DOWN = 0x10;

/// HcaQp::flags: the doorbell itself says how far to run.
inline constexpr uint32_t QP_NO_RECORD = 0x20;

/// HcaCq::flags: one entry, written over and over.
inline constexpr uint32_t CQ_COLLAPSED = 0x1;

/// HcaCq::flags: entries are written whatever the consumer index is.
inline constexpr uint32_t CQ_IGNORES_OVERRUN = 0x2;

/// HcaQpProgress::failed: the QP refused a request of its peer.
inline constexpr uint32_t FAILED_RESPONDER = 0x100;

/// HcaQpProgress::odd: a doorbell went backwards.
inline constexpr uint32_t ODD_BACKWARDS = 0x1;

/// HcaQpProgress::odd: a doorbell goes further than the ring.
inline constexpr uint32_t ODD_BEYOND_RING = 0x2;

/// HcaQpProgress::odd: the WQE in the slot that is due has another index.
inline constexpr uint32_t ODD_INDEX = 0x4;

/// HcaQpProgress::odd: it names another QP.
inline constexpr uint32_t ODD_QPN = 0x8;

/// HcaQpProgress::odd: its length is 0, more than the ring, or more than its doorbell allows.
inline constexpr uint32_t ODD_LENGTH = 0x10;

/// HcaQpProgress::odd: its segments make no sense.
inline constexpr uint32_t ODD_SEGMENT = 0x20;

/// HcaQpProgress::odd: a local key does not give the memory.
inline constexpr uint32_t ODD_LOCAL_KEY = 0x40;

/// HcaQpProgress::odd: a key of the peer's does not give the memory.
inline constexpr uint32_t ODD_REMOTE_KEY = 0x80;

/// A QP. The kernel reads the head first, and the rest only while it is not 0.
struct alignas(16) HcaQp {
  /// `life << 8 | state`; 0: none.
  uint64_t head;
  /// First byte of the send ring.
  uint64_t ring;
  /// Doorbell record; 0: none. With QP_NO_RECORD it is for receives alone.
  uint64_t record;
  /// Twin of the UAR page.
  uint64_t page;
  /// First byte of the receive ring.
  uint64_t receive_ring;
  /// How long a peer may be silent, ns; all ones: for ever.
  uint64_t patience_ns;
  /// How long to wait for a receive WQE before each retry, ns.
  uint64_t rnr_delay_ns;
  /// WQEBBs of the send ring.
  uint32_t depth;
  /// Its number.
  uint32_t qpn;
  /// Number of the peer's QP.
  uint32_t remote_qpn;
  /// Entry of the peer; all ones: none.
  uint32_t peer;
  /// Number of its HCA.
  uint32_t hca;
  /// Number of the peer's HCA.
  uint32_t remote_hca;
  /// Protection domain.
  uint32_t pdn;
  /// Rights of peers, how it is rung and what holds it up, QP_*.
  uint32_t flags;
  /// Payload of a packet, by which sequence numbers count.
  uint32_t mtu;
  /// First sequence number that it sends.
  uint32_t send_psn;
  /// First sequence number that it expects.
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
  /// WQEs of the receive ring; 0: none.
  uint32_t receive_entries;
  /// Bytes of a receive WQE.
  uint32_t receive_stride;
  /// How often to wait for a receive WQE; 7: for ever.
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

/// A CQ.
struct alignas(16) HcaCq {
  /// Life; 0: none.
  uint64_t head;
  /// First byte of the ring.
  uint64_t ring;
  /// Doorbell record, which has the consumer index.
  uint64_t record;
  /// CQEs that the ring holds.
  uint32_t entries;
  /// Bytes of an entry.
  uint32_t stride;
  /// CQ_*.
  uint32_t flags;
  /// Its number.
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

/// A memory key.
struct alignas(16) HcaKey {
  /// `1 << 32 | key`, the low byte included; 0: none.
  uint64_t head;
  /// Address by which segments name the first byte.
  uint64_t iova;
  /// Length.
  uint64_t bytes;
  /// Where the first byte is.
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

/// What the kernel keeps of a QP. A life begins with zeros.
struct alignas(16) HcaQpProgress {
  /// The life that the rest is of; written last when a life begins.
  uint64_t life;
  /// Why the QP is in error: a syndrome, with FAILED_RESPONDER the one that its peer got. 0: it is not.
  uint32_t failed;
  /// Packets sent, modulo 2^24.
  uint32_t sent;
  /// Packets received, modulo 2^24. Written by the peer's block.
  uint32_t received;
  /// WQEBBs that doorbells allow, modulo 2^16.
  uint32_t posted;
  /// WQEBBs fetched, modulo 2^16.
  uint32_t fetched;
  /// WQEBBs over, modulo 2^16.
  uint32_t retired;
  /// Receive WQEs taken, modulo 2^16.
  uint32_t received_wqes;
  /// Held by the block that takes a receive WQE or writes to the receive CQ.
  uint32_t receive_lock;
  /// Times that it has waited for a receive WQE of the peer.
  uint32_t rnr_count;
  /// Last index that a doorbell without record named.
  uint32_t rung;
  /// Since when the peer has been silent, ns; 0: it is not.
  uint64_t silent_since_ns;
  /// Not before this time, ns.
  uint64_t not_before_ns;
  /// WQEs begun.
  uint64_t wqes;
  /// Doorbells taken.
  uint64_t doorbells;
  /// CQEs written.
  uint64_t cqes;
  /// Of those, failed ones.
  uint64_t error_cqes;
  /// Payload bytes that its WQEs have sent.
  uint64_t bytes_written;
  /// Payload bytes that its READs brought.
  uint64_t bytes_read;
  /// RDMA WRITEs.
  uint64_t writes;
  /// Of those, inline ones.
  uint64_t inline_writes;
  /// RDMA READs.
  uint64_t reads;
  /// Atomics that the executor has carried out.
  uint64_t atomics;
  /// What was odd about its doorbells and WQEs, ODD_*.
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

/// What the kernel keeps of a CQ.
struct alignas(16) HcaCqProgress {
  /// The life that the rest is of.
  uint64_t life;
  /// Entries written.
  uint32_t producer;
  /// Nonzero: an entry found no room, and the queue is dead.
  uint32_t overrun;
};
static_assert(sizeof(HcaCqProgress) == 16 && alignof(HcaCqProgress) == 16);
static_assert(offsetof(HcaCqProgress, life) == 0);
static_assert(offsetof(HcaCqProgress, producer) == 8);
static_assert(offsetof(HcaCqProgress, overrun) == 12);

/// Written by the host while the kernel runs, in device memory.
struct HcaControl {
  /// Raised when entries have ended.
  uint64_t generation;
  /// Entries of the table of QPs that may be in use.
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
