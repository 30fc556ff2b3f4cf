// Rendered from src/abi by tests/docs/abi_header.rs; do not edit. Rewrite: UPDATE=1 cargo test --test abi_header.
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
  stale_life = 5,
  /// A bad argument: nothing was posted.
  invalid = 6,
  /// The QP was in error and flushed the work: the cause is in the first error, which was not seen.
  flushed = 7,
  /// The peer is being replaced or its QPs are being reset: no guard is given out, nothing was posted.
  closed = 8,
};

/// Bytes of a WQEBB, the unit of the send queue. PRM "WQE Basic Block".
inline constexpr uint32_t WQEBB_BYTES = 0x40;

/// Least depth of a send queue, WQEBBs. A quarter of it is the most that one call may post, and holds a put and a signal of a
/// warp.
inline constexpr uint32_t MIN_DEPTH = 0x100;

/// Greatest depth of a send queue, WQEBBs: half the range of the 16-bit WQE counter.
inline constexpr uint32_t MAX_DEPTH = 0x8000;

/// Most bytes of one inline put: what fits into one WQEBB after control, address and inline header.
inline constexpr uint32_t MAX_INLINE_BYTES = 0x1c;

/// Most bytes of one put. PRM "max_msg_sz" of an RC QP.
inline constexpr uint32_t MAX_PUT_BYTES = 0x40000000;

/// Rounds that a holder of the doorbell token serves others before it leaves.
inline constexpr uint32_t SERVICE_ROUNDS = 0x40;

/// `QpContext::mode` bit: one thread or one warp at a time uses the QP; no flags, no atomics.
inline constexpr uint32_t MODE_EXCLUSIVE = 0x1;

/// `QpContext::mode` bit: the threads of one block use the QP; flags and atomics of block scope.
inline constexpr uint32_t MODE_CTA = 0x2;

/// `QpContext::mode` bit: the QP has no doorbell record, and the doorbell says how far to run. PRM "send_dbr_mode".
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

/// `PeerEntry::rail_life` >> RAIL_SHIFT, without PEER_DIRECT = rail, 7 bits; below it 24 bits of the life of the QPs to the peer.
inline constexpr uint32_t RAIL_SHIFT = 0x18;

/// Bit of `PeerEntry::rail_life`: kernels of this rank may load from and store to the window, at the address that stands
/// in `TeamContext::direct`.
inline constexpr uint32_t PEER_DIRECT = 0x80000000;

/// Most rails of a team.
inline constexpr uint32_t MAX_RAILS = 0x10;

/// One QP as kernels see it: 896 bytes of the control heap, in lines of 128 bytes by their writer.
///
/// A line that the NIC reads or writes holds no word that SMs change by atomics. Indices count WQEBBs, are 64 bits wide
/// and never wrap; ring position = index & mask, 16-bit WQE index = low half.
struct alignas(128) QpContext {
  /// The send queue: `depth` WQEBBs. Line 0 is constant while the team lives, except `life`.
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
  /// Where results of atomics go that no caller asked for: 8 bytes. Never read.
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
  uint32_t life;
  /// QP number, 24 bits, for dumps.
  uint32_t qpn;
  /// Rank at the other end.
  uint32_t peer;
  /// The first CQE of the receive queue, `recv_mask + 1` of 64 bytes; null without a receive queue.
  uint8_t *recv_cqe;
  /// Entries of the receive queue - 1.
  uint32_t recv_mask;
  /// Rail of this QP: its number among the HCAs of the rank.
  uint32_t rail;
  /// Bits ATOMIC_64 to ATOMIC_RESULT_BE: what the device can do.
  uint32_t atomics;
  /// Reserved, zero.
  uint32_t reserved0;
  /// A word of host memory that a kernel sets to 1 after `err`. By it the host need not look at QPs that work. The QPs to 64
  /// peers share one word. Null: no host looks.
  uint32_t *failed;
  /// Reserved, zero.
  uint32_t reserved7[2];
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
  /// vendor_err_synd << 8 | syndrome of the error CQE behind `err`, big-endian fields already swapped. A cause only if `err`
  /// is `cqe_error`: with `flushed` it is that of a WQE after the one that failed.
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
static_assert(offsetof(QpContext, life) == 68);
static_assert(offsetof(QpContext, qpn) == 72);
static_assert(offsetof(QpContext, peer) == 76);
static_assert(offsetof(QpContext, recv_cqe) == 80);
static_assert(offsetof(QpContext, recv_mask) == 88);
static_assert(offsetof(QpContext, rail) == 92);
static_assert(offsetof(QpContext, atomics) == 96);
static_assert(offsetof(QpContext, reserved0) == 100);
static_assert(offsetof(QpContext, failed) == 104);
static_assert(offsetof(QpContext, reserved7) == 112);
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
  /// PEER_DIRECT | rail << RAIL_SHIFT | life of the QPs to the peer (24 bits).
  uint32_t rail_life;
};
static_assert(sizeof(PeerEntry) == 16 && alignof(PeerEntry) == 16);
static_assert(offsetof(PeerEntry, base) == 0);
static_assert(offsetof(PeerEntry, rkey_be) == 8);
static_assert(offsetof(PeerEntry, rail_life) == 12);

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
  /// The rank of this process, from 0 on.
  uint32_t rank;
  /// Ranks of the team.
  uint32_t ranks;
  /// Rank slots: length of a row of the tables.
  uint32_t max_ranks;
  /// QPs to each peer.
  uint32_t qps_per_peer;
  /// Rows of the peer table.
  uint32_t max_windows;
  /// Rails: HCAs of each rank. QP i to a peer is of rail i mod rails at both ends.
  uint32_t rails;
  /// QP i to a peer: qps[peer * qps_per_peer + i]. Null without a QP; so is the rank itself, if it has no loopback QP. Where
  /// the pair goes round the rail of i it is a QP of another rail. Changes only inside the peer's grace period.
  QpContext **qps;
  /// Window w at a peer for QPs of rail r: peers[(w * rails + r) * max_ranks + peer]. The entry says by which rail they go.
  PeerEntry *peers;
  /// Settings.
  DeviceConfig *config;
  /// Guards by peer.
  PeerGuard *guards;
  /// By peer, in host memory: nonzero while no guard is given out.
  uint32_t *closed;
  /// Local key of window w for rail r, big-endian: lkeys[w * rails + r].
  uint32_t *lkeys;
  /// Where kernels of this rank reach window w at a peer by load and store: direct[w * max_ranks + peer]; 0: not at all.
  uint64_t *direct;
};
static_assert(sizeof(TeamContext) == 80 && alignof(TeamContext) == 8);
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
static_assert(offsetof(TeamContext, direct) == 72);

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

/// In `MoeHandle::chosen`: a choice that no rank serves, since no rank that takes part holds its expert.
inline constexpr uint32_t LOST = 0xfffffffe;

/// Bytes that one WQE of combine sends at most.
inline constexpr uint32_t COMBINE_PUT_BYTES = 0x100000;

/// Channels that share one scale of FP8.
inline constexpr uint32_t SCALE_CHANNELS = 0x80;

/// Most ranks of a layer.
inline constexpr uint32_t MAX_MOE_RANKS = 0x400;

/// Most send buffers of dispatch in a layer: one bit of a word for each.
inline constexpr uint32_t MOST_SEND_BUFFERS = 0x1e;

/// Views and expert tables that a layer holds: the newest, and those before it in which a rank that is behind has calls to end.
inline constexpr uint32_t MOE_VIEWS = 0x8;

/// Flag of `DispatchSendParams`: `x` is FP8 already and `x_scales` holds its scales.
inline constexpr uint32_t DISPATCH_QUANTIZED = 0x1;

/// Flag of `DispatchSendParams`: no combine follows, so the call ends with the receive phase of its dispatch.
inline constexpr uint32_t DISPATCH_ONLY = 0x2;

/// Flag of `DispatchSendParams`: choices are i64.
inline constexpr uint32_t DISPATCH_IDS_64 = 0x4;

/// Flag of `DispatchReceiveParams`: `active` is the caller's mask. Ranks whose rows are not here are taken out of it, and none
/// is put in.
inline constexpr uint32_t RECEIVE_IN_PLACE = 0x1;

/// Flag of `DispatchReceiveParams`: `recv_stats` is i32, which wraps.
inline constexpr uint32_t RECEIVE_STATS_32 = 0x2;

/// Flag of `CombineSendParams`: the rows lie in the layer's own staging memory for this call, so nothing is copied. If the call
/// was not offered that memory, they are copied from `copy_from`.
inline constexpr uint32_t COMBINE_ZERO_COPY = 0x1;

/// Flag of `CombineSendParams`: every weight counts as 1.
inline constexpr uint32_t COMBINE_UNWEIGHTED = 0x2;

/// Flag of `CombineReceiveParams`: a token that lost experts is divided by the share of its weights that is left.
inline constexpr uint32_t COMBINE_RENORMALISE = 0x4;

/// In `MoeHandle::combine_flags`: the call has no combine.
inline constexpr uint32_t COMBINE_NONE = 0x8;

/// Flag of `CombineReceiveParams`: `active` is the caller's mask, as with RECEIVE_IN_PLACE.
inline constexpr uint32_t COMBINE_IN_PLACE = 0x10;

/// What a token is made of on its way to the experts.
enum class MoeFormat : uint32_t {
  /// `hidden` BF16.
  bf16 = 0,
  /// `hidden` FP8 (e4m3) and one scale for each 128 of them.
  fp8 = 1,
  /// Payload and scales as bytes that the library does not look into.
  opaque = 2,
};

/// How the scales of FP8 are kept.
enum class MoeScales : uint32_t {
  /// f32.
  f32 = 0,
  /// f32, rounded up to a power of two.
  power_of_two = 1,
  /// The exponent byte of such a power (UE8M0), four to a 32-bit word.
  ue8m0 = 2,
};

/// How dispatch lays out what it received.
enum class MoeLayout : uint32_t {
  /// By local expert: `[local experts, ranks * max_tokens]`, the rows of an expert in the order (rank, token).
  expert_major = 0,
  /// By source: `[ranks, max_tokens]`, each token once, with the local experts it chose.
  rank_major = 1,
};

/// What combine sends back for a token.
enum class MoeReturns : uint32_t {
  /// One row: the sum over the experts of the rank.
  sums = 0,
  /// One row for each expert, for callers that know the weights only at combine.
  rows = 1,
};

/// How a data signal is kept after its data.
enum class MoeOrder : uint32_t {
  /// An inline write on the same QP: where the device places writes in order.
  inline_write = 0,
  /// An unconditional swap on the same QP: where atomics are ordered after writes but writes not among themselves.
  swap = 1,
  /// The data is complete before the signal is posted: anywhere.
  flush = 2,
};

/// Why rows are missing from a call.
enum class MoeCause : uint32_t {
  /// Nothing is missing.
  none = 0,
  /// No word of the peer before the deadline.
  timeout = 1,
  /// A WQE to the peer ended in error, and the syndrome says why.
  cqe_error = 2,
  /// The peer's word named another epoch.
  epoch = 3,
  /// The peer has not sent this call.
  missed_call = 4,
  /// A slot of the peer was out of range.
  malformed = 5,
  /// The host or a user word ended the call.
  aborted = 6,
  /// This rank's own input was refused.
  refused = 7,
  /// The QP to the peer ended in error; what failed first was flushed over before it was seen, so the cause is lost.
  flushed = 8,
  /// The peer's rows have another format, or its call another `max_tokens`, than this rank's.
  shape = 9,
  /// HCAs still read all send buffers of this rank, so that the call sent nothing.
  no_buffer = 10,
};

/// What became of one peer in one phase of a call. Final once it is not `none`.
enum class Outcome : uint32_t {
  /// Not settled.
  none = 0,
  /// Send phase: payload and word are posted.
  sent = 1,
  /// Send phase: the peer has not released the slots, or the call was refused; it got a word that nothing comes.
  skipped = 2,
  /// Send phase: the QP refused the work.
  failed = 3,
  /// Receive phase: the word of this call has arrived.
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

/// The word of one peer about one (kind, set). 32 bytes in the receiver's memory, written only by that peer's NIC.
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
  /// By kind and set: newest call whose data was sent; valid only if the bit in `sent` is set.
  uint32_t last[4];
  /// By kind and set: first call of the newest run of calls that were not sent.
  uint32_t skip_first[4];
  /// By kind and set: length of that run; its last call is first + 2 * (number - 1).
  uint32_t skip_number[4];
  /// By kind and set: ticket of the last WQE that reads the staging rows; 0 none. Until the HCA has carried it, or its QP has
  /// failed, the peer gets no data of this kind and set.
  uint64_t ticket[4];
  /// Credits that the peer got last.
  uint64_t told;
  /// Sum of all that the peer's signals said when it became a suspect; another sum ends the suspicion.
  uint64_t seen;
  /// 1: it was waited for in vain. It is looked at, but not waited for.
  uint32_t suspect;
  /// Bit kind * SETS + set: data of this kind was sent in this set, so `last` is valid.
  uint32_t sent;
  /// 1: the phase that runs holds a guard of the peer, so that its QPs may be used.
  uint32_t open;
  /// Beats written to it so far.
  uint32_t beat;
  /// How its credit stands in the send phase that runs.
  uint32_t credit;
  /// Of dispatch, by set: the send buffer from which its last data went.
  uint32_t buffer[2];
  /// Bit kind * SETS + set: a send phase has waited in vain for the end of the work whose ticket stands in `ticket`.
  uint32_t late;
};
static_assert(sizeof(MoePeer) == 128 && alignof(MoePeer) == 128);
static_assert(offsetof(MoePeer, last) == 0);
static_assert(offsetof(MoePeer, skip_first) == 16);
static_assert(offsetof(MoePeer, skip_number) == 32);
static_assert(offsetof(MoePeer, ticket) == 48);
static_assert(offsetof(MoePeer, told) == 80);
static_assert(offsetof(MoePeer, seen) == 88);
static_assert(offsetof(MoePeer, suspect) == 96);
static_assert(offsetof(MoePeer, sent) == 100);
static_assert(offsetof(MoePeer, open) == 104);
static_assert(offsetof(MoePeer, beat) == 108);
static_assert(offsetof(MoePeer, credit) == 112);
static_assert(offsetof(MoePeer, buffer) == 116);
static_assert(offsetof(MoePeer, late) == 124);

/// An expert slot: a place of an expert on a rank.
struct ExpertHome {
  /// The rank that holds the slot.
  uint32_t rank;
  /// Its place among the expert slots of that rank.
  uint32_t local;
};
static_assert(sizeof(ExpertHome) == 8 && alignof(ExpertHome) == 4);
static_assert(offsetof(ExpertHome, rank) == 0);
static_assert(offsetof(ExpertHome, local) == 4);

/// The expert slots that hold one expert: `count` of them from `first` in `MoeView::replicas`.
struct ExpertSlots {
  /// Place of the first of them in `MoeView::replicas`.
  uint32_t first;
  /// How many; 0: no rank holds the expert now.
  uint32_t count;
};
static_assert(sizeof(ExpertSlots) == 8 && alignof(ExpertSlots) == 4);
static_assert(offsetof(ExpertSlots, first) == 0);
static_assert(offsetof(ExpertSlots, count) == 4);

/// The ranks that take part, and the ranks that hold each expert, from one call on. Written by the host while it is not the
/// newest.
struct alignas(128) MoeView {
  /// First call that it covers. It counts only until a call runs in the view.
  uint32_t first;
  /// Membership epoch, low 16 bits.
  uint32_t epoch;
  /// Expert slots of all ranks.
  uint32_t expert_slots;
  /// Expert slots of this rank.
  uint32_t local_experts;
  /// Expert slots by number.
  ExpertHome *homes;
  /// The slots of each expert, by its id.
  ExpertSlots *experts;
  /// Numbers of expert slots, grouped by expert.
  uint32_t *replicas;
  /// Its place among all views that were written, in their order; 0: it is not written, or not whole.
  uint32_t serial;
  /// Reserved, zero.
  uint32_t reserved[21];
  /// Bit r: rank r is a member.
  uint32_t members[32];
};
static_assert(sizeof(MoeView) == 256 && alignof(MoeView) == 128);
static_assert(offsetof(MoeView, first) == 0);
static_assert(offsetof(MoeView, epoch) == 4);
static_assert(offsetof(MoeView, expert_slots) == 8);
static_assert(offsetof(MoeView, local_experts) == 12);
static_assert(offsetof(MoeView, homes) == 16);
static_assert(offsetof(MoeView, experts) == 24);
static_assert(offsetof(MoeView, replicas) == 32);
static_assert(offsetof(MoeView, serial) == 40);
static_assert(offsetof(MoeView, reserved) == 44);
static_assert(offsetof(MoeView, members) == 128);

/// Why a call is not complete: the first fault of the call, and all its suspects.
struct alignas(128) MoeFault {
  /// Number of the call; 0: none.
  uint32_t call;
  /// Its epoch, low 16 bits.
  uint32_t epoch;
  /// Why.
  MoeCause cause;
  /// The peer; NONE if it is this rank itself.
  uint32_t peer;
  /// Phase in which it showed: 0 to 3, in the order of `MoeHandle::phase`.
  uint32_t phase;
  /// Vendor syndrome << 8 | syndrome, if `cause` is `cqe_error`. If it is `shape`: the tag of the peer's shape << 16 | that of
  /// this rank's. Else 0.
  uint32_t syndrome;
  /// The expert slot concerned; NONE if all of the peer's.
  uint32_t expert;
  /// Reserved, zero.
  uint32_t reserved[25];
  /// Bit r: rank r is a suspect.
  uint32_t suspects[32];
};
static_assert(sizeof(MoeFault) == 256 && alignof(MoeFault) == 128);
static_assert(offsetof(MoeFault, call) == 0);
static_assert(offsetof(MoeFault, epoch) == 4);
static_assert(offsetof(MoeFault, cause) == 8);
static_assert(offsetof(MoeFault, peer) == 12);
static_assert(offsetof(MoeFault, phase) == 16);
static_assert(offsetof(MoeFault, syndrome) == 20);
static_assert(offsetof(MoeFault, expert) == 24);
static_assert(offsetof(MoeFault, reserved) == 28);
static_assert(offsetof(MoeFault, suspects) == 128);

/// How long calls wait. Device memory, written by the host.
struct MoeClock {
  /// Longest wait of a phase, ns.
  uint64_t steady_ns;
  /// As `steady_ns`, for the calls up to `warm_calls`.
  uint64_t warm_ns;
  /// Calls up to this number are warm-up.
  uint32_t warm_calls;
  /// Reserved, zero.
  uint32_t reserved;
  /// Longest time for which a call is held back by a change that is being prepared, ns.
  uint64_t change_ns;
};
static_assert(sizeof(MoeClock) == 32 && alignof(MoeClock) == 8);
static_assert(offsetof(MoeClock, steady_ns) == 0);
static_assert(offsetof(MoeClock, warm_ns) == 8);
static_assert(offsetof(MoeClock, warm_calls) == 16);
static_assert(offsetof(MoeClock, reserved) == 20);
static_assert(offsetof(MoeClock, change_ns) == 24);

/// Words that host and kernels of one rank share while kernels run. Host-mapped memory.
struct alignas(128) MoeBoard {
  /// Written by the host: the last call that may start now, if `limited`.
  uint32_t limit;
  /// Written by the host: 1 while calls end `aborted` as soon as they would be held.
  uint32_t refuse;
  /// Written by the host: 1 while a change is being prepared.
  uint32_t preparing;
  /// Reserved, zero.
  uint32_t reserved0;
  /// Written by the host: 1 while `limit` counts, 0 while any call may start. Kernels read it and `alone` in one load.
  uint32_t limited;
  /// Written by the host: 1 while this rank exchanges with no other member, so that its calls keep pace.
  uint32_t alone;
  /// Reserved, zero.
  uint32_t reserved1[26];
  /// Written by kernels: the last call that has taken its number.
  uint32_t started;
  /// Written by kernels: the last call all phases of which have ended, or that is closed.
  uint32_t finished;
  /// Written by kernels: number of times that `fault` was written so far, after it.
  uint32_t faults;
  /// Written by kernels: the same number, before `fault` is written. Equal numbers around a read: the read is whole.
  uint32_t faults_begun;
  /// Written by kernels: `serial` << 32 | first call of the newest view in which a call has run. The kernel moves that first
  /// call on, so that it stays within 2^30 of the newest call. 0: no call has run.
  uint64_t in_force;
  /// Written by kernels: `MoeContext::unbuffered`.
  uint32_t unbuffered;
  /// Reserved, zero.
  uint32_t reserved2[25];
  /// Written by kernels: the newest fault.
  MoeFault fault;
  /// Written by the host, bit r: rank r has promised the change that is being prepared, so its clock stands still.
  uint32_t promised[32];
  /// Written by the host, bit r: do not wait for rank r.
  uint32_t suspects[32];
  /// Written by kernels, bit r: rank r is a suspect of this rank.
  uint32_t suspected[32];
};
static_assert(sizeof(MoeBoard) == 896 && alignof(MoeBoard) == 128);
static_assert(offsetof(MoeBoard, limit) == 0);
static_assert(offsetof(MoeBoard, refuse) == 4);
static_assert(offsetof(MoeBoard, preparing) == 8);
static_assert(offsetof(MoeBoard, reserved0) == 12);
static_assert(offsetof(MoeBoard, limited) == 16);
static_assert(offsetof(MoeBoard, alone) == 20);
static_assert(offsetof(MoeBoard, reserved1) == 24);
static_assert(offsetof(MoeBoard, started) == 128);
static_assert(offsetof(MoeBoard, finished) == 132);
static_assert(offsetof(MoeBoard, faults) == 136);
static_assert(offsetof(MoeBoard, faults_begun) == 140);
static_assert(offsetof(MoeBoard, in_force) == 144);
static_assert(offsetof(MoeBoard, unbuffered) == 152);
static_assert(offsetof(MoeBoard, reserved2) == 156);
static_assert(offsetof(MoeBoard, fault) == 256);
static_assert(offsetof(MoeBoard, promised) == 512);
static_assert(offsetof(MoeBoard, suspects) == 640);
static_assert(offsetof(MoeBoard, suspected) == 768);

/// A layer of any kind at one rank, as guards, waits for peers, beats, faults and signals need it. Device memory. It is the first
/// member of the context of its kind, so a pointer to the one is a pointer to the other.
struct alignas(64) LayerContext {
  /// The team whose QPs and windows the kernels use.
  TeamContext *team;
  /// State per peer, by rank.
  MoePeer *peers;
  /// `MoeView [MOE_VIEWS]`.
  MoeView *views;
  /// What peers write rows into. Signals go to a peer in the same way as rows: by a QP or by stores.
  Window data;
  /// Waiting times.
  MoeClock *clock;
  /// `MoeSignal [writer][kind * SETS + set]`.
  Window signals;
  /// Words shared with the host.
  MoeBoard *board;
  /// How signals are kept after data.
  MoeOrder order;
  /// Number of the first call that this rank has a part in.
  uint32_t joined;
  /// Number of the last call that began. The fields before it are constant; phases change it and those after it.
  uint32_t call;
  /// Newest closed call, by kind.
  uint32_t released[2];
  /// Words of the expected call that named another epoch.
  uint32_t foreign_epochs;
  /// By set: newest call that has ended with its last phase.
  uint32_t ended[2];
  /// Peers that the running phase has not settled.
  uint32_t waiting;
  /// 1: a call was held in vain. While the limit is `refused_limit`, further ones end when another rank has begun them.
  uint32_t refusing;
  /// The limit at which that was.
  uint32_t refused_limit;
  /// 1: the suspects or the members have changed since the board was written.
  uint32_t changed;
  /// The view of the last call that ran: place in `views`.
  uint32_t view;
  /// Its `serial`; 0: no call has run.
  uint32_t serial;
  /// Its first call, or a later one, as in `MoeBoard::in_force`.
  uint32_t first;
  /// The newest calls in a row that have ended `aborted`, at most SETS.
  uint32_t aborted;
  /// So many calls before the last one that began ended `aborted`: its dispatch says so again.
  uint32_t untold;
  /// Blocks that have ended the receive phase that runs.
  uint32_t left;
  /// The newest call that a peer was found to have passed by 2 * SETS calls, or one at least three before the last that began.
  uint32_t passed;
  /// Reserved, zero.
  uint32_t reserved0;
  /// When the phase that runs began, device clock.
  uint64_t began_ns;
  /// Reserved, zero.
  uint32_t reserved1[4];
};
static_assert(sizeof(LayerContext) == 192 && alignof(LayerContext) == 64);
static_assert(offsetof(LayerContext, team) == 0);
static_assert(offsetof(LayerContext, peers) == 8);
static_assert(offsetof(LayerContext, views) == 16);
static_assert(offsetof(LayerContext, data) == 24);
static_assert(offsetof(LayerContext, clock) == 48);
static_assert(offsetof(LayerContext, signals) == 56);
static_assert(offsetof(LayerContext, board) == 80);
static_assert(offsetof(LayerContext, order) == 88);
static_assert(offsetof(LayerContext, joined) == 92);
static_assert(offsetof(LayerContext, call) == 96);
static_assert(offsetof(LayerContext, released) == 100);
static_assert(offsetof(LayerContext, foreign_epochs) == 108);
static_assert(offsetof(LayerContext, ended) == 112);
static_assert(offsetof(LayerContext, waiting) == 120);
static_assert(offsetof(LayerContext, refusing) == 124);
static_assert(offsetof(LayerContext, refused_limit) == 128);
static_assert(offsetof(LayerContext, changed) == 132);
static_assert(offsetof(LayerContext, view) == 136);
static_assert(offsetof(LayerContext, serial) == 140);
static_assert(offsetof(LayerContext, first) == 144);
static_assert(offsetof(LayerContext, aborted) == 148);
static_assert(offsetof(LayerContext, untold) == 152);
static_assert(offsetof(LayerContext, left) == 156);
static_assert(offsetof(LayerContext, passed) == 160);
static_assert(offsetof(LayerContext, reserved0) == 164);
static_assert(offsetof(LayerContext, began_ns) == 168);
static_assert(offsetof(LayerContext, reserved1) == 176);

/// One MoE layer at one rank. Device memory; constant except for `layer` and the last two words.
struct alignas(128) MoeContext {
  /// What a layer of any kind has. Its `data` holds the slots: dispatch `[set][source][max_tokens]`, at `combine_slots` combine
  /// rows of the same shape.
  LayerContext layer;
  /// What the NIC sends from: dispatch `[buffers][max_tokens]`; at `combine_staging` combine rows
  /// `[set][source][max_tokens][rows of a received row]`; at `zero_copy` those that a caller writes.
  Window staging;
  /// Of the receive phase of dispatch that runs: rows of each local expert before each tile of 32 received rows, by tile of
  /// source: `[local experts][ranks][tiles]`. Null by rank.
  uint32_t *tiles;
  /// Offset of the combine rows in the slot window.
  uint64_t combine_slots;
  /// Offset of the combine rows in the staging window.
  uint64_t combine_staging;
  /// Bytes of a dispatch slot.
  uint64_t slot_bytes;
  /// Bytes of the token in a slot, without its scales.
  uint64_t row_bytes;
  /// Bytes of a combine row: `hidden` BF16.
  uint64_t combine_row_bytes;
  /// Offset in the staging window of the rows that a caller writes itself. By expert `[set][max_local_experts][ranks *
  /// max_tokens]`; by rank `combine_staging`.
  uint64_t zero_copy;
  /// Send buffers of dispatch, 2 to MOST_SEND_BUFFERS.
  uint32_t buffers;
  /// Expert slots that a rank has room for: length of the expert dimension of the outputs.
  uint32_t max_local_experts;
  /// Bytes of a slot before the token.
  uint32_t header_bytes;
  /// BF16 elements of a token.
  uint32_t hidden;
  /// Experts of all ranks.
  uint32_t experts;
  /// Choices of a token.
  uint32_t top_k;
  /// Most tokens of a rank in one call.
  uint32_t max_tokens;
  /// What a token is made of.
  MoeFormat format;
  /// Its scales, if `format` is fp8.
  MoeScales scales;
  /// Bytes of the scales of a token; 0: none.
  uint32_t scale_bytes;
  /// Offset of the scales in a slot.
  uint32_t scales_at;
  /// How dispatch lays out what it received.
  MoeLayout layout;
  /// What combine sends back.
  MoeReturns returns;
  /// Reserved, zero.
  uint32_t reserved0[7];
  /// The send buffer of the last dispatch that took one. Phases change this field and the next.
  uint32_t buffer;
  /// Calls so far that found no free send buffer in time. Wraps.
  uint32_t unbuffered;
  /// Reserved, zero.
  uint32_t reserved1[6];
};
static_assert(sizeof(MoeContext) == 384 && alignof(MoeContext) == 128);
static_assert(offsetof(MoeContext, layer) == 0);
static_assert(offsetof(MoeContext, staging) == 192);
static_assert(offsetof(MoeContext, tiles) == 216);
static_assert(offsetof(MoeContext, combine_slots) == 224);
static_assert(offsetof(MoeContext, combine_staging) == 232);
static_assert(offsetof(MoeContext, slot_bytes) == 240);
static_assert(offsetof(MoeContext, row_bytes) == 248);
static_assert(offsetof(MoeContext, combine_row_bytes) == 256);
static_assert(offsetof(MoeContext, zero_copy) == 264);
static_assert(offsetof(MoeContext, buffers) == 272);
static_assert(offsetof(MoeContext, max_local_experts) == 276);
static_assert(offsetof(MoeContext, header_bytes) == 280);
static_assert(offsetof(MoeContext, hidden) == 284);
static_assert(offsetof(MoeContext, experts) == 288);
static_assert(offsetof(MoeContext, top_k) == 292);
static_assert(offsetof(MoeContext, max_tokens) == 296);
static_assert(offsetof(MoeContext, format) == 300);
static_assert(offsetof(MoeContext, scales) == 304);
static_assert(offsetof(MoeContext, scale_bytes) == 308);
static_assert(offsetof(MoeContext, scales_at) == 312);
static_assert(offsetof(MoeContext, layout) == 316);
static_assert(offsetof(MoeContext, returns) == 320);
static_assert(offsetof(MoeContext, reserved0) == 324);
static_assert(offsetof(MoeContext, buffer) == 352);
static_assert(offsetof(MoeContext, unbuffered) == 356);
static_assert(offsetof(MoeContext, reserved1) == 360);

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
  /// 1: takes part in the call, by the view and by the caller's mask. Else 0: nothing is sent to it or awaited from it.
  uint32_t active;
  /// 1: member of the call's epoch. A member that is not active gets a word that nothing comes.
  uint32_t member;
  /// Why rows of it are missing.
  MoeCause cause;
  /// As `MoeFault::syndrome`.
  uint32_t syndrome;
  /// By kind: how long a phase has waited for it at most, from the begin of the phase, in units of 1,024 ns.
  uint32_t waited[2];
};
static_assert(sizeof(MoeHandlePeer) == 60 && alignof(MoeHandlePeer) == 4);
static_assert(offsetof(MoeHandlePeer, rows_sent) == 0);
static_assert(offsetof(MoeHandlePeer, dispatch_sent) == 4);
static_assert(offsetof(MoeHandlePeer, rows_received) == 8);
static_assert(offsetof(MoeHandlePeer, dispatch_received) == 12);
static_assert(offsetof(MoeHandlePeer, combine_sent) == 16);
static_assert(offsetof(MoeHandlePeer, combine_received) == 20);
static_assert(offsetof(MoeHandlePeer, rows_combined) == 24);
static_assert(offsetof(MoeHandlePeer, valid) == 28);
static_assert(offsetof(MoeHandlePeer, malformed) == 32);
static_assert(offsetof(MoeHandlePeer, active) == 36);
static_assert(offsetof(MoeHandlePeer, member) == 40);
static_assert(offsetof(MoeHandlePeer, cause) == 44);
static_assert(offsetof(MoeHandlePeer, syndrome) == 48);
static_assert(offsetof(MoeHandlePeer, waited) == 52);

/// The format of the tokens of a call, and their largest number. Neither is more than the slots of the layer hold.
struct MoeShape {
  /// Most tokens of a rank in the call.
  uint32_t max_tokens;
  /// What a token is made of.
  MoeFormat format;
  /// Its scales, if `format` is fp8.
  MoeScales scales;
  /// Bytes of the token in a slot, without its scales.
  uint32_t row_bytes;
  /// Bytes of its scales; 0: none.
  uint32_t scale_bytes;
  /// Offset of the scales in a slot.
  uint32_t scales_at;
  /// What the headers of its rows carry beside the number of the token, 16 bits: the same for equal shapes, 0 for the layer's.
  uint32_t tag;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(MoeShape) == 32 && alignof(MoeShape) == 4);
static_assert(offsetof(MoeShape, max_tokens) == 0);
static_assert(offsetof(MoeShape, format) == 4);
static_assert(offsetof(MoeShape, scales) == 8);
static_assert(offsetof(MoeShape, row_bytes) == 12);
static_assert(offsetof(MoeShape, scale_bytes) == 16);
static_assert(offsetof(MoeShape, scales_at) == 20);
static_assert(offsetof(MoeShape, tag) == 24);
static_assert(offsetof(MoeShape, reserved) == 28);

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
  /// The weight that the source gave the choice.
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
  /// Expert slots that this rank's tokens go to, NONE for none, LOST if no rank serves the choice: `[max_tokens][top_k]`.
  uint32_t *chosen;
  /// Weights of this rank's tokens: `[max_tokens][top_k]`.
  float *weights;
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
  /// 1: the phase cannot do its work, and sends the peers a word that says so.
  uint32_t stopped;
  /// 1: the call was held for too long: it has its number, and does nothing else.
  uint32_t aborted;
  /// Bit 0: a credit is missing and awaited, so that all peers get a word of what this rank has released. Bit 1: rows for some
  /// peer are not staged, since an HCA reads their place, or since the peer gets none.
  uint32_t tell;
  /// token << 32 | expert of the first choice that was refused; all ones if none was. For an id that 32 bits do not hold
  /// stands the nearest that they do.
  uint64_t refused;
  /// The view of the call: place in `LayerContext::views`.
  uint32_t view;
  /// Flags of its combine: COMBINE_*. Before the combine: COMBINE_NONE if the call has none.
  uint32_t combine_flags;
  /// Longest wait of each phase, ns: of those of dispatch, and from the send phase of combine on of those of combine.
  uint64_t deadline_ns;
  /// Why it is not complete.
  MoeFault fault;
  /// Its tokens.
  MoeShape shape;
  /// Bit b: an HCA read send buffer b when the dispatch began.
  uint32_t busy;
  /// The send buffer of the dispatch before this one, whose rows for this rank itself may still be read.
  uint32_t recent;
  /// The send buffer of the dispatch; NONE if none was free in time.
  uint32_t buffer;
  /// 1: the caller may write what combine sends into the layer's own memory.
  uint32_t offered;
  /// 1: a credit came for a peer whose rows are not staged yet.
  uint32_t landed;
  /// `MoeContext::unbuffered` when the dispatch had its buffer.
  uint32_t unbuffered;
  /// Reserved, zero.
  uint32_t reserved[18];
};
static_assert(sizeof(MoeHandle) == 512 && alignof(MoeHandle) == 128);
static_assert(offsetof(MoeHandle, peers) == 0);
static_assert(offsetof(MoeHandle, row_of) == 8);
static_assert(offsetof(MoeHandle, token_of) == 16);
static_assert(offsetof(MoeHandle, sources) == 24);
static_assert(offsetof(MoeHandle, picks) == 32);
static_assert(offsetof(MoeHandle, chosen) == 40);
static_assert(offsetof(MoeHandle, weights) == 48);
static_assert(offsetof(MoeHandle, call) == 56);
static_assert(offsetof(MoeHandle, epoch) == 60);
static_assert(offsetof(MoeHandle, tokens) == 64);
static_assert(offsetof(MoeHandle, stage) == 68);
static_assert(offsetof(MoeHandle, phase) == 72);
static_assert(offsetof(MoeHandle, in_turn) == 88);
static_assert(offsetof(MoeHandle, stopped) == 92);
static_assert(offsetof(MoeHandle, aborted) == 96);
static_assert(offsetof(MoeHandle, tell) == 100);
static_assert(offsetof(MoeHandle, refused) == 104);
static_assert(offsetof(MoeHandle, view) == 112);
static_assert(offsetof(MoeHandle, combine_flags) == 116);
static_assert(offsetof(MoeHandle, deadline_ns) == 120);
static_assert(offsetof(MoeHandle, fault) == 128);
static_assert(offsetof(MoeHandle, shape) == 384);
static_assert(offsetof(MoeHandle, busy) == 416);
static_assert(offsetof(MoeHandle, recent) == 420);
static_assert(offsetof(MoeHandle, buffer) == 424);
static_assert(offsetof(MoeHandle, offered) == 428);
static_assert(offsetof(MoeHandle, landed) == 432);
static_assert(offsetof(MoeHandle, unbuffered) == 436);
static_assert(offsetof(MoeHandle, reserved) == 440);

/// Send phase of dispatch. Cooperative launch.
struct DispatchSendParams {
  /// The layer.
  MoeContext *moe;
  /// The call.
  MoeHandle *handle;
  /// Tokens, 16-byte aligned: BF16 `[tokens, hidden]`, or FP8 with DISPATCH_QUANTIZED, or opaque `[tokens, row_bytes]`.
  uint8_t *x;
  /// Scales of quantized or opaque tokens: `[tokens, scale_bytes]`.
  uint8_t *x_scales;
  /// Choices `[tokens, top_k]`; -1 none. With DISPATCH_IDS_64 they are i64.
  int32_t *experts;
  /// Weights `[tokens, top_k]`; null: all are 1.
  float *weights;
  /// Ranks that take part as the caller sees it: `[ranks]`, 0 = not. Null: all members.
  uint32_t *active;
  /// Longest wait of each phase of this call, ns; 0: the layer's.
  uint64_t deadline_ns;
  /// Tokens of this call.
  uint32_t tokens;
  /// DISPATCH_* flags.
  uint32_t flags;
  /// Most tokens of a rank in this call. 0: the call has the shape of the layer, and the next four fields are not read.
  uint32_t max_tokens;
  /// What a token is made of.
  MoeFormat format;
  /// Its scales, if `format` is fp8.
  MoeScales scales;
  /// Bytes of the token in a slot, without its scales.
  uint32_t row_bytes;
  /// Bytes of its scales; 0: none.
  uint32_t scale_bytes;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(DispatchSendParams) == 96 && alignof(DispatchSendParams) == 8);
static_assert(offsetof(DispatchSendParams, moe) == 0);
static_assert(offsetof(DispatchSendParams, handle) == 8);
static_assert(offsetof(DispatchSendParams, x) == 16);
static_assert(offsetof(DispatchSendParams, x_scales) == 24);
static_assert(offsetof(DispatchSendParams, experts) == 32);
static_assert(offsetof(DispatchSendParams, weights) == 40);
static_assert(offsetof(DispatchSendParams, active) == 48);
static_assert(offsetof(DispatchSendParams, deadline_ns) == 56);
static_assert(offsetof(DispatchSendParams, tokens) == 64);
static_assert(offsetof(DispatchSendParams, flags) == 68);
static_assert(offsetof(DispatchSendParams, max_tokens) == 72);
static_assert(offsetof(DispatchSendParams, format) == 76);
static_assert(offsetof(DispatchSendParams, scales) == 80);
static_assert(offsetof(DispatchSendParams, row_bytes) == 84);
static_assert(offsetof(DispatchSendParams, scale_bytes) == 88);
static_assert(offsetof(DispatchSendParams, reserved) == 92);

/// Receive phase of dispatch. Cooperative launch.
struct DispatchReceiveParams {
  /// The layer.
  MoeContext *moe;
  /// The call.
  MoeHandle *handle;
  /// Output: tokens, with `max_tokens` of the call. By expert: `[max_local_experts, ranks * max_tokens, row_bytes]`, with the
  /// first `counts[e]` rows of each expert written. By rank: `[ranks, max_tokens, row_bytes]`, with the first `counts[r]`
  /// rows of each rank written.
  uint8_t *recv_x;
  /// Output: their scales. FP8 by expert, transposed: `[max_local_experts, scale words, ranks * max_tokens]` of 4 bytes each;
  /// else `[.., scale_bytes]` as `recv_x`.
  uint8_t *recv_scales;
  /// Output: rows of each local expert, or of each rank.
  uint32_t *counts;
  /// Output: the row of the source rank's input from which each row comes: `[max_local_experts, ranks * max_tokens]` or
  /// `[ranks, max_tokens]`.
  uint32_t *src_info;
  /// Output by expert: begin << 32 | count of the rows of each rank: `[max_local_experts, ranks]`.
  uint64_t *layout_range;
  /// Output by rank: local experts of each row, -1 none: `[ranks, max_tokens, top_k]`.
  int32_t *recv_experts;
  /// Output by rank: their weights: `[ranks, max_tokens, top_k]`.
  float *recv_weights;
  /// Added to: rows of each local expert so far: `[max_local_experts]`, with RECEIVE_STATS_32 of i32. Null: not kept.
  uint64_t *recv_stats;
  /// Added to: nanoseconds of the device's clock, not its cycles, waited for each rank: `[ranks]`. Null: not kept.
  uint64_t *wait_ns;
  /// Output: 1 for each rank whose rows arrived, 0 for those masked, late or in error: `[ranks]`. Null: not written.
  uint32_t *active;
  /// Output, if combine sends rows as they are: address of the memory from which the combine of this call sends. 0 if the
  /// caller may not write to it, since an HCA still reads it; the rows then go back from the caller's own memory. Null: not written.
  uint64_t *staging;
  /// RECEIVE_* flags.
  uint32_t flags;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(DispatchReceiveParams) == 112 && alignof(DispatchReceiveParams) == 8);
static_assert(offsetof(DispatchReceiveParams, moe) == 0);
static_assert(offsetof(DispatchReceiveParams, handle) == 8);
static_assert(offsetof(DispatchReceiveParams, recv_x) == 16);
static_assert(offsetof(DispatchReceiveParams, recv_scales) == 24);
static_assert(offsetof(DispatchReceiveParams, counts) == 32);
static_assert(offsetof(DispatchReceiveParams, src_info) == 40);
static_assert(offsetof(DispatchReceiveParams, layout_range) == 48);
static_assert(offsetof(DispatchReceiveParams, recv_experts) == 56);
static_assert(offsetof(DispatchReceiveParams, recv_weights) == 64);
static_assert(offsetof(DispatchReceiveParams, recv_stats) == 72);
static_assert(offsetof(DispatchReceiveParams, wait_ns) == 80);
static_assert(offsetof(DispatchReceiveParams, active) == 88);
static_assert(offsetof(DispatchReceiveParams, staging) == 96);
static_assert(offsetof(DispatchReceiveParams, flags) == 104);
static_assert(offsetof(DispatchReceiveParams, reserved) == 108);

/// Send phase of combine. Cooperative launch.
struct CombineSendParams {
  /// The layer.
  MoeContext *moe;
  /// The call.
  MoeHandle *handle;
  /// What the experts made of `recv_x`, BF16, in the same places; by rank: what is to be sent back, already weighted.
  uint16_t *y;
  /// With COMBINE_ZERO_COPY, in the shape of `y`: from where a call copies whose dispatch offered no staging memory
  /// (`DispatchReceiveParams::staging` 0). Null: such a combine is refused.
  uint16_t *copy_from;
  /// Longest wait of each phase of this combine, ns; 0: that of its dispatch.
  uint64_t deadline_ns;
  /// COMBINE_ZERO_COPY | COMBINE_UNWEIGHTED.
  uint32_t flags;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(CombineSendParams) == 48 && alignof(CombineSendParams) == 8);
static_assert(offsetof(CombineSendParams, moe) == 0);
static_assert(offsetof(CombineSendParams, handle) == 8);
static_assert(offsetof(CombineSendParams, y) == 16);
static_assert(offsetof(CombineSendParams, copy_from) == 24);
static_assert(offsetof(CombineSendParams, deadline_ns) == 32);
static_assert(offsetof(CombineSendParams, flags) == 40);
static_assert(offsetof(CombineSendParams, reserved) == 44);

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
  /// Weights `[tokens, top_k]` where rows of all experts come back; null: those of dispatch.
  float *weights;
  /// Added to: nanoseconds of the device's clock, not its cycles, waited for each rank: `[ranks]`. Null: not kept.
  uint64_t *wait_ns;
  /// Output: 1 for each rank whose rows were added, else 0: `[ranks]`. Null: not written.
  uint32_t *active;
  /// COMBINE_RENORMALISE | COMBINE_IN_PLACE.
  uint32_t flags;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(CombineReceiveParams) == 64 && alignof(CombineReceiveParams) == 8);
static_assert(offsetof(CombineReceiveParams, moe) == 0);
static_assert(offsetof(CombineReceiveParams, handle) == 8);
static_assert(offsetof(CombineReceiveParams, out) == 16);
static_assert(offsetof(CombineReceiveParams, token_valid) == 24);
static_assert(offsetof(CombineReceiveParams, weights) == 32);
static_assert(offsetof(CombineReceiveParams, wait_ns) == 40);
static_assert(offsetof(CombineReceiveParams, active) == 48);
static_assert(offsetof(CombineReceiveParams, flags) == 56);
static_assert(offsetof(CombineReceiveParams, reserved) == 60);

/// Dispatch in one launch. Cooperative.
struct DispatchParams {
  /// Its send phase.
  DispatchSendParams send;
  /// Its receive phase: same layer and handle.
  DispatchReceiveParams receive;
};
static_assert(sizeof(DispatchParams) == 208 && alignof(DispatchParams) == 8);
static_assert(offsetof(DispatchParams, send) == 0);
static_assert(offsetof(DispatchParams, receive) == 96);

/// Combine in one launch. Cooperative.
struct CombineParams {
  /// Its send phase.
  CombineSendParams send;
  /// Its receive phase: same layer and handle.
  CombineReceiveParams receive;
};
static_assert(sizeof(CombineParams) == 112 && alignof(CombineParams) == 8);
static_assert(offsetof(CombineParams, send) == 0);
static_assert(offsetof(CombineParams, receive) == 48);

/// Ends a call that has no combine. One warp.
struct AbandonParams {
  /// The layer.
  MoeContext *moe;
  /// The call.
  MoeHandle *handle;
};
static_assert(sizeof(AbandonParams) == 16 && alignof(AbandonParams) == 8);
static_assert(offsetof(AbandonParams, moe) == 0);
static_assert(offsetof(AbandonParams, handle) == 8);

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
  /// Expert slots of this rank.
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
