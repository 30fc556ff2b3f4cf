// Rendered from src/abi by tests/abi_header.rs; do not edit. Rewrite: UPDATE=1 cargo test --test abi_header.
#pragma once

#include <cstddef>
#include <cstdint>

namespace wv {

/// How a device call ended. Failed never looks done: a call that is not known to have succeeded returns something else.
enum class Status : uint32_t {
  /// Done.
  ok = 0,
  /// No ring space now, nothing was posted; only from `try_` calls.
  would_block = 1,
  /// The deadline passed. The QP is healthy and a ticket stays valid.
  timeout = 2,
  /// The QP has an error completion: what is in flight has an unknown outcome.
  cqe_error = 3,
  /// The host asked running calls to end.
  aborted = 4,
  /// The ticket belongs to an earlier life of the QP.
  stale_generation = 5,
  /// A bad argument: nothing was posted.
  invalid = 6,
  /// The QP was in error and flushed the work: the cause is in the first error, which was not seen.
  flushed = 7,
};

/// Bytes of a WQEBB, the unit of the send queue. PRM "WQE Basic Block".
inline constexpr uint32_t WQEBB_BYTES = 0x40;

/// Least depth of a send queue, WQEBBs: a quarter of it holds a `put_signal`, and a warp may post in parts.
inline constexpr uint32_t MIN_DEPTH = 0x40;

/// Greatest depth of a send queue, WQEBBs: half the range of the 16-bit WQE counter.
inline constexpr uint32_t MAX_DEPTH = 0x8000;

/// Most bytes of one inline put: what fits into one WQEBB behind control, address and inline header.
inline constexpr uint32_t MAX_INLINE_BYTES = 0x1c;

/// Most bytes of one put. PRM "max_msg_sz" of an RC QP.
inline constexpr uint32_t MAX_PUT_BYTES = 0x40000000;

/// Rounds that a holder of the doorbell token serves others before it leaves.
inline constexpr uint32_t SERVICE_ROUNDS = 0x40;

/// `QpContext::mode` bit: one thread at a time uses the QP; no flags, no atomics.
inline constexpr uint32_t MODE_EXCLUSIVE = 0x1;

/// `QpContext::mode` bit: the QP has no doorbell record (PRM `send_dbr_mode` NO_DBR_EXT).
inline constexpr uint32_t MODE_NO_RECORD = 0x2;

/// What the host fills the ring, the flags and the CQE with before a QP leaves Reset.
inline constexpr uint8_t EMPTY_BYTE = 0xff;

/// `PeerEntry::rail_generation` >> RAIL_SHIFT = rail; below it 24 bits of the peer's generation.
inline constexpr uint32_t RAIL_SHIFT = 0x18;

/// One QP as kernels see it: 768 bytes of the control heap, in lines of 128 bytes by who writes them.
///
/// A line that the NIC reads or writes holds no word that SMs change by atomics. Indices count WQEBBs, are 64 bits wide
/// and never wrap; ring position = index & mask, 16-bit WQE index = low half.
struct alignas(128) QpContext {
  /// The send queue: `depth` WQEBBs. Line 0 is constant for the life of the team, except `generation`.
  uint8_t *sq;
  /// One flag word per WQEBB: where the doorbell token is parked, which batches are written.
  uint64_t *flags;
  /// The doorbell record: big-endian receive counter, then send counter, u32 each. PRM "Doorbell Record".
  uint32_t *dbrec;
  /// The doorbell register of this QP: 8 bytes of the UAR, write-only. PRM "DoorBell Register".
  uint64_t *doorbell;
  /// The one collapsed CQE: 64 bytes, overwritten by the NIC at every completion.
  uint8_t *cqe;
  /// Where results of atomics go that nobody asked for: 8 bytes. Never read.
  uint64_t *atomic_sink;
  /// Second word of the control segment, big-endian `qpn << 8 | ds`, for ds = 2, 3, 4, 5.
  uint32_t qpn_ds_be[4];
  /// QP number, 24 bits.
  uint32_t qpn;
  /// depth - 1.
  uint32_t mask;
  /// Ring length in WQEBBs: a power of two, MIN_DEPTH to MAX_DEPTH.
  uint32_t depth;
  /// Bits MODE_EXCLUSIVE and MODE_NO_RECORD.
  uint32_t mode;
  /// lkey of `atomic_sink`, big-endian.
  uint32_t atomic_sink_lkey_be;
  /// Grows with each recovery. Written by the host inside the grace period.
  uint32_t generation;
  /// Reserved, zero.
  uint64_t reserved0[5];
  /// Ring space asked for, WQEBBs: grants plus refusals not yet undone. Line 1: posters, by atomics.
  uint64_t claim;
  /// Next index; advanced only by a thread whose claim was granted.
  uint64_t resv;
  /// Reserved, zero.
  uint64_t reserved1[14];
  /// Every index below it has completed without error. Line 2: pollers.
  uint64_t cons;
  /// Index of the last doorbell; monotone, exact up to a doorbell in flight.
  uint64_t doorbell_index;
  /// Index at which this life of the QP began: a ticket at or below it is stale.
  uint64_t base;
  /// `Status` of the first failure that was seen; sticky until recovery.
  Status err;
  /// vendor_err_synd << 8 | syndrome of the error CQE behind `err`, big-endian fields already swapped.
  uint32_t syndrome;
  /// Reserved, zero.
  uint64_t reserved2[12];
  /// Nonzero: calls on this QP end `aborted`. Line 3: written by the host.
  uint32_t abort;
  /// Reserved, zero.
  uint32_t reserved3[31];
  /// The collapsed CQE itself. Line 4: written by the NIC.
  uint8_t cqe_line[128];
  /// Doorbell record of the send queue. Line 5: read by the NIC, written by the holder of the token.
  uint32_t sq_dbrec[2];
  /// Reserved, zero.
  uint32_t reserved4[14];
  /// Doorbell record of the CQ, at +64. Never written after creation: the CQ ignores overrun.
  uint32_t cq_dbrec[2];
  /// Reserved, zero.
  uint32_t reserved5[14];
};
static_assert(sizeof(QpContext) == 768 && alignof(QpContext) == 128);
static_assert(offsetof(QpContext, sq) == 0);
static_assert(offsetof(QpContext, flags) == 8);
static_assert(offsetof(QpContext, dbrec) == 16);
static_assert(offsetof(QpContext, doorbell) == 24);
static_assert(offsetof(QpContext, cqe) == 32);
static_assert(offsetof(QpContext, atomic_sink) == 40);
static_assert(offsetof(QpContext, qpn_ds_be) == 48);
static_assert(offsetof(QpContext, qpn) == 64);
static_assert(offsetof(QpContext, mask) == 68);
static_assert(offsetof(QpContext, depth) == 72);
static_assert(offsetof(QpContext, mode) == 76);
static_assert(offsetof(QpContext, atomic_sink_lkey_be) == 80);
static_assert(offsetof(QpContext, generation) == 84);
static_assert(offsetof(QpContext, reserved0) == 88);
static_assert(offsetof(QpContext, claim) == 128);
static_assert(offsetof(QpContext, resv) == 136);
static_assert(offsetof(QpContext, reserved1) == 144);
static_assert(offsetof(QpContext, cons) == 256);
static_assert(offsetof(QpContext, doorbell_index) == 264);
static_assert(offsetof(QpContext, base) == 272);
static_assert(offsetof(QpContext, err) == 280);
static_assert(offsetof(QpContext, syndrome) == 284);
static_assert(offsetof(QpContext, reserved2) == 288);
static_assert(offsetof(QpContext, abort) == 384);
static_assert(offsetof(QpContext, reserved3) == 388);
static_assert(offsetof(QpContext, cqe_line) == 512);
static_assert(offsetof(QpContext, sq_dbrec) == 640);
static_assert(offsetof(QpContext, reserved4) == 648);
static_assert(offsetof(QpContext, cq_dbrec) == 704);
static_assert(offsetof(QpContext, reserved5) == 712);

/// Where one window lies at one peer. 16 bytes, read by one relaxed 16-byte load; replaced only inside the peer's grace
/// period. All zero: the peer has no such window.
struct alignas(16) PeerEntry {
  /// Address of the window at the peer, in the address space of `rkey_be`.
  uint64_t base;
  /// Remote key, big-endian.
  uint32_t rkey_be;
  /// rail << RAIL_SHIFT | generation of the peer (24 bits).
  uint32_t rail_generation;
};
static_assert(sizeof(PeerEntry) == 16 && alignof(PeerEntry) == 16);
static_assert(offsetof(PeerEntry, base) == 0);
static_assert(offsetof(PeerEntry, rkey_be) == 8);
static_assert(offsetof(PeerEntry, rail_generation) == 12);

/// A symmetric window: the same number of bytes at every rank. Passed by value; nothing in it changes while the team lives.
struct Window {
  /// Its row in the peer table.
  uint32_t id;
  /// Local key, big-endian.
  uint32_t lkey_be;
  /// Local address.
  uint64_t base;
  /// Length at every rank.
  uint64_t bytes;
};
static_assert(sizeof(Window) == 24 && alignof(Window) == 8);
static_assert(offsetof(Window, id) == 0);
static_assert(offsetof(Window, lkey_be) == 4);
static_assert(offsetof(Window, base) == 8);
static_assert(offsetof(Window, bytes) == 16);

/// Settings that every kernel of a team reads. Device memory, written by the host.
struct DeviceConfig {
  /// Longest wait of a call, ns.
  uint64_t deadline_ns;
  /// Nonzero: every wait of every call ends `aborted`.
  uint32_t abort;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(DeviceConfig) == 16 && alignof(DeviceConfig) == 8);
static_assert(offsetof(DeviceConfig, deadline_ns) == 0);
static_assert(offsetof(DeviceConfig, abort) == 8);
static_assert(offsetof(DeviceConfig, reserved) == 12);

/// The team of a rank. Device memory; constant while the team lives.
struct TeamContext {
  /// This rank.
  uint32_t rank;
  /// Ranks of the team.
  uint32_t ranks;
  /// Rank slots: length of a row of the tables.
  uint32_t max_ranks;
  /// QPs to each peer.
  uint32_t qps_per_peer;
  /// Rows of the peer table.
  uint32_t max_windows;
  /// Reserved, zero.
  uint32_t reserved;
  /// QP i to a peer: qps[peer * qps_per_peer + i]; null where there is none (the rank itself included, if it has no loopback QP).
  QpContext **qps;
  /// Window w at a peer: peers[w * max_ranks + peer].
  PeerEntry *peers;
  /// Settings.
  DeviceConfig *config;
};
static_assert(sizeof(TeamContext) == 48 && alignof(TeamContext) == 8);
static_assert(offsetof(TeamContext, rank) == 0);
static_assert(offsetof(TeamContext, ranks) == 4);
static_assert(offsetof(TeamContext, max_ranks) == 8);
static_assert(offsetof(TeamContext, qps_per_peer) == 12);
static_assert(offsetof(TeamContext, max_windows) == 16);
static_assert(offsetof(TeamContext, reserved) == 20);
static_assert(offsetof(TeamContext, qps) == 24);
static_assert(offsetof(TeamContext, peers) == 32);
static_assert(offsetof(TeamContext, config) == 40);

}  // namespace wv
