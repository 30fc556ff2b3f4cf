// The one place that knows whether a GPU or the CPU is the target. Both sides offer the same
// functions in wv::platform.
#pragma once

#ifdef __CUDACC__

#include <cooperative_groups.h>

#include <cstdint>

// A function of the device library.
#define WV_DEVICE __device__ __forceinline__
// One that runs only where something is late or wrong: a call is cheaper than its copies.
#define WV_DEVICE_COLD inline __device__ __noinline__
// A large one that is used in several places: a kernel has it once.
#define WV_DEVICE_ONCE inline __device__ __noinline__
// Names a kernel for the table of the CPU build; nothing on a GPU.
#define WV_EXPORT(kernel)
// A kernel whose blocks have at most so many threads. A thread gets as many registers as leave room
// for one such block on a multiprocessor.
#define WV_MOST_THREADS(threads) __launch_bounds__(threads, 1)
// T* name = the dynamic shared memory of the block.
#define WV_DYN_SHARED(T, name)                                    \
  extern __shared__ __align__(128) unsigned char wv_dyn_shared[]; \
  T* name = reinterpret_cast<T*>(wv_dyn_shared)
// T* name = one T of this block that every thread of the block finds at this place. Its value is
// undefined until a thread writes it.
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
