// A plain copy of device memory by the whole grid, what the MoE kernels' traffic is held against;
// and the time of the device clock between two launches of a stream.
#include <warpverbs/coop.cuh>
#include <warpverbs/platform.cuh>

#include "abi.h"

namespace {

// Loads of 16 bytes that a thread has in flight, as the MoE kernels have.
constexpr uint64_t BATCH = 4;

}  // namespace

extern "C" __global__ void wv_bench_copy(wv::CopyBenchParams p) {
  using wv::platform::Vec16;
  const auto* const from = reinterpret_cast<const Vec16*>(p.from);
  auto* const to = reinterpret_cast<Vec16*>(p.to);
  const uint64_t stride = wv::grid_threads();
  for (uint64_t base = wv::thread_in_grid(); base < p.vectors; base += BATCH * stride) {
    Vec16 batch[BATCH];
    for (uint64_t k = 0; k < BATCH; ++k) {
      const uint64_t at = base + k * stride;
      batch[k] = from[at < p.vectors ? at : p.vectors - 1];
    }
    for (uint64_t k = 0; k < BATCH; ++k) {
      const uint64_t at = base + k * stride;
      if (at < p.vectors) to[at] = batch[k];
    }
  }
}
WV_EXPORT(wv_bench_copy)

extern "C" __global__ void wv_bench_stamp(wv::StampBenchParams p) {
  if (wv::thread_in_grid() == 0) *p.at = wv::platform::now_ns();
}
WV_EXPORT(wv_bench_stamp)
