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
  /// The peer is being replaced or its QPs are being reset: no guard is given out, nothing was posted.
  closed = 8,
};

/// Bytes of a WQEBB, the unit of the send queue. PRM "WQE Basic Block".
inline constexpr uint32_t WQEBB_BYTES = 0x40;

/// Least depth of a send queue, WQEBBs: a quarter of it, the most that one call may post, holds a put and a signal of a warp.
inline constexpr uint32_t MIN_DEPTH = 0x100;

/// Greatest depth of a send queue, WQEBBs: half the range of the 16-bit WQE counter.
inline constexpr uint32_t MAX_DEPTH = 0x8000;

/// Most bytes of one inline put: what fits into one WQEBB behind control, address and inline header.
inline constexpr uint32_t MAX_INLINE_BYTES = 0x1c;

/// Most bytes of one put. PRM "max_msg_sz" of an RC QP.
inline constexpr uint32_t MAX_PUT_BYTES = 0x40000000;

/// Rounds that a holder of the doorbell token serves others before it leaves.
inline constexpr uint32_t SERVICE_ROUNDS = 0x40;

/// `QpContext::mode` bit: one thread or one warp at a time uses the QP; no flags, no atomics.
inline constexpr uint32_t MODE_EXCLUSIVE = 0x1;

/// `QpContext::mode` bit: the threads of one block use the QP; flags and atomics of block scope.
inline constexpr uint32_t MODE_CTA = 0x2;

/// `QpContext::mode` bit: there is no doorbell record, the doorbell says how far to run. PRM "send_dbr_mode".
inline constexpr uint32_t MODE_NO_RECORD = 0x4;

/// `QpContext::mode` bit: `doorbell` is a word of host memory, from which a host thread rings.
inline constexpr uint32_t MODE_MAILBOX = 0x8;

/// `QpContext::mode` bit: ring, doorbell record and CQEs lie in host memory.
inline constexpr uint32_t MODE_HOST_QUEUES = 0x10;

/// `QpContext::mode` bit: the CQ has `depth` entries, so that the first error completion is never overwritten.
inline constexpr uint32_t MODE_WIDE_CQ = 0x20;

/// `QpContext::atomics` bit: fetch-and-add and compare-and-swap of 8 bytes.
inline constexpr uint32_t ATOMIC_64 = 0x1;

/// `QpContext::atomics` bit: the masked forms of 4 bytes.
inline constexpr uint32_t ATOMIC_MASKED_32 = 0x2;

/// `QpContext::atomics` bit: the masked forms of 8 bytes.
inline constexpr uint32_t ATOMIC_MASKED_64 = 0x4;

/// `QpContext::atomics` bit: results of 8 bytes are big-endian; those of 4 bytes always are.
inline constexpr uint32_t ATOMIC_RESULT_BE = 0x8;

/// What the host fills the ring, the flags and the CQE with before a QP leaves Reset.
inline constexpr uint8_t EMPTY_BYTE = 0xff;

/// `PeerEntry::rail_generation` >> RAIL_SHIFT, without PEER_DIRECT = rail, 7 bits; below it 24 bits of the peer's generation.
inline constexpr uint32_t RAIL_SHIFT = 0x18;

/// Bit of `PeerEntry::rail_generation`: `base` is an address that kernels of this rank may load from and store to.
inline constexpr uint32_t PEER_DIRECT = 0x80000000;

/// Most rails of a team.
inline constexpr uint32_t MAX_RAILS = 0x10;

/// One QP as kernels see it: 896 bytes of the control heap, in lines of 128 bytes by who writes them.
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
  /// The one collapsed CQE: 64 bytes, overwritten by the NIC at every completion. With MODE_WIDE_CQ, the first of
  /// `depth` CQEs.
  uint8_t *cqe;
  /// Where results of atomics go that nobody asked for: 8 bytes. Never read.
  uint64_t *atomic_sink;
  /// QP number, 24 bits, as big-endian `qpn << 8`: second word of a doorbell and, with ds in its last byte, of a control
  /// segment.
  uint32_t qpn_be;
  /// depth - 1.
  uint32_t mask;
  /// Ring length in WQEBBs: a power of two, MIN_DEPTH to MAX_DEPTH.
  uint32_t depth;
  /// Bits MODE_EXCLUSIVE to MODE_WIDE_CQ.
  uint32_t mode;
  /// lkey of `atomic_sink`, big-endian.
  uint32_t atomic_sink_lkey_be;
  /// Grows with each recovery. Written by the host inside the grace period.
  uint32_t generation;
  /// QP number, 24 bits, for dumps.
  uint32_t qpn;
  /// Rank at the other end.
  uint32_t peer;
  /// The first CQE of the receive queue, `recv_mask + 1` of 64 bytes; null if there is none.
  uint8_t *recv_cqe;
  /// Entries of the receive queue - 1.
  uint32_t recv_mask;
  /// Rail of this QP: its number among the HCAs of the rank.
  uint32_t rail;
  /// Bits ATOMIC_64 to ATOMIC_RESULT_BE: what the device can do.
  uint32_t atomics;
  /// Reserved, zero.
  uint32_t reserved0[5];
  /// `recv_consumed` at which this life of the receive queue began: its receive counter is, modulo 2^16,
  /// recv_consumed - recv_base + recv_mask + 1.
  uint64_t recv_base;
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
  /// CQEs taken from the CQ, with MODE_WIDE_CQ.
  uint64_t cq_consumed;
  /// CQEs taken from the receive queue's CQ.
  uint64_t recv_consumed;
  /// Receive WQEs given back since the QP left Reset; the record's receive counter is this plus the queue's length.
  uint64_t recv_posted;
  /// CQEs that were taken and whose WQEs are not given back yet.
  uint64_t recv_owed;
  /// Reserved, zero.
  uint64_t reserved2[8];
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
  /// Doorbells rung, by kernels or by the host for them. Line 6: counters, kept through recoveries; the host reads them
  /// while kernels run.
  uint64_t doorbells;
  /// Time that calls have waited for ring space, ns, summed over all callers.
  uint64_t full_ring_ns;
  /// Failures latched in `err`.
  uint64_t errors;
  /// Reserved, zero.
  uint64_t reserved6[13];
};
static_assert(sizeof(QpContext) == 896 && alignof(QpContext) == 128);
static_assert(offsetof(QpContext, sq) == 0);
static_assert(offsetof(QpContext, flags) == 8);
static_assert(offsetof(QpContext, dbrec) == 16);
static_assert(offsetof(QpContext, doorbell) == 24);
static_assert(offsetof(QpContext, cqe) == 32);
static_assert(offsetof(QpContext, atomic_sink) == 40);
static_assert(offsetof(QpContext, qpn_be) == 48);
static_assert(offsetof(QpContext, mask) == 52);
static_assert(offsetof(QpContext, depth) == 56);
static_assert(offsetof(QpContext, mode) == 60);
static_assert(offsetof(QpContext, atomic_sink_lkey_be) == 64);
static_assert(offsetof(QpContext, generation) == 68);
static_assert(offsetof(QpContext, qpn) == 72);
static_assert(offsetof(QpContext, peer) == 76);
static_assert(offsetof(QpContext, recv_cqe) == 80);
static_assert(offsetof(QpContext, recv_mask) == 88);
static_assert(offsetof(QpContext, rail) == 92);
static_assert(offsetof(QpContext, atomics) == 96);
static_assert(offsetof(QpContext, reserved0) == 100);
static_assert(offsetof(QpContext, recv_base) == 120);
static_assert(offsetof(QpContext, claim) == 128);
static_assert(offsetof(QpContext, resv) == 136);
static_assert(offsetof(QpContext, reserved1) == 144);
static_assert(offsetof(QpContext, cons) == 256);
static_assert(offsetof(QpContext, doorbell_index) == 264);
static_assert(offsetof(QpContext, base) == 272);
static_assert(offsetof(QpContext, err) == 280);
static_assert(offsetof(QpContext, syndrome) == 284);
static_assert(offsetof(QpContext, cq_consumed) == 288);
static_assert(offsetof(QpContext, recv_consumed) == 296);
static_assert(offsetof(QpContext, recv_posted) == 304);
static_assert(offsetof(QpContext, recv_owed) == 312);
static_assert(offsetof(QpContext, reserved2) == 320);
static_assert(offsetof(QpContext, abort) == 384);
static_assert(offsetof(QpContext, reserved3) == 388);
static_assert(offsetof(QpContext, cqe_line) == 512);
static_assert(offsetof(QpContext, sq_dbrec) == 640);
static_assert(offsetof(QpContext, reserved4) == 648);
static_assert(offsetof(QpContext, cq_dbrec) == 704);
static_assert(offsetof(QpContext, reserved5) == 712);
static_assert(offsetof(QpContext, doorbells) == 768);
static_assert(offsetof(QpContext, full_ring_ns) == 776);
static_assert(offsetof(QpContext, errors) == 784);
static_assert(offsetof(QpContext, reserved6) == 792);

/// Where one window lies at one peer. 16 bytes, read by one relaxed 16-byte load; replaced only inside the peer's grace
/// period. All zero: the peer has no such window.
struct alignas(16) PeerEntry {
  /// Address of the window at the peer, in the address space of `rkey_be`.
  uint64_t base;
  /// Remote key, big-endian.
  uint32_t rkey_be;
  /// PEER_DIRECT | rail << RAIL_SHIFT | generation of the peer (24 bits).
  uint32_t rail_generation;
};
static_assert(sizeof(PeerEntry) == 16 && alignof(PeerEntry) == 16);
static_assert(offsetof(PeerEntry, base) == 0);
static_assert(offsetof(PeerEntry, rkey_be) == 8);
static_assert(offsetof(PeerEntry, rail_generation) == 12);

/// How many guards of a peer are held at this rank. A line of its own.
struct alignas(128) PeerGuard {
  /// Guards taken and not yet dropped.
  uint64_t readers;
  /// Reserved, zero.
  uint64_t reserved[15];
};
static_assert(sizeof(PeerGuard) == 128 && alignof(PeerGuard) == 128);
static_assert(offsetof(PeerGuard, readers) == 0);
static_assert(offsetof(PeerGuard, reserved) == 8);

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
  /// Rails: HCAs of each rank. QP i to a peer uses rail i mod rails at both ends.
  uint32_t rails;
  /// QP i to a peer: qps[peer * qps_per_peer + i]; null where there is none (the rank itself included, if it has no loopback QP).
  QpContext **qps;
  /// Window w at a peer by rail r: peers[(w * rails + r) * max_ranks + peer].
  PeerEntry *peers;
  /// Settings.
  DeviceConfig *config;
  /// Guards by peer.
  PeerGuard *guards;
  /// By peer, in host memory: nonzero while no guard is given out.
  uint32_t *closed;
  /// Local key of window w for rail r, big-endian: lkeys[w * rails + r].
  uint32_t *lkeys;
};
static_assert(sizeof(TeamContext) == 72 && alignof(TeamContext) == 8);
static_assert(offsetof(TeamContext, rank) == 0);
static_assert(offsetof(TeamContext, ranks) == 4);
static_assert(offsetof(TeamContext, max_ranks) == 8);
static_assert(offsetof(TeamContext, qps_per_peer) == 12);
static_assert(offsetof(TeamContext, max_windows) == 16);
static_assert(offsetof(TeamContext, rails) == 20);
static_assert(offsetof(TeamContext, qps) == 24);
static_assert(offsetof(TeamContext, peers) == 32);
static_assert(offsetof(TeamContext, config) == 40);
static_assert(offsetof(TeamContext, guards) == 48);
static_assert(offsetof(TeamContext, closed) == 56);
static_assert(offsetof(TeamContext, lkeys) == 64);

/// Most experts that a token may choose: one per lane of a warp.
inline constexpr uint32_t MAX_TOP_K = 0x20;

/// Most BF16 elements of a token.
inline constexpr uint32_t MAX_HIDDEN = 0x4000;

/// Most tokens of a rank in one call: count + 1 has 16 bits in a signal.
inline constexpr uint32_t MAX_MOE_TOKENS = 0xfffe;

/// Slot sets: set = call mod SETS.
inline constexpr uint32_t SETS = 0x2;

/// Kind of a signal: dispatch.
inline constexpr uint32_t KIND_DISPATCH = 0x0;

/// Kind of a signal: combine.
inline constexpr uint32_t KIND_COMBINE = 0x1;

/// Signals from one peer, one per kind and set, at index kind * SETS + set.
inline constexpr uint32_t SIGNALS_PER_PEER = 0x4;

/// Alignment of slots and of the token in a slot.
inline constexpr uint32_t SLOT_ALIGN = 0x80;

/// No row, no expert.
inline constexpr uint32_t NONE = 0xffffffff;

/// Bytes that one WQE of combine sends at most.
inline constexpr uint32_t COMBINE_PUT_BYTES = 0x100000;

/// What became of one peer in one phase of a call. Final once it is not `none`.
enum class Outcome : uint32_t {
  /// Not settled.
  none = 0,
  /// Send phase: payload and word are posted.
  sent = 1,
  /// Send phase: the peer has not released the slots, or the call was refused; it was told that nothing comes.
  skipped = 2,
  /// Send phase: the QP refused the work.
  failed = 3,
  /// Receive phase: the word of this call is there.
  accepted = 4,
  /// Receive phase: the peer has not sent this call and will not.
  not_sent = 5,
  /// Receive phase: no word before the deadline, or the QP to the peer is in error.
  gave_up = 6,
};

/// How far a handle is. Each phase runs once, in this order; a phase that is called out of turn ends `invalid`.
enum class CallStage : uint32_t {
  /// Never used.
  fresh = 0,
  /// The send phase of dispatch has run.
  dispatch_sent = 1,
  /// The receive phase of dispatch has run.
  dispatched = 2,
  /// The send phase of combine has run.
  combine_sent = 3,
  /// The receive phase of combine has run.
  combined = 4,
};

/// What one peer tells about one (kind, set). 32 bytes in the receiver's memory, written only by that peer's NIC.
struct alignas(32) MoeSignal {
  /// epoch:16 | call:32 | count+1:16, the newest data of this kind and set. 0: none yet.
  uint64_t data;
  /// dispatch released:32 | combine released:32, the newest calls that the peer has closed.
  uint64_t credit;
  /// first:32 | number:32: the `number` calls of this set from `first` were not and will not be sent.
  uint64_t not_sent;
  /// call:32 | beat:32: the peer is waiting in this call.
  uint64_t alive;
};
static_assert(sizeof(MoeSignal) == 32 && alignof(MoeSignal) == 32);
static_assert(offsetof(MoeSignal, data) == 0);
static_assert(offsetof(MoeSignal, credit) == 8);
static_assert(offsetof(MoeSignal, not_sent) == 16);
static_assert(offsetof(MoeSignal, alive) == 24);

/// What this rank remembers of one peer. Device memory; changed by the send and receive phases, which run one at a time.
struct alignas(128) MoePeer {
  /// By kind and set: newest call whose data was sent; 0 none.
  uint32_t last[4];
  /// By kind and set: first call of the newest run of calls that were not sent.
  uint32_t skip_first[4];
  /// By kind and set: length of that run; its last call is first + 2 * (number - 1).
  uint32_t skip_number[4];
  /// By kind and set: ticket of the last WQE that reads the staging rows; 0 none.
  uint64_t ticket[4];
  /// Credits that the peer was last told.
  uint64_t told;
  /// Sum of all that the peer's signals said when it became a suspect; another sum ends the suspicion.
  uint64_t seen;
  /// 1: it was waited for in vain. It is looked at, but not waited for.
  uint32_t suspect;
  /// Reserved, zero.
  uint32_t reserved[7];
};
static_assert(sizeof(MoePeer) == 128 && alignof(MoePeer) == 128);
static_assert(offsetof(MoePeer, last) == 0);
static_assert(offsetof(MoePeer, skip_first) == 16);
static_assert(offsetof(MoePeer, skip_number) == 32);
static_assert(offsetof(MoePeer, ticket) == 48);
static_assert(offsetof(MoePeer, told) == 80);
static_assert(offsetof(MoePeer, seen) == 88);
static_assert(offsetof(MoePeer, suspect) == 96);
static_assert(offsetof(MoePeer, reserved) == 100);

/// Where an expert lives.
struct ExpertHome {
  /// Rank.
  uint32_t rank;
  /// Its place among the experts of that rank.
  uint32_t local;
};
static_assert(sizeof(ExpertHome) == 8 && alignof(ExpertHome) == 4);
static_assert(offsetof(ExpertHome, rank) == 0);
static_assert(offsetof(ExpertHome, local) == 4);

/// One MoE layer at one rank. Device memory; constant except for the last line, which the phases change.
struct alignas(128) MoeContext {
  /// The team.
  TeamContext *team;
  /// State per peer, by rank.
  MoePeer *peers;
  /// Home of each expert.
  ExpertHome *homes;
  /// Slots that peers write: dispatch `[set][source][max_tokens]`, at `combine_slots` combine rows of the same shape.
  Window slots;
  /// What the NIC sends from: dispatch `[set][max_tokens]`, at `combine_staging` combine rows `[set][source][max_tokens]`.
  Window staging;
  /// `MoeSignal [writer][kind * SETS + set]`.
  Window signals;
  /// Offset of the combine rows in the slot window.
  uint64_t combine_slots;
  /// Offset of the combine rows in the staging window.
  uint64_t combine_staging;
  /// Bytes of a dispatch slot.
  uint64_t slot_bytes;
  /// Bytes of a combine row, and of the token in a slot.
  uint64_t row_bytes;
  /// Bytes of a slot before the token.
  uint32_t header_bytes;
  /// BF16 elements of a token.
  uint32_t hidden;
  /// Experts of all ranks.
  uint32_t experts;
  /// Experts of this rank.
  uint32_t local_experts;
  /// Choices of a token.
  uint32_t top_k;
  /// Most tokens of a rank in one call.
  uint32_t max_tokens;
  /// Membership epoch, low 16 bits.
  uint32_t epoch;
  /// Reserved, zero.
  uint32_t reserved0[25];
  /// Number of the last call that began. Last line: changed by the phases.
  uint32_t call;
  /// Newest closed call, by kind.
  uint32_t released[2];
  /// Words of the expected call that named another epoch.
  uint32_t foreign_epochs;
  /// Reserved, zero.
  uint32_t reserved1[28];
};
static_assert(sizeof(MoeContext) == 384 && alignof(MoeContext) == 128);
static_assert(offsetof(MoeContext, team) == 0);
static_assert(offsetof(MoeContext, peers) == 8);
static_assert(offsetof(MoeContext, homes) == 16);
static_assert(offsetof(MoeContext, slots) == 24);
static_assert(offsetof(MoeContext, staging) == 48);
static_assert(offsetof(MoeContext, signals) == 72);
static_assert(offsetof(MoeContext, combine_slots) == 96);
static_assert(offsetof(MoeContext, combine_staging) == 104);
static_assert(offsetof(MoeContext, slot_bytes) == 112);
static_assert(offsetof(MoeContext, row_bytes) == 120);
static_assert(offsetof(MoeContext, header_bytes) == 128);
static_assert(offsetof(MoeContext, hidden) == 132);
static_assert(offsetof(MoeContext, experts) == 136);
static_assert(offsetof(MoeContext, local_experts) == 140);
static_assert(offsetof(MoeContext, top_k) == 144);
static_assert(offsetof(MoeContext, max_tokens) == 148);
static_assert(offsetof(MoeContext, epoch) == 152);
static_assert(offsetof(MoeContext, reserved0) == 156);
static_assert(offsetof(MoeContext, call) == 256);
static_assert(offsetof(MoeContext, released) == 260);
static_assert(offsetof(MoeContext, foreign_epochs) == 268);
static_assert(offsetof(MoeContext, reserved1) == 272);

/// What a call knows of one peer. Each field is written once per call, by one thread.
struct MoeHandlePeer {
  /// Rows that this rank's dispatch has for the peer.
  uint32_t rows_sent;
  /// Whether they were sent.
  Outcome dispatch_sent;
  /// Rows that the peer's dispatch has brought; 0 unless accepted.
  uint32_t rows_received;
  /// Whether its dispatch was accepted.
  Outcome dispatch_received;
  /// Whether its rows were sent back.
  Outcome combine_sent;
  /// Whether its combine was accepted.
  Outcome combine_received;
  /// Rows that the peer says it has processed.
  uint32_t rows_combined;
  /// 1: all rows sent to it have come back, so that they are added.
  uint32_t valid;
  /// Received rows whose header was out of range: not processed.
  uint32_t malformed;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(MoeHandlePeer) == 40 && alignof(MoeHandlePeer) == 4);
static_assert(offsetof(MoeHandlePeer, rows_sent) == 0);
static_assert(offsetof(MoeHandlePeer, dispatch_sent) == 4);
static_assert(offsetof(MoeHandlePeer, rows_received) == 8);
static_assert(offsetof(MoeHandlePeer, dispatch_received) == 12);
static_assert(offsetof(MoeHandlePeer, combine_sent) == 16);
static_assert(offsetof(MoeHandlePeer, combine_received) == 20);
static_assert(offsetof(MoeHandlePeer, rows_combined) == 24);
static_assert(offsetof(MoeHandlePeer, valid) == 28);
static_assert(offsetof(MoeHandlePeer, malformed) == 32);
static_assert(offsetof(MoeHandlePeer, reserved) == 36);

/// One row that dispatch received, as its header said, after the range checks.
struct MoeSource {
  /// Row of the source's input.
  uint32_t token;
  /// Choices that live at this rank.
  uint32_t picks;
};
static_assert(sizeof(MoeSource) == 8 && alignof(MoeSource) == 4);
static_assert(offsetof(MoeSource, token) == 0);
static_assert(offsetof(MoeSource, picks) == 4);

/// One choice of a received row.
struct MoePick {
  /// Local number of the expert; NONE if it lives elsewhere or is no choice.
  uint32_t local;
  /// Row of the expert's output.
  uint32_t row;
  /// Weight.
  float weight;
};
static_assert(sizeof(MoePick) == 12 && alignof(MoePick) == 4);
static_assert(offsetof(MoePick, local) == 0);
static_assert(offsetof(MoePick, row) == 4);
static_assert(offsetof(MoePick, weight) == 8);

/// One call, from the send phase of dispatch to the receive phase of combine. Device memory; holds all that combine needs,
/// so that slots are free again when dispatch has been received.
struct alignas(128) MoeHandle {
  /// By rank.
  MoeHandlePeer *peers;
  /// Row that a token has at a peer, or NONE: `[peer][max_tokens]`.
  uint32_t *row_of;
  /// Token of a row at a peer, the inverse of `row_of`: `[peer][max_tokens]`.
  uint32_t *token_of;
  /// Received rows: `[source][max_tokens]`.
  MoeSource *sources;
  /// Their choices: `[source][max_tokens][top_k]`.
  MoePick *picks;
  /// Number of the call.
  uint32_t call;
  /// Epoch in which it began, low 16 bits.
  uint32_t epoch;
  /// Tokens of this rank.
  uint32_t tokens;
  /// How far it is.
  CallStage stage;
  /// How each phase ended: dispatch send, dispatch receive, combine send, combine receive.
  Status phase[4];
  /// 1: the phase that runs was called in turn.
  uint32_t in_turn;
  /// 1: the phase cannot do its work, and tells the peers so.
  uint32_t stopped;
  /// Reserved, zero.
  uint32_t reserved0;
  /// 1: a peer has not released the slots yet, so that everybody is told what this rank has released.
  uint32_t tell;
  /// token << 32 | expert of the first choice that was refused; all ones if none was.
  uint64_t refused;
  /// Reserved, zero.
  uint32_t reserved[8];
};
static_assert(sizeof(MoeHandle) == 128 && alignof(MoeHandle) == 128);
static_assert(offsetof(MoeHandle, peers) == 0);
static_assert(offsetof(MoeHandle, row_of) == 8);
static_assert(offsetof(MoeHandle, token_of) == 16);
static_assert(offsetof(MoeHandle, sources) == 24);
static_assert(offsetof(MoeHandle, picks) == 32);
static_assert(offsetof(MoeHandle, call) == 40);
static_assert(offsetof(MoeHandle, epoch) == 44);
static_assert(offsetof(MoeHandle, tokens) == 48);
static_assert(offsetof(MoeHandle, stage) == 52);
static_assert(offsetof(MoeHandle, phase) == 56);
static_assert(offsetof(MoeHandle, in_turn) == 72);
static_assert(offsetof(MoeHandle, stopped) == 76);
static_assert(offsetof(MoeHandle, reserved0) == 80);
static_assert(offsetof(MoeHandle, tell) == 84);
static_assert(offsetof(MoeHandle, refused) == 88);
static_assert(offsetof(MoeHandle, reserved) == 96);

/// Send phase of dispatch. Cooperative launch.
struct DispatchSendParams {
  /// The layer.
  MoeContext *moe;
  /// The call.
  MoeHandle *handle;
  /// Tokens, BF16 `[tokens, hidden]`, 16-byte aligned.
  uint16_t *x;
  /// Choices `[tokens, top_k]`; -1 none.
  int32_t *experts;
  /// Weights `[tokens, top_k]`.
  float *weights;
  /// Tokens of this call.
  uint32_t tokens;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(DispatchSendParams) == 48 && alignof(DispatchSendParams) == 8);
static_assert(offsetof(DispatchSendParams, moe) == 0);
static_assert(offsetof(DispatchSendParams, handle) == 8);
static_assert(offsetof(DispatchSendParams, x) == 16);
static_assert(offsetof(DispatchSendParams, experts) == 24);
static_assert(offsetof(DispatchSendParams, weights) == 32);
static_assert(offsetof(DispatchSendParams, tokens) == 40);
static_assert(offsetof(DispatchSendParams, reserved) == 44);

/// A row of the output of dispatch.
struct ReceivedRow {
  /// Rank that sent it.
  uint32_t rank;
  /// Row of that rank's input.
  uint32_t token;
};
static_assert(sizeof(ReceivedRow) == 8 && alignof(ReceivedRow) == 4);
static_assert(offsetof(ReceivedRow, rank) == 0);
static_assert(offsetof(ReceivedRow, token) == 4);

/// Receive phase of dispatch. Cooperative launch.
struct DispatchReceiveParams {
  /// The layer.
  MoeContext *moe;
  /// The call.
  MoeHandle *handle;
  /// Output: tokens by expert, BF16 `[local experts, ranks * max_tokens, hidden]`; the first `counts[e]` rows are written.
  uint16_t *recv_x;
  /// Output: rows of each local expert.
  uint32_t *counts;
  /// Output: where the rows come from, `[local experts, ranks * max_tokens]`.
  ReceivedRow *rows;
};
static_assert(sizeof(DispatchReceiveParams) == 40 && alignof(DispatchReceiveParams) == 8);
static_assert(offsetof(DispatchReceiveParams, moe) == 0);
static_assert(offsetof(DispatchReceiveParams, handle) == 8);
static_assert(offsetof(DispatchReceiveParams, recv_x) == 16);
static_assert(offsetof(DispatchReceiveParams, counts) == 24);
static_assert(offsetof(DispatchReceiveParams, rows) == 32);

/// Send phase of combine. Cooperative launch.
struct CombineSendParams {
  /// The layer.
  MoeContext *moe;
  /// The call.
  MoeHandle *handle;
  /// What the experts made of `recv_x`, in the same places.
  uint16_t *y;
};
static_assert(sizeof(CombineSendParams) == 24 && alignof(CombineSendParams) == 8);
static_assert(offsetof(CombineSendParams, moe) == 0);
static_assert(offsetof(CombineSendParams, handle) == 8);
static_assert(offsetof(CombineSendParams, y) == 16);

/// Receive phase of combine. Cooperative launch.
struct CombineReceiveParams {
  /// The layer.
  MoeContext *moe;
  /// The call.
  MoeHandle *handle;
  /// Output: BF16 `[tokens, hidden]`, 16-byte aligned.
  uint16_t *out;
  /// Output: 1 for each token all of whose experts contributed, else 0.
  uint8_t *token_valid;
};
static_assert(sizeof(CombineReceiveParams) == 32 && alignof(CombineReceiveParams) == 8);
static_assert(offsetof(CombineReceiveParams, moe) == 0);
static_assert(offsetof(CombineReceiveParams, handle) == 8);
static_assert(offsetof(CombineReceiveParams, out) == 16);
static_assert(offsetof(CombineReceiveParams, token_valid) == 24);

/// The experts of `wv demo`: y = x * scale(e) + shift(e), each operation rounded, for the rows that dispatch has written.
struct DemoExpertParams {
  /// Rows by local expert, BF16 `[local experts, rows, hidden]`.
  uint16_t *x;
  /// Output in the same places.
  uint16_t *y;
  /// Rows of each local expert.
  uint32_t *counts;
  /// Scale and shift of each local expert: `[local experts][2]`.
  float *factors;
  /// Local experts.
  uint32_t local_experts;
  /// Rows between two experts.
  uint32_t rows;
  /// BF16 elements of a row.
  uint32_t hidden;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(DemoExpertParams) == 48 && alignof(DemoExpertParams) == 8);
static_assert(offsetof(DemoExpertParams, x) == 0);
static_assert(offsetof(DemoExpertParams, y) == 8);
static_assert(offsetof(DemoExpertParams, counts) == 16);
static_assert(offsetof(DemoExpertParams, factors) == 24);
static_assert(offsetof(DemoExpertParams, local_experts) == 32);
static_assert(offsetof(DemoExpertParams, rows) == 36);
static_assert(offsetof(DemoExpertParams, hidden) == 40);
static_assert(offsetof(DemoExpertParams, reserved) == 44);

}  // namespace wv
