// The only file that knows whether the target is a GPU or the CPU. Both targets offer the same
// functions in wv::platform.
#pragma once

#ifdef __CUDACC__

#include <cooperative_groups.h>

#include <cstdint>

// A function of the device library.
#define WV_DEVICE __device__ __forceinline__
// A function for what is late or wrong: it is not inlined, since a call is cheaper than copies of
// its code.
#define WV_DEVICE_COLD inline __device__ __noinline__
// A large function with several callers: it is not inlined, so that a kernel contains it once.
#define WV_DEVICE_ONCE inline __device__ __noinline__
// Names a kernel for the table of the CPU build. On a GPU this does nothing.
#define WV_EXPORT(kernel)
// A kernel whose blocks have at most `threads` threads. The compiler gives each thread as many
// registers as leave room for one such block on a multiprocessor.
#define WV_MOST_THREADS(threads) __launch_bounds__(threads, 1)
// Declares T* name, which points to the dynamic shared memory of the block.
#define WV_DYN_SHARED(T, name)                                    \
  extern __shared__ __align__(128) unsigned char wv_dyn_shared[]; \
  T* name = reinterpret_cast<T*>(wv_dyn_shared)
// Declares T* name, which points to a T that all threads of the block share. Its value is undefined
// until a thread writes it.
#define WV_SHARED(T, name)       \
  __shared__ T wv_shared_##name; \
  T* const name = &wv_shared_##name

#include "detail/ptx.cuh"

#else

#include <simt.cuh>

#define WV_DEVICE inline
#define WV_DEVICE_COLD [[gnu::noinline]] inline
#define WV_DEVICE_ONCE [[gnu::noinline]] inline
#define WV_EXPORT(kernel) SIMT_EXPORT(kernel)
#define WV_MOST_THREADS(threads)
#define WV_DYN_SHARED(T, name) SIMT_DYN_SHARED(T, name)
#define WV_SHARED(T, name) SIMT_SHARED(T, name)

#include "detail/simt_ops.cuh"

#endif
