// The scope of a call: one thread, the 32 lanes of a warp together, or all threads of a block. The
// only file that reads threadIdx and its like.
//
// Every thread of a scope makes a call that takes the scope, converged, with the same QP. Each
// thread brings its own arguments, and all get the same result.
#pragma once

#include <cstring>
#include <type_traits>

#include "platform.cuh"

namespace wv {

/// This thread's place in its block, x only.
WV_DEVICE uint32_t thread_in_block() { return threadIdx.x; }
/// Threads of a block.
WV_DEVICE uint32_t block_threads() { return blockDim.x; }
/// This block's place in the grid.
WV_DEVICE uint32_t block_in_grid() { return blockIdx.x; }
/// Blocks of the grid.
WV_DEVICE uint32_t grid_blocks() { return gridDim.x; }
/// This thread's place in the grid.
WV_DEVICE uint32_t thread_in_grid() { return blockIdx.x * blockDim.x + threadIdx.x; }
/// Threads of the grid.
WV_DEVICE uint32_t grid_threads() { return gridDim.x * blockDim.x; }
/// This thread's warp in its block.
WV_DEVICE uint32_t warp_in_block() { return threadIdx.x / 32; }
/// Warps of a block; the last one may have fewer than 32 lanes.
WV_DEVICE uint32_t block_warps() { return (blockDim.x + 31) / 32; }
/// This thread's place in its warp.
WV_DEVICE uint32_t lane() { return threadIdx.x % 32; }
/// Waits for all threads of the block; orders memory among them.
WV_DEVICE void block_sync() { __syncthreads(); }
/// Waits for all threads of the grid; orders memory among them. Cooperative launches only.
WV_DEVICE void grid_sync() { platform::grid_sync(); }
/// This thread's warp in the grid, if blocks have a multiple of 32 threads.
WV_DEVICE uint32_t warp_in_grid() { return blockIdx.x * block_warps() + warp_in_block(); }
/// Warps of the grid.
WV_DEVICE uint32_t grid_warps() { return gridDim.x * block_warps(); }

/// Those threads of a scope that raise a flag.
struct Place {
  /// How many.
  uint32_t count;
  /// How many of them come before this thread.
  uint32_t before;
};

/// One thread by itself.
struct Thread {
  /// The thread that acts for the scope.
  WV_DEVICE bool leader() const { return true; }
  /// Waits for the scope; orders memory among its threads.
  WV_DEVICE void sync() const {}
  /// The leader's value.
  template <class T>
  WV_DEVICE T broadcast(T value) const {
    return value;
  }
  /// In how many threads `flag` is set; whether in any.
  WV_DEVICE uint32_t count(bool flag) const { return flag ? 1 : 0; }
  WV_DEVICE bool any(bool flag) const { return flag; }
  /// In how many threads before this one `flag` is set.
  WV_DEVICE uint32_t before(bool) const { return 0; }
  /// Both at once.
  WV_DEVICE Place place(bool flag) const { return {flag ? 1u : 0u, 0}; }
  /// Returns whether the scope is made of warps of 32 threads, so that it can do what a Warp can.
  WV_DEVICE static constexpr bool whole_warps() { return false; }
  /// Returns whether the scope is one thread.
  WV_DEVICE static constexpr bool is_thread() { return true; }
};

/// All 32 lanes of a warp. The block has a multiple of 32 threads, in x.
struct Warp {
  static constexpr uint32_t ALL = 0xffffffff;

  WV_DEVICE bool leader() const { return lane() == 0; }
  WV_DEVICE void sync() const { __syncwarp(ALL); }
  /// `value` has 4 or 8 bytes.
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
  /// The lanes that raise `flag`, as bits.
  WV_DEVICE uint32_t ballot(bool flag) const { return __ballot_sync(ALL, flag); }
  /// The value of lane number `from`.
  WV_DEVICE uint32_t shuffle(uint32_t value, uint32_t from) const {
    return __shfl_sync(ALL, value, static_cast<int>(from));
  }
  WV_DEVICE uint64_t shuffle(uint64_t value, uint32_t from) const {
    return __shfl_sync(ALL, static_cast<unsigned long long>(value), static_cast<int>(from));
  }
  /// The bits that any lane raises.
  WV_DEVICE uint32_t any_bits(uint32_t bits) const { return __reduce_or_sync(ALL, bits); }
  /// The sum of the values of the lanes up to and with this one.
  WV_DEVICE uint32_t sum_up_to(uint32_t value) const {
    for (uint32_t step = 1; step < 32; step *= 2) {
      const uint32_t other = shuffle(value, (lane() - step) % 32);
      if (lane() >= step) value += other;
    }
    return value;
  }
  /// The lanes whose `value` equals this lane's, as bits.
  WV_DEVICE uint32_t match(uint32_t value) const { return __match_any_sync(ALL, value); }
};

/// All threads of a block, of any number, in x.
struct Block {
  WV_DEVICE bool leader() const { return thread_in_block() == 0; }
  WV_DEVICE void sync() const { block_sync(); }
  /// `value` has 4 or 8 bytes.
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
  /// The values of all threads added up, and of those before this one. The block has whole warps.
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

  /// The lanes that this thread's warp has; the last one may have fewer than 32.
  WV_DEVICE static uint32_t lanes() {
    const uint32_t rest = block_threads() - warp_in_block() * 32;
    return rest >= 32 ? Warp::ALL : (1u << rest) - 1;
  }
  /// This thread's place in the block, of its place in the warp.
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
  /// The leader's word.
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
