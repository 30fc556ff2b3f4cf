// What posting costs, without a NIC: puts into rings in device memory whose NIC is a sink.
//
// Block 0 is the sink. It takes doorbells from the registers (words of device or host memory here)
// and answers each with a CQE, as a NIC does, but fetches no payload and sends nothing. Every other
// block is one poster: a thread, or a warp of 32 puts behind one doorbell.
#include <warpverbs/wait.cuh>

#include "abi.h"

using wv::BenchSink;
using wv::BenchTime;
using wv::Doorbell;
using wv::PostBenchParams;
using wv::QpContext;
using wv::Sharing;
using wv::Status;
using wv::Thread;
using wv::Warp;

namespace {

namespace platform = wv::platform;

WV_DEVICE QpContext* context_at(const PostBenchParams& p, uint32_t qp) {
  return reinterpret_cast<QpContext*>(reinterpret_cast<uint8_t*>(p.qp) + qp * p.qp_stride);
}

/// Counts WQEs of [from, to) in the ring that do not carry their index.
WV_DEVICE uint64_t wrong_wqes(const QpContext* context, uint64_t from, uint64_t to) {
  // Acquire. Pairs with the release fence in front of the doorbell that the caller has seen.
  platform::fence_acquire_sys();
  uint64_t wrong = 0;
  for (uint64_t index = from; index < to; ++index) {
    const auto* wqe = reinterpret_cast<const uint32_t*>(context->sq + (index & context->mask) * 64);
    const uint32_t control = platform::byteswap(platform::load_relaxed(wqe));
    if ((control >> 8 & 0xffff) != (index & 0xffff)) ++wrong;
  }
  return wrong;
}

/// Looks at the doorbell of one QP once, and completes what it rings.
WV_DEVICE void serve_once(const PostBenchParams& p, uint32_t qp) {
  QpContext* const context = context_at(p, qp);
  BenchSink& sink = p.sinks[qp];
  const uint64_t word = platform::load_relaxed_sys(context->doorbell);
  const auto end = static_cast<uint16_t>(platform::byteswap(static_cast<uint32_t>(word)) >> 8);
  const auto ahead = static_cast<uint16_t>(end - static_cast<uint16_t>(sink.served));
  // An older doorbell may land late.
  if (ahead == 0 || ahead > context->depth) return;
  if (p.check != 0) sink.wrong += wrong_wqes(context, sink.served, sink.served + ahead);
  sink.served += ahead;
  // wqe_counter of the last one, signature 0, opcode 0 (a send queue's), owner 0.
  const auto counter = static_cast<uint16_t>(sink.served - 1);
  auto* const last = reinterpret_cast<uint32_t*>(context->cqe + wv::cq::LAST_DWORD);
  platform::store_relaxed_sys(last, uint32_t{platform::byteswap(counter)});
}

/// One lane of the sink: QPs lane, lane + 32, and so on.
WV_DEVICE void sink(const PostBenchParams& p, wv::Deadline deadline) {
  const Status status = wv::spin_until({nullptr, nullptr}, deadline, [&] {
    bool ended = true;
    for (uint32_t qp = wv::lane(); qp < p.qps; qp += 32) {
      if (p.sinks[qp].served >= p.wqes) continue;
      serve_once(p, qp);
      ended = false;
    }
    return ended ? Status::ok : Status::would_block;
  });
  for (uint32_t qp = wv::lane(); qp < p.qps; qp += 32) p.sinks[qp].status = status;
}

/// One poster. With a warp, each call posts 32 puts.
template <class Q, class Scope>
WV_DEVICE void poster(const PostBenchParams& p, Scope scope, wv::Deadline deadline) {
  const uint32_t self = wv::block_in_grid() - 1;
  const uint32_t posters = wv::grid_blocks() - 1;
  Q qp;
  Status status = wv::open_qp(context_at(p, self % p.qps), &qp);
  BenchTime time{};
  // Everybody starts when the last one has come.
  if (scope.leader()) platform::reduce_add(p.gate, uint64_t{1});
  if (status == Status::ok) {
    status = wv::spin_until({nullptr, nullptr}, deadline, [&] {
      const bool here = platform::load_relaxed(p.gate) >= posters;
      return here ? Status::ok : Status::would_block;
    });
  }
  // Addresses that nobody uses; each lane its own.
  const uint64_t at = 0x10000 + (uint64_t{wv::thread_in_grid()} << 32);
  const wv::Put put{{at, 0}, {at, 0}, p.bytes};
  wv::Ticket ticket{0};
  time.start_ns = platform::now_ns();
  for (uint32_t call = 0; call < p.calls && status == Status::ok; ++call) {
    const bool last = call + 1 == p.calls;
    const bool asks = last || (p.signal_every != 0 && (call + 1) % p.signal_every == 0);
    const wv::Posted posted = wv::put(scope, qp, put, {deadline, asks});
    status = posted.status;
    ticket = posted.ticket;
    if (status == Status::ok) ++time.calls;
  }
  time.posted_ns = platform::now_ns();
  if (status == Status::ok) status = wv::wait(scope, qp, ticket, deadline);
  time.done_ns = platform::now_ns();
  time.status = status;
  if (scope.leader()) p.times[self] = time;
}

/// Blocks of one warp.
template <class Q, class Scope>
WV_DEVICE void run(const PostBenchParams& p, Scope scope, bool posts) {
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  if (wv::block_in_grid() == 0) {
    sink(p, deadline);
  } else if (posts) {
    poster<Q>(p, scope, deadline);
  }
}

template <class Q>
WV_DEVICE void run_thread(const PostBenchParams& p) {
  run<Q>(p, Thread{}, wv::lane() == 0);
}
template <class Q>
WV_DEVICE void run_warp(const PostBenchParams& p) {
  run<Q>(p, Warp{}, true);
}

using Shared = wv::Qp<Sharing::shared>;
using Exclusive = wv::Qp<Sharing::exclusive>;
using SharedNoRecord = wv::Qp<Sharing::shared, Doorbell::no_record>;
using ExclusiveNoRecord = wv::Qp<Sharing::exclusive, Doorbell::no_record>;

}  // namespace

extern "C" __global__ void wv_bench_post_shared_thread(PostBenchParams p) { run_thread<Shared>(p); }
WV_EXPORT(wv_bench_post_shared_thread)

extern "C" __global__ void wv_bench_post_shared_warp(PostBenchParams p) { run_warp<Shared>(p); }
WV_EXPORT(wv_bench_post_shared_warp)

extern "C" __global__ void wv_bench_post_exclusive_thread(PostBenchParams p) {
  run_thread<Exclusive>(p);
}
WV_EXPORT(wv_bench_post_exclusive_thread)

extern "C" __global__ void wv_bench_post_exclusive_warp(PostBenchParams p) {
  run_warp<Exclusive>(p);
}
WV_EXPORT(wv_bench_post_exclusive_warp)

// Without a doorbell record: one fence less for each doorbell.
extern "C" __global__ void wv_bench_post_shared_no_record_thread(PostBenchParams p) {
  run_thread<SharedNoRecord>(p);
}
WV_EXPORT(wv_bench_post_shared_no_record_thread)

extern "C" __global__ void wv_bench_post_shared_no_record_warp(PostBenchParams p) {
  run_warp<SharedNoRecord>(p);
}
WV_EXPORT(wv_bench_post_shared_no_record_warp)

extern "C" __global__ void wv_bench_post_exclusive_no_record_thread(PostBenchParams p) {
  run_thread<ExclusiveNoRecord>(p);
}
WV_EXPORT(wv_bench_post_exclusive_no_record_thread)

extern "C" __global__ void wv_bench_post_exclusive_no_record_warp(PostBenchParams p) {
  run_warp<ExclusiveNoRecord>(p);
}
WV_EXPORT(wv_bench_post_exclusive_no_record_warp)
