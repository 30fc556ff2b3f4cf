// What single operations cost one thread of a GPU, each in a chain in which it waits for the one
// before where it has a result. One kernel for each: its name says which.
#include <warpverbs/coop.cuh>
#include <warpverbs/spin.cuh>

#include "abi.h"

using wv::PrimitiveParams;

namespace {

namespace platform = wv::platform;

/// Runs `op(value of the turn before, turn)` `p.count` times in the first thread.
template <class Op>
WV_DEVICE void measure(const PrimitiveParams& p, Op op) {
  if (wv::thread_in_grid() != 0) return;
  uint64_t value = 0;
  const uint64_t start = platform::now_ns();
  for (uint32_t turn = 0; turn < p.count; ++turn) value = op(value, turn);
  // Stored in front of the second look at the clock, which therefore waits for the last value.
  platform::store_relaxed(&p.time->value, value);
  p.time->start_ns = start;
  p.time->end_ns = platform::now_ns();
}

/// `p.stores` stores of 16 bytes, a line apart from the words of the other operations.
WV_DEVICE void store_some(const PrimitiveParams& p, uint32_t turn) {
  for (uint32_t store = 0; store < p.stores; ++store) {
    platform::store16(p.words + 16 + 2 * store, {turn, store});
  }
}

/// The same for `op()` after `p.stores` stores.
template <class Op>
WV_DEVICE void measure_behind_stores(const PrimitiveParams& p, Op op) {
  measure(p, [&](uint64_t, uint32_t turn) {
    store_some(p, turn);
    op();
    return uint64_t{0};
  });
}

}  // namespace

// The words hold zeros, so `words + value` is `words`, and no compiler knows.
extern "C" __global__ void wv_bench_atomic_gpu(PrimitiveParams p) {
  measure(p,
          [&](uint64_t value, uint32_t) { return platform::add_relaxed(p.words + value, value); });
}
WV_EXPORT(wv_bench_atomic_gpu)

extern "C" __global__ void wv_bench_atomic_sys(PrimitiveParams p) {
  measure(p, [&](uint64_t value, uint32_t) {
    return platform::add_relaxed_sys(p.words + value, value);
  });
}
WV_EXPORT(wv_bench_atomic_sys)

extern "C" __global__ void wv_bench_atomic_host(PrimitiveParams p) {
  measure(p, [&](uint64_t value, uint32_t) {
    return platform::add_relaxed_sys(p.host + value, value);
  });
}
WV_EXPORT(wv_bench_atomic_host)

extern "C" __global__ void wv_bench_load_gpu(PrimitiveParams p) {
  measure(p, [&](uint64_t value, uint32_t) { return platform::load_relaxed(p.words + value); });
}
WV_EXPORT(wv_bench_load_gpu)

extern "C" __global__ void wv_bench_load_sys(PrimitiveParams p) {
  measure(p, [&](uint64_t value, uint32_t) { return platform::load_relaxed_sys(p.words + value); });
}
WV_EXPORT(wv_bench_load_sys)

extern "C" __global__ void wv_bench_load_host(PrimitiveParams p) {
  measure(p, [&](uint64_t value, uint32_t) { return platform::load_relaxed_sys(p.host + value); });
}
WV_EXPORT(wv_bench_load_host)

extern "C" __global__ void wv_bench_mmio_store(PrimitiveParams p) {
  measure(p, [&](uint64_t, uint32_t turn) {
    platform::store_mmio(p.reg, uint64_t{turn});
    return uint64_t{0};
  });
}
WV_EXPORT(wv_bench_mmio_store)

// The stores alone, to be subtracted.
extern "C" __global__ void wv_bench_stores(PrimitiveParams p) {
  measure_behind_stores(p, [] {});
}
WV_EXPORT(wv_bench_stores)

extern "C" __global__ void wv_bench_fence_release_gpu(PrimitiveParams p) {
  measure_behind_stores(p, [] { platform::fence_release(); });
}
WV_EXPORT(wv_bench_fence_release_gpu)

extern "C" __global__ void wv_bench_fence_release_sys(PrimitiveParams p) {
  measure_behind_stores(p, [] { platform::fence_release_sys(); });
}
WV_EXPORT(wv_bench_fence_release_sys)

extern "C" __global__ void wv_bench_fence_acq_rel_gpu(PrimitiveParams p) {
  measure_behind_stores(p, [] { platform::fence_acq_rel(); });
}
WV_EXPORT(wv_bench_fence_acq_rel_gpu)

extern "C" __global__ void wv_bench_fence_acq_rel_sys(PrimitiveParams p) {
  measure_behind_stores(p, [] { platform::fence_acq_rel_sys(); });
}
WV_EXPORT(wv_bench_fence_acq_rel_sys)

// The smallest step of the clock that all measurements here read.
extern "C" __global__ void wv_bench_clock_step(PrimitiveParams p) {
  measure(p, [&](uint64_t least, uint32_t) {
    const uint64_t before = platform::now_ns();
    uint64_t after = before;
    while (after == before) after = platform::now_ns();
    const uint64_t step = after - before;
    return least == 0 || step < least ? step : least;
  });
}
WV_EXPORT(wv_bench_clock_step)

// Cooperative: all blocks meet `count` times.
extern "C" __global__ void wv_bench_grid_sync(PrimitiveParams p) {
  const uint64_t start = platform::now_ns();
  for (uint32_t turn = 0; turn < p.count; ++turn) wv::grid_sync();
  if (wv::thread_in_grid() != 0) return;
  p.time->start_ns = start;
  p.time->end_ns = platform::now_ns();
  p.time->value = p.count;
}
WV_EXPORT(wv_bench_grid_sync)

// Does nothing: what a launch costs. A launch of another grid than one block tells so by `value`.
extern "C" __global__ void wv_bench_nothing(PrimitiveParams p) {
  if (wv::thread_in_grid() == 0) p.time->value = wv::grid_blocks();
}
WV_EXPORT(wv_bench_nothing)

// Doorbells one after the other: each waits until the host has told in `host` that it has it.
extern "C" __global__ void wv_bench_ring_register(PrimitiveParams p) {
  if (wv::thread_in_grid() != 0) return;
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  const uint64_t start = platform::now_ns();
  uint64_t told = 0;
  for (uint32_t turn = 1; turn <= p.count; ++turn) {
    platform::store_mmio(p.reg, uint64_t{turn});
    const wv::Status status = wv::spin_until({nullptr, nullptr}, deadline, [&] {
      const bool seen = platform::load_relaxed_sys(p.host) == turn;
      return seen ? wv::Status::ok : wv::Status::would_block;
    });
    if (status != wv::Status::ok) break;
    told = turn;
  }
  p.time->start_ns = start;
  p.time->end_ns = platform::now_ns();
  p.time->value = told;
}
WV_EXPORT(wv_bench_ring_register)
