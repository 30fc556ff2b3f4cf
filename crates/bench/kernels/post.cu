// What posting costs, without a NIC: puts into rings in device memory whose NIC is a sink
// (poster.cuh).
#include "poster.cuh"

using wv::Doorbell;
using wv::PostBenchParams;
using wv::Sharing;
using wv::Status;
using wv::Thread;
using wv::Warp;

namespace {

/// A QP of this library, as `poster` posts to it.
template <class Q, class Scope>
struct Queue {
  Q qp;
  wv::Ticket ticket{0};

  WV_DEVICE Status open(const PostBenchParams& p, uint32_t number) {
    return wv::open_qp(bench::context_at(p, number), &qp);
  }
  WV_DEVICE Status post(uint64_t at, uint32_t bytes, bool asks, wv::Deadline deadline) {
    const wv::Put put{{at, 0}, {at, 0}, bytes};
    const wv::Posted posted = wv::put(Scope{}, qp, put, {deadline, asks});
    ticket = posted.ticket;
    return posted.status;
  }
  WV_DEVICE Status wait(wv::Deadline deadline) { return wv::wait(Scope{}, qp, ticket, deadline); }
};

template <class Q>
WV_DEVICE void run_thread(const PostBenchParams& p) {
  bench::run<Queue<Q, Thread>>(p, Thread{}, wv::lane() == 0);
}
template <class Q>
WV_DEVICE void run_warp(const PostBenchParams& p) {
  bench::run<Queue<Q, Warp>>(p, Warp{}, true);
}

using Shared = wv::Qp<Sharing::shared>;
using Exclusive = wv::Qp<Sharing::exclusive>;
using SharedNoRecord = wv::Qp<Sharing::shared, Doorbell::no_record>;
using ExclusiveNoRecord = wv::Qp<Sharing::exclusive, Doorbell::no_record>;

template <Sharing S>
using Wide = wv::Qp<S, Doorbell::record, wv::Queues::device, wv::CqKind::wide>;

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

// With a CQ as long as the ring, as gpunetio has it. Each put asks for its CQE.
extern "C" __global__ void wv_bench_post_shared_wide_thread(PostBenchParams p) {
  run_thread<Wide<Sharing::shared>>(p);
}
WV_EXPORT(wv_bench_post_shared_wide_thread)

extern "C" __global__ void wv_bench_post_exclusive_wide_thread(PostBenchParams p) {
  run_thread<Wide<Sharing::exclusive>>(p);
}
WV_EXPORT(wv_bench_post_exclusive_wide_thread)
