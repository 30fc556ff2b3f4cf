// What the adapters to other projects share. An adapter is one file of ours that includes a
// project's headers and exports three kernels:
//
//   wv_other_NAME_open       makes the project's structs of each QP in PostBenchParams::state; they
//                            name the ring, record and register that our context names
//   wv_other_NAME_shared     posts through the project's own function, all blocks to one QP
//   wv_other_NAME_exclusive  each block to a QP of its own
//
// `./x gpu others` compiles them against headers that are not part of this repository.
#pragma once

#include "../poster.cuh"

namespace bench {

/// The structs of QP `qp`, of type T, in the project's memory.
template <class T>
WV_DEVICE T* state_at(const PostBenchParams& p, uint32_t qp) {
  static_assert(sizeof(T) <= wv::BENCH_STATE_BYTES && alignof(T) <= 128);
  return reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(p.state) + qp * wv::BENCH_STATE_BYTES);
}

/// Calls `open(qp, context)` for each QP, one by a thread.
template <class Open>
WV_DEVICE void open_each(const PostBenchParams& p, Open open) {
  const uint32_t threads = wv::grid_blocks() * 32;
  for (uint32_t qp = wv::thread_in_grid(); qp < p.qps; qp += threads) open(qp, context_at(p, qp));
}

/// The sink, and blocks of which one thread posts.
template <class Queue>
WV_DEVICE void run_thread(const PostBenchParams& p) {
  run<Queue>(p, wv::Thread{}, wv::lane() == 0);
}

}  // namespace bench
