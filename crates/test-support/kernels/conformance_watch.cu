// The peer of a conformance test: waits for signals and reads the data after them.
#include <warpverbs/wait.cuh>

#include "abi.h"

using wv::PutItem;
using wv::Status;

// Thread s waits for scope s's signal of each round, then looks at the words of that round's items.
// `batch` is the number of a scope's threads. Parameters otherwise as of the scope that puts; the
// words are those of a source in which word k of 8 bytes is (k + 1) * 0x9e3779b97f4a7c15.
extern "C" __global__ void wv_test_conformance_watch(wv::ConformanceParams p) {
  const uint32_t scope = wv::thread_in_grid(), scopes = wv::grid_threads();
  const auto* const signals = reinterpret_cast<const uint64_t*>(p.window.base + p.signal_offset);
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  wv::ConformanceEnd out{};
  for (uint32_t round = 0; out.status == Status::ok && round < p.rounds; ++round) {
    uint64_t seen;
    out.status = wv::wait_word(
        wv::Thread{}, signals + scope, {nullptr, nullptr}, deadline,
        [&](uint64_t word) { return word >= uint64_t{round} + 1; }, &seen);
    if (out.status != Status::ok) break;
    for (uint32_t thread = 0; thread < p.batch; ++thread) {
      const uint64_t number = (uint64_t{round} * scopes + scope) * p.batch + thread;
      if (number >= p.count) break;
      const PutItem item = p.items[number];
      const auto* const words = reinterpret_cast<const uint64_t*>(p.window.base + item.dst_offset);
      for (uint64_t k = 0; k < item.bytes / 8; ++k) {
        const uint64_t expected = (item.src_offset / 8 + k + 1) * 0x9e3779b97f4a7c15;
        if (words[k] != expected) ++out.done;
      }
    }
  }
  p.ends[scope] = out;
}
WV_EXPORT(wv_test_conformance_watch)
