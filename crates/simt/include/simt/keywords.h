// Keywords and built-in variables of CUDA C++ as macros.
#pragma once

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

// One variable per block cannot be had from a static in C++: on the CPU all blocks would share it.
#define __shared__ \
  _Pragma("GCC error \"static __shared__ variables are refused: use SIMT_SHARED(T, name)\"")

#define threadIdx (static_cast<const simt_ctx*>(simt_cur_tls)->thread)
#define blockIdx (static_cast<const simt_ctx*>(simt_cur_tls)->block)
#define blockDim (static_cast<const simt_ctx*>(simt_cur_tls)->block_dim)
#define gridDim (static_cast<const simt_ctx*>(simt_cur_tls)->grid_dim)
#define warpSize 32

// T* name = the dynamic shared memory of the block (LaunchConfig::shared_bytes). Filled with 0xa5
// when a block starts, since on a GPU it holds whatever the last block left; its end is guarded.
#define SIMT_DYN_SHARED(T, name) T* name = reinterpret_cast<T*>(simt_cur_tls->shared)

// T* name = one T of this block that every thread of the block finds at this place in the source.
// Its value is undefined until a thread writes it. At most 4 KiB in all such places of a program.
#define SIMT_SHARED(T, name)                                                        \
  static_assert(std::is_trivial<T>::value && alignof(T) <= 16, "plain words only"); \
  struct name##_place;                                                              \
  T* const name = reinterpret_cast<T*>(simt_cur_tls->shared - simt::kStaticShared + \
                                       simt::static_shared<name##_place, sizeof(T)>())

namespace simt {

constexpr size_t kStaticShared =
    4096;  // in front of the dynamic shared memory: STATIC_LINES of seat.rs

// The next free bytes; each place in the source asks once per process.
inline size_t take_static_shared(size_t bytes) {
  static size_t used = 0;
  const size_t place = __atomic_fetch_add(&used, (bytes + 15) / 16 * 16, __ATOMIC_RELAXED);
  if (place + bytes > kStaticShared) simt_fail("more than 4096 bytes of static shared memory");
  return place;
}

// The offset of the bytes that one place in the source uses; each place has a type `Place` of its
// own. Which thread of the process is the first to ask is none of the kernel's order, so no
// sanitizer looks at it.
template <class Place, size_t bytes>
__attribute__((no_sanitize_thread)) size_t static_shared() {
  static const size_t place = take_static_shared(bytes);
  return place;
}

}  // namespace simt

// As on the GPU, a failed assert or a trap ends the launch, never the process.
#include <cassert>
#define SIMT_STRING_(x) #x
#define SIMT_STRING(x) SIMT_STRING_(x)
#ifndef NDEBUG
#undef assert
#define assert(condition) \
  ((condition)            \
       ? (void)0          \
       : simt_fail("assertion failed: " #condition " (" __FILE__ ":" SIMT_STRING(__LINE__) ")"))
#endif
