// The scope of a call: one thread, the 32 lanes of a warp together, or all threads of a block. No
// other file reads threadIdx, blockIdx, blockDim or gridDim.
//
// Every thread of a scope makes a call that takes the scope, converged, with the same QP. Each
// thread brings its own arguments, and all get the same result.
#pragma once

#include <cstring>
#include <type_traits>

#include "platform.cuh"

namespace wv {

/// Returns this thread's index in its block. Blocks and grids have one dimension, x.
WV_DEVICE uint32_t thread_in_block() { return threadIdx.x; }
/// Returns the number of threads of a block.
WV_DEVICE uint32_t block_threads() { return blockDim.x; }
/// Returns this block's index in the grid.
WV_DEVICE uint32_t block_in_grid() { return blockIdx.x; }
/// Returns the number of blocks of the grid.
WV_DEVICE uint32_t grid_blocks() { return gridDim.x; }
/// Returns this thread's index in the grid.
WV_DEVICE uint32_t thread_in_grid() { return blockIdx.x * blockDim.x + threadIdx.x; }
/// Returns the number of threads of the grid.
WV_DEVICE uint32_t grid_threads() { return gridDim.x * blockDim.x; }
/// Returns the index of this thread's warp in its block.
WV_DEVICE uint32_t warp_in_block() { return threadIdx.x / 32; }
/// Returns the number of warps of a block. The last warp may have fewer than 32 lanes.
WV_DEVICE uint32_t block_warps() { return (blockDim.x + 31) / 32; }
/// Returns this thread's index in its warp.
WV_DEVICE uint32_t lane() { return threadIdx.x % 32; }
/// Waits for all threads of the block; orders memory among them.
WV_DEVICE void block_sync() { __syncthreads(); }
/// Waits for all threads of the grid; orders memory among them. Cooperative launches only.
WV_DEVICE void grid_sync() { platform::grid_sync(); }
/// Returns the index of this thread's warp in the grid, if blocks have a multiple of 32 threads.
WV_DEVICE uint32_t warp_in_grid() { return blockIdx.x * block_warps() + warp_in_block(); }
/// Returns the number of warps of the grid.
WV_DEVICE uint32_t grid_warps() { return gridDim.x * block_warps(); }

/// The number of threads of a scope that raise a flag, and this thread's place among them.
struct Place {
  /// The number of threads that raise the flag.
  uint32_t count;
  /// The number of these threads that come before this thread.
  uint32_t before;
};

/// The scope of one thread by itself.
struct Thread {
  /// Returns whether this thread is the one that acts for the scope.
  WV_DEVICE bool leader() const { return true; }
  /// Waits for the scope; orders memory among its threads.
  WV_DEVICE void sync() const {}
  /// Returns the leader's value.
  template <class T>
  WV_DEVICE T broadcast(T value) const {
    return value;
  }
  /// Returns in how many threads `flag` is set, or whether it is set in any.
  WV_DEVICE uint32_t count(bool flag) const { return flag ? 1 : 0; }
  WV_DEVICE bool any(bool flag) const { return flag; }
  /// Returns in how many threads before this one `flag` is set.
  WV_DEVICE uint32_t before(bool) const { return 0; }
  /// Returns `count` and `before` together.
  WV_DEVICE Place place(bool flag) const { return {flag ? 1u : 0u, 0}; }
  /// Returns whether the scope consists of whole warps of 32 threads, so that it can do what a Warp
  /// can.
  WV_DEVICE static constexpr bool whole_warps() { return false; }
  /// Returns whether the scope is one thread.
  WV_DEVICE static constexpr bool is_thread() { return true; }
};

/// The scope of all 32 lanes of a warp. The block has a multiple of 32 threads, in x.
struct Warp {
  static constexpr uint32_t ALL = 0xffffffff;

  WV_DEVICE bool leader() const { return lane() == 0; }
  WV_DEVICE void sync() const { __syncwarp(ALL); }
  /// Returns the leader's `value`, which has 4 or 8 bytes.
  template <class T>
  WV_DEVICE T broadcast(T value) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    using Word = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
    Word word;
    memcpy(&word, &value, sizeof value);
    word = __shfl_sync(ALL, word, 0);
    memcpy(&value, &word, sizeof value);
    return value;
  }
  WV_DEVICE uint32_t count(bool flag) const { return __popc(__ballot_sync(ALL, flag)); }
  WV_DEVICE bool any(bool flag) const { return __any_sync(ALL, flag) != 0; }
  WV_DEVICE uint32_t before(bool flag) const {
    return __popc(__ballot_sync(ALL, flag) & ((1u << lane()) - 1));
  }
  WV_DEVICE Place place(bool flag) const {
    const uint32_t votes = __ballot_sync(ALL, flag);
    return {static_cast<uint32_t>(__popc(votes)),
            static_cast<uint32_t>(__popc(votes & ((1u << lane()) - 1)))};
  }
  WV_DEVICE static constexpr bool whole_warps() { return true; }
  WV_DEVICE static constexpr bool is_thread() { return false; }
  /// Returns the lanes that raise `flag`, as bits.
  WV_DEVICE uint32_t ballot(bool flag) const { return __ballot_sync(ALL, flag); }
  /// Returns the value of lane number `from`.
  WV_DEVICE uint32_t shuffle(uint32_t value, uint32_t from) const {
    return __shfl_sync(ALL, value, static_cast<int>(from));
  }
  WV_DEVICE uint64_t shuffle(uint64_t value, uint32_t from) const {
    return __shfl_sync(ALL, static_cast<unsigned long long>(value), static_cast<int>(from));
  }
  /// Returns the bits that any lane raises.
  WV_DEVICE uint32_t any_bits(uint32_t bits) const { return __reduce_or_sync(ALL, bits); }
  /// Returns the sum of the values of all lanes from 0 to this one.
  WV_DEVICE uint32_t sum_up_to(uint32_t value) const {
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t other = shuffle(value, (lane() - step) % 32);
      if (lane() >= step) value += other;
    }
    return value;
  }
  /// Returns the lanes whose `value` equals this lane's, as bits.
  WV_DEVICE uint32_t match(uint32_t value) const { return __match_any_sync(ALL, value); }
};

/// The scope of all threads of a block, of any number, in x.
struct Block {
  WV_DEVICE bool leader() const { return thread_in_block() == 0; }
  WV_DEVICE void sync() const { block_sync(); }
  /// Returns the leader's `value`, which has 4 or 8 bytes.
  template <class T>
  WV_DEVICE T broadcast(T value) const {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    uint64_t word = 0;
    memcpy(&word, &value, sizeof value);
    word = share(word);
    memcpy(&value, &word, sizeof value);
    return value;
  }
  WV_DEVICE uint32_t count(bool flag) const {
    return static_cast<uint32_t>(__syncthreads_count(flag));
  }
  WV_DEVICE bool any(bool flag) const { return __syncthreads_or(flag) != 0; }
  WV_DEVICE uint32_t before(bool flag) const { return place(flag).before; }
  WV_DEVICE Place place(bool flag) const {
    const uint32_t votes = __ballot_sync(lanes(), flag);
    const auto before = static_cast<uint32_t>(__popc(votes & ((1u << lane()) - 1)));
    return behind_warps({static_cast<uint32_t>(__popc(votes)), before});
  }
  /// Returns the sum of the values of all threads, and the sum of the values of the threads before
  /// this one. The block has whole warps.
  WV_DEVICE Place sum(uint32_t value) const {
    constexpr Warp warp;
    const uint32_t up_to = warp.sum_up_to(value);
    return behind_warps({warp.shuffle(up_to, 31), up_to - value});
  }
  WV_DEVICE static bool whole_warps() { return block_threads() % 32 == 0; }
  WV_DEVICE static constexpr bool is_thread() { return false; }

 private:
  struct Counts {
    uint32_t of_warp[32];
  };

  /// Returns the lanes of this thread's warp, as bits. The last warp may have fewer than 32.
  WV_DEVICE static uint32_t lanes() {
    const uint32_t rest = block_threads() - warp_in_block() * 32;
    return rest >= 32 ? Warp::ALL : (1u << rest) - 1;
  }
  /// Returns this thread's place in the block, from its place in the warp.
  WV_DEVICE static Place behind_warps(const Place& in_warp) {
    WV_SHARED(Counts, counts);
    if (lane() == 0) counts->of_warp[warp_in_block()] = in_warp.count;
    block_sync();
    Place place{0, in_warp.before};
    for (uint32_t warp = 0; warp < block_warps(); ++warp) {
      if (warp < warp_in_block()) place.before += counts->of_warp[warp];
      place.count += counts->of_warp[warp];
    }
    block_sync();  // all have read before any thread writes again
    return place;
  }
  /// Returns the leader's word.
  WV_DEVICE static uint64_t share(uint64_t word) {
    WV_SHARED(uint64_t, slot);
    if (thread_in_block() == 0) *slot = word;
    block_sync();
    word = *slot;
    block_sync();  // all have read before any thread writes again
    return word;
  }
};

}  // namespace wv
