// A plain copy of device memory by the whole grid: what the MoE kernels' traffic is held against.
#include <warpverbs/coop.cuh>
#include <warpverbs/platform.cuh>

#include "abi.h"

extern "C" __global__ void wv_bench_copy(wv::CopyBenchParams p) {
  using wv::platform::Vec16;
  const auto* const from = reinterpret_cast<const Vec16*>(p.from);
  auto* const to = reinterpret_cast<Vec16*>(p.to);
  const uint64_t stride = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = wv::thread_in_grid(); i < p.vectors; i += stride) to[i] = from[i];
}
WV_EXPORT(wv_bench_copy)
