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
  _Pragma("GCC error \"static __shared__ variables are refused: use SIMT_DYN_SHARED(T, name)\"")

#define threadIdx (static_cast<const simt_ctx*>(simt_cur_tls)->thread)
#define blockIdx (static_cast<const simt_ctx*>(simt_cur_tls)->block)
#define blockDim (static_cast<const simt_ctx*>(simt_cur_tls)->block_dim)
#define gridDim (static_cast<const simt_ctx*>(simt_cur_tls)->grid_dim)
#define warpSize 32

// T* name = the dynamic shared memory of the block (LaunchConfig::shared_bytes). Filled with 0xa5
// when a block starts, since on a GPU it holds whatever the last block left; its end is guarded.
#define SIMT_DYN_SHARED(T, name) T* name = reinterpret_cast<T*>(simt_cur_tls->shared)

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
