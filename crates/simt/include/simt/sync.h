// Barriers of a block, fences, clocks.
#pragma once

#include "order.h"
#include "runtime.h"

// All threads of the block that have not exited must come, as on sm_70 and later; all with the same
// kind of barrier.
inline void __syncthreads() { simt_block_op(simt::kSync, 0); }
// How many threads came with a predicate that is not zero; whether all did; whether one did.
inline int __syncthreads_count(int predicate) {
  return static_cast<int>(simt_block_op(simt::kSyncCount, predicate != 0));
}
inline int __syncthreads_and(int predicate) {
  return static_cast<int>(simt_block_op(simt::kSyncAnd, predicate != 0));
}
inline int __syncthreads_or(int predicate) {
  return static_cast<int>(simt_block_op(simt::kSyncOr, predicate != 0));
}

// Threads of several OS threads, and the software device, share the memory: a fence is a real one.
inline void __threadfence_block() { simt::fence(simt::Fence::both, simt::Scope::block); }
inline void __threadfence() { simt::fence(simt::Fence::both, simt::Scope::gpu); }
inline void __threadfence_system() { simt::fence(simt::Fence::both, simt::Scope::system); }

// A thread that sleeps has nothing to do: the same as a poll. The time itself is not waited for.
inline void __nanosleep(unsigned) { simt_poll(); }

inline long long clock64() { return static_cast<long long>(simt_now_ns()); }
[[noreturn]] inline void __trap() { simt_fail("__trap()"); }
