// Rendered from src/abi by tests/docs/abi_header.rs; do not edit. Rewrite: UPDATE=1 cargo test --test abi_header.
#pragma once

#include <warpverbs/abi.h>

namespace wv {

/// Puts `count` words of 8 bytes from each thread; word k of thread t goes from `src` to `dst` at index t * count + k.
struct PutWordsParams {
  /// The QP that all threads share.
  QpContext *qp;
  /// Entry of the window at the peer.
  PeerEntry *peer;
  /// The window: local words at `src_offset`, remote words at `dst_offset`.
  Window window;
  /// Byte offset of the source words.
  uint64_t src_offset;
  /// Byte offset of the target words.
  uint64_t dst_offset;
  /// Deadline of each call, ns.
  uint64_t deadline_ns;
  /// Where thread t stores how it ended.
  Status *status;
  /// Where thread t stores its number of successful puts.
  uint32_t *done;
  /// Puts of each thread.
  uint32_t count;
  /// Every so many puts a thread waits for its ticket; 0: only after the last one.
  uint32_t wait_every;
};
static_assert(sizeof(PutWordsParams) == 88 && alignof(PutWordsParams) == 8);
static_assert(offsetof(PutWordsParams, qp) == 0);
static_assert(offsetof(PutWordsParams, peer) == 8);
static_assert(offsetof(PutWordsParams, window) == 16);
static_assert(offsetof(PutWordsParams, src_offset) == 40);
static_assert(offsetof(PutWordsParams, dst_offset) == 48);
static_assert(offsetof(PutWordsParams, deadline_ns) == 56);
static_assert(offsetof(PutWordsParams, status) == 64);
static_assert(offsetof(PutWordsParams, done) == 72);
static_assert(offsetof(PutWordsParams, count) == 80);
static_assert(offsetof(PutWordsParams, wait_every) == 84);

/// One put of a list.
struct PutItem {
  /// Byte offset in the local window.
  uint64_t src_offset;
  /// Byte offset in the window at the peer.
  uint64_t dst_offset;
  /// Length in bytes.
  uint64_t bytes;
};
static_assert(sizeof(PutItem) == 24 && alignof(PutItem) == 8);
static_assert(offsetof(PutItem, src_offset) == 0);
static_assert(offsetof(PutItem, dst_offset) == 8);
static_assert(offsetof(PutItem, bytes) == 16);

/// Puts the items of a list from warps: lane l of the grid takes items l, l + lanes, and so on.
struct PutListParams {
  /// The QP that all warps share.
  QpContext *qp;
  /// Entry of the window at the peer.
  PeerEntry *peer;
  /// The window at the peer that the items go to.
  Window window;
  /// The items of the list.
  PutItem *items;
  /// How many items.
  uint64_t count;
  /// Deadline of the whole kernel, ns.
  uint64_t deadline_ns;
  /// Where each thread stores how it ended.
  Status *status;
};
static_assert(sizeof(PutListParams) == 72 && alignof(PutListParams) == 8);
static_assert(offsetof(PutListParams, qp) == 0);
static_assert(offsetof(PutListParams, peer) == 8);
static_assert(offsetof(PutListParams, window) == 16);
static_assert(offsetof(PutListParams, items) == 40);
static_assert(offsetof(PutListParams, count) == 48);
static_assert(offsetof(PutListParams, deadline_ns) == 56);
static_assert(offsetof(PutListParams, status) == 64);

/// One side of a ping-pong by `put_signal`: one warp.
struct PingPongParams {
  /// The QP to the other side.
  QpContext *qp;
  /// Entry of the window at the other side.
  PeerEntry *peer;
  /// The window: source, target and signal at the offsets below, the same on both sides.
  Window window;
  /// Byte offset of the 32 source pieces.
  uint64_t src_offset;
  /// Byte offset of the 32 target pieces.
  uint64_t dst_offset;
  /// Byte offset of the 16-byte signal.
  uint64_t signal_offset;
  /// Deadline of the whole kernel, ns.
  uint64_t deadline_ns;
  /// Where the warp stores how it ended.
  Status *status;
  /// Where the warp stores how many words were not those of their round.
  uint32_t *mismatches;
  /// Rounds of the ping-pong.
  uint32_t rounds;
  /// 0: sends first. 1: answers.
  uint32_t side;
  /// 8-byte words that each lane sends.
  uint32_t words;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(PingPongParams) == 104 && alignof(PingPongParams) == 8);
static_assert(offsetof(PingPongParams, qp) == 0);
static_assert(offsetof(PingPongParams, peer) == 8);
static_assert(offsetof(PingPongParams, window) == 16);
static_assert(offsetof(PingPongParams, src_offset) == 40);
static_assert(offsetof(PingPongParams, dst_offset) == 48);
static_assert(offsetof(PingPongParams, signal_offset) == 56);
static_assert(offsetof(PingPongParams, deadline_ns) == 64);
static_assert(offsetof(PingPongParams, status) == 72);
static_assert(offsetof(PingPongParams, mismatches) == 80);
static_assert(offsetof(PingPongParams, rounds) == 88);
static_assert(offsetof(PingPongParams, side) == 92);
static_assert(offsetof(PingPongParams, words) == 96);
static_assert(offsetof(PingPongParams, reserved) == 100);

/// Waits for a ticket, or for a signal word that is nonzero.
struct WaitParams {
  /// The QP of the ticket.
  QpContext *qp;
  /// The signal word; null: the ticket is waited for.
  uint64_t *word;
  /// Ticket index.
  uint64_t ticket;
  /// Longest wait, in nanoseconds.
  uint64_t deadline_ns;
  /// Where thread t stores how it ended.
  Status *status;
};
static_assert(sizeof(WaitParams) == 40 && alignof(WaitParams) == 8);
static_assert(offsetof(WaitParams, qp) == 0);
static_assert(offsetof(WaitParams, word) == 8);
static_assert(offsetof(WaitParams, ticket) == 16);
static_assert(offsetof(WaitParams, deadline_ns) == 24);
static_assert(offsetof(WaitParams, status) == 32);

/// What one scope has seen while it put words under guards.
struct GuardSeen {
  /// Words that were put and waited for.
  uint32_t done;
  /// How often the peer was closed.
  uint32_t closed;
  /// How often a put or its wait ended otherwise than `ok`.
  uint32_t failed;
  /// Life of the QPs at the last guard.
  uint32_t life;
  /// How the last failure ended.
  Status failure;
  /// How the kernel ended.
  Status status;
  /// Ticket of the first word.
  uint64_t ticket;
};
static_assert(sizeof(GuardSeen) == 32 && alignof(GuardSeen) == 8);
static_assert(offsetof(GuardSeen, done) == 0);
static_assert(offsetof(GuardSeen, closed) == 4);
static_assert(offsetof(GuardSeen, failed) == 8);
static_assert(offsetof(GuardSeen, life) == 12);
static_assert(offsetof(GuardSeen, failure) == 16);
static_assert(offsetof(GuardSeen, status) == 20);
static_assert(offsetof(GuardSeen, ticket) == 24);

/// Threads that put words to one peer under guards, until they have put all or the test stops them.
struct GuardPutParams {
  /// The team of this rank.
  TeamContext *team;
  /// Local words at offset 0; remote words at `dst_offset`.
  Window window;
  /// Byte offset of the target words at the peer; word k of scope s goes to index s * count + k.
  uint64_t dst_offset;
  /// Deadline of the whole kernel, ns.
  uint64_t deadline_ns;
  /// Nonzero: stop. Host memory.
  uint32_t *stop;
  /// Where each scope stores what it has seen.
  GuardSeen *seen;
  /// The rank that gets the words.
  uint32_t peer;
  /// Number of the QP to it.
  uint32_t qp;
  /// Words of each scope; 0: hold one guard, post nothing, until `stop`.
  uint32_t count;
  /// Words under one guard; 0: one guard for all, refreshed before each word.
  uint32_t each;
  /// How often the words are put, one round after the other, unless `stop` comes before.
  uint32_t rounds;
  /// Zero.
  uint32_t reserved;
};
static_assert(sizeof(GuardPutParams) == 88 && alignof(GuardPutParams) == 8);
static_assert(offsetof(GuardPutParams, team) == 0);
static_assert(offsetof(GuardPutParams, window) == 8);
static_assert(offsetof(GuardPutParams, dst_offset) == 32);
static_assert(offsetof(GuardPutParams, deadline_ns) == 40);
static_assert(offsetof(GuardPutParams, stop) == 48);
static_assert(offsetof(GuardPutParams, seen) == 56);
static_assert(offsetof(GuardPutParams, peer) == 64);
static_assert(offsetof(GuardPutParams, qp) == 68);
static_assert(offsetof(GuardPutParams, count) == 72);
static_assert(offsetof(GuardPutParams, each) == 76);
static_assert(offsetof(GuardPutParams, rounds) == 80);
static_assert(offsetof(GuardPutParams, reserved) == 84);

/// `OpStep::options` bit: report the completion.
inline constexpr uint32_t OPS_SIGNALLED = 0x1;

/// `OpStep::options` bit: do not wait.
inline constexpr uint32_t OPS_TRY = 0x2;

/// `OpStep::options` bit: hold the doorbell back.
inline constexpr uint32_t OPS_MORE = 0x4;

/// `OpStep::options` bit: after earlier reads and atomics.
inline constexpr uint32_t OPS_FENCE = 0x8;

/// `OpStep::options` bit: `wait` for the ticket.
inline constexpr uint32_t OPS_WAIT = 0x10;

/// `OpStep::options` bit: `wait_data` for the ticket.
inline constexpr uint32_t OPS_WAIT_DATA = 0x20;

/// `OpStep::options` bit: a signal adds.
inline constexpr uint32_t OPS_ADD = 0x40;

/// An operation.
enum class OpKind : uint32_t {
  /// `put`.
  put = 0,
  /// `put_two`.
  put_two = 1,
  /// `put_value` of `OpStep::bytes`: words value, value + 1, and so on.
  put_value = 2,
  /// `signal` of `OpStep::bytes`, 4 or 8.
  signal = 3,
  /// `put_signal`, likewise.
  put_signal = 4,
  /// `get`.
  get = 5,
  /// `put_imm` with the low half of `OpItem::value`.
  put_imm = 6,
  /// `amo` number `OpStep::amo` on `OpStep::bytes`, 4 or 8.
  amo = 7,
  /// `flush`.
  flush = 8,
  /// `fence`.
  fence = 9,
  /// `quiet`.
  quiet = 10,
  /// `wait_imm` or `try_imm`.
  wait_imm = 11,
};

/// One call of one scope.
struct OpStep {
  /// What: an `OpKind`.
  OpKind kind;
  /// Bits OPS_SIGNALLED to OPS_ADD.
  uint32_t options;
  /// Place of the item of the scope's first thread.
  uint32_t first;
  /// How many threads take part.
  uint32_t count;
  /// Width of a value, signal or atomic.
  uint32_t bytes;
  /// Number of the atomic, in the order of `AmoOp`.
  uint32_t amo;
};
static_assert(sizeof(OpStep) == 24 && alignof(OpStep) == 4);
static_assert(offsetof(OpStep, kind) == 0);
static_assert(offsetof(OpStep, options) == 4);
static_assert(offsetof(OpStep, first) == 8);
static_assert(offsetof(OpStep, count) == 12);
static_assert(offsetof(OpStep, bytes) == 16);
static_assert(offsetof(OpStep, amo) == 20);

/// What one thread of a scope does in a step.
struct OpItem {
  /// Byte offset in the window at the peer.
  uint64_t remote;
  /// Byte offset in the local window; of an atomic ~0: the result is not wanted.
  uint64_t local;
  /// Length.
  uint64_t bytes;
  /// Byte offset of the second piece.
  uint64_t second;
  /// Length of the second piece.
  uint64_t second_bytes;
  /// Byte offset of the signal at the peer.
  uint64_t signal;
  /// Value of a signal, an atomic, an immediate.
  uint64_t value;
  /// What an atomic compares with.
  uint64_t compare;
};
static_assert(sizeof(OpItem) == 64 && alignof(OpItem) == 8);
static_assert(offsetof(OpItem, remote) == 0);
static_assert(offsetof(OpItem, local) == 8);
static_assert(offsetof(OpItem, bytes) == 16);
static_assert(offsetof(OpItem, second) == 24);
static_assert(offsetof(OpItem, second_bytes) == 32);
static_assert(offsetof(OpItem, signal) == 40);
static_assert(offsetof(OpItem, value) == 48);
static_assert(offsetof(OpItem, compare) == 56);

/// How a step ended.
struct OpResult {
  /// The call.
  Status posted;
  /// The status of the wait for its ticket, if the post was ok and the step asks for a wait.
  Status waited;
  /// Index of the ticket.
  uint64_t ticket;
  /// The immediate that was taken.
  uint32_t imm;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(OpResult) == 24 && alignof(OpResult) == 8);
static_assert(offsetof(OpResult, posted) == 0);
static_assert(offsetof(OpResult, waited) == 4);
static_assert(offsetof(OpResult, ticket) == 8);
static_assert(offsetof(OpResult, imm) == 16);
static_assert(offsetof(OpResult, reserved) == 20);

/// Each scope of the grid carries out its own steps, one after the other.
struct OpsParams {
  /// The QP that all share.
  QpContext *qp;
  /// Entry of the window at the peer.
  PeerEntry *peer;
  /// The window at the peer that steps write and read.
  Window window;
  /// The steps, scope by scope.
  OpStep *steps;
  /// The items that steps name.
  OpItem *items;
  /// How each step ended.
  OpResult *results;
  /// Steps of each scope.
  uint64_t steps_per_unit;
  /// Deadline of each call, ns.
  uint64_t deadline_ns;
};
static_assert(sizeof(OpsParams) == 80 && alignof(OpsParams) == 8);
static_assert(offsetof(OpsParams, qp) == 0);
static_assert(offsetof(OpsParams, peer) == 8);
static_assert(offsetof(OpsParams, window) == 16);
static_assert(offsetof(OpsParams, steps) == 40);
static_assert(offsetof(OpsParams, items) == 48);
static_assert(offsetof(OpsParams, results) == 56);
static_assert(offsetof(OpsParams, steps_per_unit) == 64);
static_assert(offsetof(OpsParams, deadline_ns) == 72);

/// One warp puts words by all QPs to a peer and waits for all of them, or for one after the other.
struct OpsSeveralParams {
  /// The team of this rank.
  TeamContext *team;
  /// The window; words from offset 0.
  Window window;
  /// Byte offset of the target words.
  uint64_t dst_offset;
  /// Deadline of the whole kernel, ns.
  uint64_t deadline_ns;
  /// Where the warp stores how it ended.
  Status *status;
  /// By QP: how its word ended, with mode 2.
  Status *ended;
  /// By QP: in which round, with mode 2.
  uint32_t *order;
  /// The rank that gets the words.
  uint32_t peer;
  /// 0: quiet of the team. 1: of the peer. 2: `wait_any`.
  uint32_t mode;
  /// Words that each lane puts by each QP.
  uint32_t count;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(OpsSeveralParams) == 88 && alignof(OpsSeveralParams) == 8);
static_assert(offsetof(OpsSeveralParams, team) == 0);
static_assert(offsetof(OpsSeveralParams, window) == 8);
static_assert(offsetof(OpsSeveralParams, dst_offset) == 32);
static_assert(offsetof(OpsSeveralParams, deadline_ns) == 40);
static_assert(offsetof(OpsSeveralParams, status) == 48);
static_assert(offsetof(OpsSeveralParams, ended) == 56);
static_assert(offsetof(OpsSeveralParams, order) == 64);
static_assert(offsetof(OpsSeveralParams, peer) == 72);
static_assert(offsetof(OpsSeveralParams, mode) == 76);
static_assert(offsetof(OpsSeveralParams, count) == 80);
static_assert(offsetof(OpsSeveralParams, reserved) == 84);

/// Writes one WQE of each format into a ring, without posting; see `ops_wqe.cu` for the operands.
struct OpsWqeParams {
  /// The QP whose ring gets the WQEs.
  QpContext *qp;
  /// Index of the first WQE; each has two WQEBBs.
  uint64_t index;
  /// Bit 0: signalled. Bit 1: fenced.
  uint32_t flags;
  /// Zero.
  uint32_t reserved;
  /// Where the thread stores how it ended.
  Status *status;
};
static_assert(sizeof(OpsWqeParams) == 32 && alignof(OpsWqeParams) == 8);
static_assert(offsetof(OpsWqeParams, qp) == 0);
static_assert(offsetof(OpsWqeParams, index) == 8);
static_assert(offsetof(OpsWqeParams, flags) == 16);
static_assert(offsetof(OpsWqeParams, reserved) == 20);
static_assert(offsetof(OpsWqeParams, status) == 24);

/// Calls that never poll: each scope makes `calls` of one kind on one QP.
struct NoPollParams {
  /// The team of this rank.
  TeamContext *team;
  /// Source at offset 0, 8 bytes for each thread; target of the same offset after `dst_offset`.
  Window window;
  /// Byte offset of the targets at the peer.
  uint64_t dst_offset;
  /// Where each thread stores how its last call ended.
  Status *status;
  /// The rank at the other end of the QP.
  uint32_t peer;
  /// Number of the QP to it.
  uint32_t qp;
  /// 0 put, 1 put_signal, 2 signal, 3 fence; 4: waits until the QP is quiet.
  uint32_t op;
  /// Calls of each scope.
  uint32_t calls;
  /// Threads of a scope that are active, from the first on.
  uint32_t active;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(NoPollParams) == 72 && alignof(NoPollParams) == 8);
static_assert(offsetof(NoPollParams, team) == 0);
static_assert(offsetof(NoPollParams, window) == 8);
static_assert(offsetof(NoPollParams, dst_offset) == 32);
static_assert(offsetof(NoPollParams, status) == 40);
static_assert(offsetof(NoPollParams, peer) == 48);
static_assert(offsetof(NoPollParams, qp) == 52);
static_assert(offsetof(NoPollParams, op) == 56);
static_assert(offsetof(NoPollParams, calls) == 60);
static_assert(offsetof(NoPollParams, active) == 64);
static_assert(offsetof(NoPollParams, reserved) == 68);

/// `ConformanceParams::operation`: nothing.
inline constexpr uint32_t CONFORMANCE_NOTHING = 0x0;

/// put: each thread of a scope its own item.
inline constexpr uint32_t CONFORMANCE_PUT = 0x1;

/// put_value of the item's 4, 12 or 28 bytes, which the kernel knows.
inline constexpr uint32_t CONFORMANCE_PUT_VALUE = 0x2;

/// put_signal: items, and the number of the round after them.
inline constexpr uint32_t CONFORMANCE_PUT_SIGNAL = 0x3;

/// signal: the number of the round.
inline constexpr uint32_t CONFORMANCE_SIGNAL = 0x4;

/// `wv::flush` on the QP.
inline constexpr uint32_t CONFORMANCE_FLUSH = 0x5;

/// `wv::fence` on the QP.
inline constexpr uint32_t CONFORMANCE_FENCE = 0x6;

/// One batch of `batch` NOPs.
inline constexpr uint32_t CONFORMANCE_BATCH = 0x7;

/// Put of an item of which no thread of the scope is active.
inline constexpr uint32_t CONFORMANCE_NOBODY = 0x8;

/// get: from the item's place at the peer to its local place.
inline constexpr uint32_t CONFORMANCE_GET = 0x9;

/// put_two: the two halves of the item.
inline constexpr uint32_t CONFORMANCE_PUT_TWO = 0xa;

/// amo fetch_add of the item's number plus 1 to 8 bytes at the peer; the old value goes to the item's local place.
inline constexpr uint32_t CONFORMANCE_ADD = 0xb;

/// signal that adds 1.
inline constexpr uint32_t CONFORMANCE_SIGNAL_ADD = 0xc;

/// amo number `batch`, in the order of `AmoOp`, on the item's 4 or 8 bytes at the peer, with the value ~number of the item.
/// Every other comparison is with what a source has at that offset. The old value goes to the item's local place. From here on
/// the code that looks at the mode bits.
inline constexpr uint32_t CONFORMANCE_AMO = 0xd;

/// put_imm: items, and the number of each.
inline constexpr uint32_t CONFORMANCE_PUT_IMM = 0xe;

/// wait_imm, or try_imm: an immediate is the number of an item, whose words must have arrived; word `imm` of the window
/// counts it.
inline constexpr uint32_t CONFORMANCE_TAKE_IMM = 0xf;

/// `ConformanceParams::end`: nothing.
inline constexpr uint32_t CONFORMANCE_END_NOTHING = 0x0;

/// Wait for the last ticket.
inline constexpr uint32_t CONFORMANCE_END_WAIT = 0x1;

/// Flush, and wait for its ticket.
inline constexpr uint32_t CONFORMANCE_END_FLUSH = 0x2;

/// `wv::quiet` on the QP.
inline constexpr uint32_t CONFORMANCE_END_QUIET = 0x3;

/// Test for the last ticket until it is not `would_block` or the deadline has passed.
inline constexpr uint32_t CONFORMANCE_END_TEST = 0x4;

/// One `wv::test` for the last ticket, without a wait.
inline constexpr uint32_t CONFORMANCE_END_TEST_ONCE = 0x5;

/// wait_data for the last ticket.
inline constexpr uint32_t CONFORMANCE_END_WAIT_DATA = 0x6;

/// wait_word for a local signal word that is not 0, with the QP's watch.
inline constexpr uint32_t CONFORMANCE_END_WAIT_SIGNAL = 0x7;

/// wait_any for the last two tickets until both are done.
inline constexpr uint32_t CONFORMANCE_END_WAIT_ANY = 0x8;

/// `ConformanceParams::options` bit: unsignalled.
inline constexpr uint32_t CONFORMANCE_UNSIGNALLED = 0x1;

/// `ConformanceParams::options` bit: the call never waits.
inline constexpr uint32_t CONFORMANCE_TRY = 0x2;

/// `ConformanceParams::options` bit: the doorbell may be held back.
inline constexpr uint32_t CONFORMANCE_MORE = 0x4;

/// `ConformanceParams::options` bit: `end` takes place whatever the operation returned, for the ticket of the parameters
/// if no operation was `ok`.
inline constexpr uint32_t CONFORMANCE_END_ALWAYS = 0x8;

/// How a scope ended.
struct ConformanceEnd {
  /// What the last operation returned.
  Status posted;
  /// What `end` returned.
  Status status;
  /// Operations that were `ok`; of a watcher, words that were wrong.
  uint32_t done;
  /// Whether the last ticket said that its doorbell was held back.
  uint32_t held;
  /// The last ticket.
  uint64_t ticket;
  /// Device time from the begin of the last operation to its return, ns.
  uint64_t post_ns;
  /// Device time that `end` took, ns.
  uint64_t end_ns;
};
static_assert(sizeof(ConformanceEnd) == 40 && alignof(ConformanceEnd) == 8);
static_assert(offsetof(ConformanceEnd, posted) == 0);
static_assert(offsetof(ConformanceEnd, status) == 4);
static_assert(offsetof(ConformanceEnd, done) == 8);
static_assert(offsetof(ConformanceEnd, held) == 12);
static_assert(offsetof(ConformanceEnd, ticket) == 16);
static_assert(offsetof(ConformanceEnd, post_ns) == 24);
static_assert(offsetof(ConformanceEnd, end_ns) == 32);

/// Each scope carries out `operation` `rounds` times or until it fails, then `end`.
struct ConformanceParams {
  /// The QP that all scopes post to.
  QpContext *qp;
  /// Entry of the window at the peer.
  PeerEntry *peer;
  /// The window at the peer that operations write and read.
  Window window;
  /// Thread t of all scopes' threads takes item round * threads + t, if that is below `count`.
  PutItem *items;
  /// How many items.
  uint64_t count;
  /// Byte offset of the scopes' signal words, 8 bytes each.
  uint64_t signal_offset;
  /// Ticket that `end` takes if no operation was `ok`.
  uint64_t ticket;
  /// Deadline of each call, ns.
  uint64_t deadline_ns;
  /// Where each scope stores how it ended.
  ConformanceEnd *ends;
  /// Bits of the QP's mode: which code is to run.
  uint32_t mode;
  /// A constant CONFORMANCE_*.
  uint32_t operation;
  /// A constant CONFORMANCE_END_*.
  uint32_t end;
  /// Bits CONFORMANCE_UNSIGNALLED to CONFORMANCE_END_ALWAYS.
  uint32_t options;
  /// Times.
  uint32_t rounds;
  /// WQEBBs of a batch; number of an atomic.
  uint32_t batch;
};
static_assert(sizeof(ConformanceParams) == 112 && alignof(ConformanceParams) == 8);
static_assert(offsetof(ConformanceParams, qp) == 0);
static_assert(offsetof(ConformanceParams, peer) == 8);
static_assert(offsetof(ConformanceParams, window) == 16);
static_assert(offsetof(ConformanceParams, items) == 40);
static_assert(offsetof(ConformanceParams, count) == 48);
static_assert(offsetof(ConformanceParams, signal_offset) == 56);
static_assert(offsetof(ConformanceParams, ticket) == 64);
static_assert(offsetof(ConformanceParams, deadline_ns) == 72);
static_assert(offsetof(ConformanceParams, ends) == 80);
static_assert(offsetof(ConformanceParams, mode) == 88);
static_assert(offsetof(ConformanceParams, operation) == 92);
static_assert(offsetof(ConformanceParams, end) == 96);
static_assert(offsetof(ConformanceParams, options) == 100);
static_assert(offsetof(ConformanceParams, rounds) == 104);
static_assert(offsetof(ConformanceParams, batch) == 108);

}  // namespace wv
