// Rendered from crates/bench/src/device/abi.rs; do not edit. Rewrite: UPDATE=1 cargo test -p wv --test abi_header.
#pragma once

#include <warpverbs/abi.h>

namespace wv {

/// Bytes from the structs that another project keeps of a QP to those of the next.
inline constexpr uint32_t BENCH_STATE_BYTES = 0x400;

/// How one poster did.
struct BenchTime {
  /// Device clock when all posters had come and this one began, ns.
  uint64_t start_ns;
  /// Device clock when its last post had returned, ns.
  uint64_t posted_ns;
  /// Device clock when its last ticket was done, ns.
  uint64_t done_ns;
  /// How it ended.
  Status status;
  /// Calls that succeeded.
  uint32_t calls;
};
static_assert(sizeof(BenchTime) == 32 && alignof(BenchTime) == 8);
static_assert(offsetof(BenchTime, start_ns) == 0);
static_assert(offsetof(BenchTime, posted_ns) == 8);
static_assert(offsetof(BenchTime, done_ns) == 16);
static_assert(offsetof(BenchTime, status) == 24);
static_assert(offsetof(BenchTime, calls) == 28);

/// What the sink has done for one QP.
struct alignas(128) BenchSink {
  /// Index up to which it has written CQEs.
  uint64_t served;
  /// WQEs that were not the one due when their doorbell was seen; counted if `PostBenchParams::check` is set.
  uint64_t wrong;
  /// How it ended.
  Status status;
  /// Reserved, zero.
  uint32_t reserved[27];
};
static_assert(sizeof(BenchSink) == 128 && alignof(BenchSink) == 128);
static_assert(offsetof(BenchSink, served) == 0);
static_assert(offsetof(BenchSink, wrong) == 8);
static_assert(offsetof(BenchSink, status) == 16);
static_assert(offsetof(BenchSink, reserved) == 20);

/// Posts puts into rings whose NIC is a sink: block 0 retires WQEs that were rung, every other block is a poster.
struct PostBenchParams {
  /// The contexts, `qp_stride` bytes apart. Poster p posts to QP p mod `qps`.
  QpContext *qp;
  /// Bytes from one context to the next.
  uint64_t qp_stride;
  /// What the sink keeps of each QP.
  BenchSink *sinks;
  /// What each poster measures.
  BenchTime *times;
  /// Posters that have come; zero before.
  uint64_t *gate;
  /// Deadline of the whole kernel, ns.
  uint64_t deadline_ns;
  /// Number of QPs.
  uint32_t qps;
  /// Calls of each poster.
  uint32_t calls;
  /// Every so many calls asks for a completion, and the last one; 0: only the last one.
  uint32_t signal_every;
  /// Bytes of a put, as its WQE says; no HCA reads or writes them.
  uint32_t bytes;
  /// WQEs that each QP gets.
  uint64_t wqes;
  /// What another project keeps of each QP, `BENCH_STATE_BYTES` apart; null where this library posts.
  uint8_t *state;
  /// Nonzero: the sink looks at every WQE whose doorbell it has seen.
  uint32_t check;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(PostBenchParams) == 88 && alignof(PostBenchParams) == 8);
static_assert(offsetof(PostBenchParams, qp) == 0);
static_assert(offsetof(PostBenchParams, qp_stride) == 8);
static_assert(offsetof(PostBenchParams, sinks) == 16);
static_assert(offsetof(PostBenchParams, times) == 24);
static_assert(offsetof(PostBenchParams, gate) == 32);
static_assert(offsetof(PostBenchParams, deadline_ns) == 40);
static_assert(offsetof(PostBenchParams, qps) == 48);
static_assert(offsetof(PostBenchParams, calls) == 52);
static_assert(offsetof(PostBenchParams, signal_every) == 56);
static_assert(offsetof(PostBenchParams, bytes) == 60);
static_assert(offsetof(PostBenchParams, wqes) == 64);
static_assert(offsetof(PostBenchParams, state) == 72);
static_assert(offsetof(PostBenchParams, check) == 80);
static_assert(offsetof(PostBenchParams, reserved) == 84);

/// A copy of device memory by the whole grid.
struct CopyBenchParams {
  /// 16-byte aligned.
  uint8_t *from;
  /// 16-byte aligned, elsewhere.
  uint8_t *to;
  /// Pieces of 16 bytes.
  uint64_t vectors;
};
static_assert(sizeof(CopyBenchParams) == 24 && alignof(CopyBenchParams) == 8);
static_assert(offsetof(CopyBenchParams, from) == 0);
static_assert(offsetof(CopyBenchParams, to) == 8);
static_assert(offsetof(CopyBenchParams, vectors) == 16);

/// When a chain of operations ran.
struct PrimitiveTime {
  /// Device clock before the first one, ns.
  uint64_t start_ns;
  /// Device clock after the last one, ns.
  uint64_t end_ns;
  /// What the last one gave.
  uint64_t value;
};
static_assert(sizeof(PrimitiveTime) == 24 && alignof(PrimitiveTime) == 8);
static_assert(offsetof(PrimitiveTime, start_ns) == 0);
static_assert(offsetof(PrimitiveTime, end_ns) == 8);
static_assert(offsetof(PrimitiveTime, value) == 16);

/// A chain of `count` operations of one thread.
struct PrimitiveParams {
  /// Device memory: a word that is zero, and 128 bytes after it the target of stores.
  uint64_t *words;
  /// A word of host memory.
  uint64_t *host;
  /// A register.
  uint64_t *reg;
  /// When it ran.
  PrimitiveTime *time;
  /// Deadline of waits, ns.
  uint64_t deadline_ns;
  /// Operations.
  uint32_t count;
  /// Stores of 16 bytes in front of each fence.
  uint32_t stores;
};
static_assert(sizeof(PrimitiveParams) == 48 && alignof(PrimitiveParams) == 8);
static_assert(offsetof(PrimitiveParams, words) == 0);
static_assert(offsetof(PrimitiveParams, host) == 8);
static_assert(offsetof(PrimitiveParams, reg) == 16);
static_assert(offsetof(PrimitiveParams, time) == 24);
static_assert(offsetof(PrimitiveParams, deadline_ns) == 32);
static_assert(offsetof(PrimitiveParams, count) == 40);
static_assert(offsetof(PrimitiveParams, stores) == 44);

/// The time of the device clock when all that was launched before in the stream has ended.
struct StampBenchParams {
  /// Where to store it, ns.
  uint64_t *at;
};
static_assert(sizeof(StampBenchParams) == 8 && alignof(StampBenchParams) == 8);
static_assert(offsetof(StampBenchParams, at) == 0);

}  // namespace wv
