// One launch of a measurement of posting: block 0 is the sink, every other block is one poster.
//
// The sink stands for a NIC. It takes doorbells from the registers, which are words of device or
// host memory here. It answers each with CQEs, as a NIC does, but fetches no payload and sends
// nothing. A poster is a thread, or a warp of 32 puts after one doorbell, and posts through a
// `Queue`:
//
//   Status open(const PostBenchParams&, uint32_t qp);
//   Status post(uint64_t at, uint32_t bytes, bool asks, Deadline);  // asks: for a completion
//   Status wait(Deadline);                                          // for the last post
#pragma once

#include <warpverbs/wait.cuh>

#include "abi.h"

namespace bench {

namespace platform = wv::platform;
using wv::BenchSink;
using wv::BenchTime;
using wv::PostBenchParams;
using wv::QpContext;
using wv::Status;

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

/// Writes the last dword of the CQE of WQE `index` at `cqe`: its counter, signature 0, opcode 0 (a
/// send queue's), and the owner bit.
WV_DEVICE void complete(uint8_t* cqe, uint64_t index, bool odd_lap) {
  const auto counter = static_cast<uint16_t>(index);
  const uint32_t owner = odd_lap ? wv::cq::OWNER_BIT : 0;
  auto* const last = reinterpret_cast<uint32_t*>(cqe + wv::cq::LAST_DWORD);
  platform::store_relaxed_sys(last, owner | platform::byteswap(counter));
}

/// Completes the WQEs of [from, to): by the one CQE, or each by its own where the CQ is as long as
/// the ring.
WV_DEVICE void complete_all(const QpContext* context, uint64_t from, uint64_t to) {
  if ((context->mode & wv::MODE_WIDE_CQ) == 0) return complete(context->cqe, to - 1, false);
  for (uint64_t index = from; index < to; ++index) {
    uint8_t* const cqe = context->cqe + (index & context->mask) * wv::cq::CQE_BYTES;
    complete(cqe, index, (index & context->depth) != 0);
  }
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
  const uint64_t from = sink.served, to = from + ahead;
  if (p.check != 0) sink.wrong += wrong_wqes(context, from, to);
  sink.served = to;
  complete_all(context, from, to);
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
template <class Queue, class Scope>
WV_DEVICE void poster(const PostBenchParams& p, Scope scope, wv::Deadline deadline) {
  const uint32_t self = wv::block_in_grid() - 1;
  const uint32_t posters = wv::grid_blocks() - 1;
  Queue queue;
  Status status = queue.open(p, self % p.qps);
  BenchTime time{};
  // Everybody starts when the last one has come.
  if (scope.leader()) platform::reduce_add(p.gate, uint64_t{1});
  if (status == Status::ok) {
    status = wv::spin_until({nullptr, nullptr}, deadline, [&] {
      const bool here = platform::load_relaxed(p.gate) >= posters;
      return here ? Status::ok : Status::would_block;
    });
  }
  // Addresses that no other code uses; each lane has its own.
  const uint64_t at = 0x10000 + (uint64_t{wv::thread_in_grid()} << 32);
  time.start_ns = platform::now_ns();
  for (uint32_t call = 0; call < p.calls && status == Status::ok; ++call) {
    const bool last = call + 1 == p.calls;
    const bool asks = last || (p.signal_every != 0 && (call + 1) % p.signal_every == 0);
    status = queue.post(at, p.bytes, asks, deadline);
    if (status == Status::ok) ++time.calls;
  }
  time.posted_ns = platform::now_ns();
  if (status == Status::ok) status = queue.wait(deadline);
  time.done_ns = platform::now_ns();
  time.status = status;
  if (scope.leader()) p.times[self] = time;
}

/// Blocks of one warp.
template <class Queue, class Scope>
WV_DEVICE void run(const PostBenchParams& p, Scope scope, bool posts) {
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  if (wv::block_in_grid() == 0) {
    sink(p, deadline);
  } else if (posts) {
    poster<Queue>(p, scope, deadline);
  }
}

}  // namespace bench
