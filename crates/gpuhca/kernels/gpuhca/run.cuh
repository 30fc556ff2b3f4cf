// The passes of a block over its QPs.
#pragma once

#include <warpverbs/spin.cuh>

#include "serve.cuh"

namespace gpuhca {

/// What the threads of a block tell each other. After it in shared memory: a place for each
/// thread, with the entries that it found.
struct Found {
  uint32_t count;
  uint64_t generation;
  uint32_t qps;
  uint32_t ends;
  uint32_t reserved;
  Work work;
  /// For a defect that puts bytes off.
  Work late;
};

/// `SHARED_BYTES` of src/lib.rs.
static_assert(sizeof(Found) <= 8192);

/// Runs until the host or the deadline ends it. All threads of the grid.
template <Defect D>
WV_DEVICE void run(const GpuhcaParams& p) {
  WV_DYN_SHARED(Found, found);
  auto* const places = reinterpret_cast<uint32_t*>(found + 1);
  Work* const work = &found->work;
  Work* const late = &found->late;
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  const uint32_t blocks = wv::grid_blocks(), block = wv::block_in_grid();
  for (;;) {
    if (decides()) {
      found->generation = platform::load_relaxed_sys(&p.control->generation);
      found->qps = static_cast<uint32_t>(platform::load_relaxed_sys(&p.control->qps));
      if (found->qps > QPS) found->qps = QPS;
      found->ends = platform::load_relaxed_sys(&p.host->stop) != 0 || deadline.passed();
      // Acquire: the tables as they were when the host raised the generation. Pairs with the host's
      // writes in order.
      platform::fence_acquire_sys();
    }
    wv::block_sync();
    if (found->ends != 0) return;
    bool busy = false;
    const uint32_t stride = blocks * wv::block_threads();
    for (uint32_t first = block; first < found->qps; first += stride) {
      if (decides()) found->count = 0;
      wv::block_sync();
      const uint32_t place = first + blocks * wv::thread_in_block();
      if (place < found->qps && look(p, place).work) {
        places[atomicAdd(&found->count, 1u)] = place;
      }
      wv::block_sync();
      for (uint32_t i = 0; i < found->count; ++i) busy |= serve<D>(p, work, late, places[i]);
      wv::block_sync();
    }
    if (decides()) {
      // Release: every use of the tables in this pass before the host learns that it is over. Pairs
      // with the host's look.
      platform::fence_acq_rel_sys();
      platform::store_relaxed_sys(p.seen + block, found->generation);
      // On the CPU this wakes ranks that wait for what the pass has brought.
      if (busy) platform::store_mmio(&p.host->news, found->generation);
    }
    if (!busy) platform::pause();
    wv::block_sync();
  }
}

}  // namespace gpuhca
