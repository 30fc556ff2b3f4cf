// Kernels with one planted defect each; the launch must end with an error that names it.
#include <stdexcept>
#include <vector>

#include "simt.cuh"

// Lanes of warp 1 wait for each other in two groups that overlap in a circle.
extern "C" __global__ void circle() {
  if (threadIdx.x < 32) return;
  const unsigned lane = threadIdx.x & 31;
  if (lane == 0) __syncwarp(0x3), __syncwarp(0x5);
  if (lane == 1) __syncwarp(0x6), __syncwarp(0x3);
  if (lane == 2) __syncwarp(0x5), __syncwarp(0x6);
}
SIMT_EXPORT(circle)

// Half of the block waits at a barrier, the other half for a lane that is there.
extern "C" __global__ void barrier_in_branch() {
  if (threadIdx.x % 32 == 3) __syncthreads();
  __shfl_sync(0xffffffffu, 1, 0);
  if (threadIdx.x % 32 != 3) __syncthreads();
}
SIMT_EXPORT(barrier_in_branch)

extern "C" __global__ void other_operation(int* out) {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    out[threadIdx.x] = static_cast<int>(__ballot_sync(0xffffffffu, 1));
  }
}
SIMT_EXPORT(other_operation)

extern "C" __global__ void other_mask() {
  __syncwarp(threadIdx.x == 7 ? 0xffu : 0xffffffffu);
}
SIMT_EXPORT(other_mask)

extern "C" __global__ void mask_without_self() { __syncwarp(0xfffffffeu); }
SIMT_EXPORT(mask_without_self)

extern "C" __global__ void exit_before_syncwarp() {
  if (threadIdx.x == 37) return;
  __syncwarp();
}
SIMT_EXPORT(exit_before_syncwarp)

extern "C" __global__ void other_barrier() {
  if (threadIdx.x == 40) {
    __syncthreads_or(1);
  } else {
    __syncthreads();
  }
}
SIMT_EXPORT(other_barrier)

extern "C" __global__ void exit_before_grid_sync() {
  if (blockIdx.x == 1 && threadIdx.x == 5) return;
  simt_grid_sync();
}
SIMT_EXPORT(exit_before_grid_sync)

// 0: simt_fail, 1: assert, 2: trap, 3: C++ exception, 4: one that is no std::exception, 5: fail under noexcept
extern "C" __global__ void failing(int how) {
  __syncthreads();
  if (blockIdx.x == 1 && threadIdx.x == 70) {
    switch (how) {
      case 0: simt_fail("planted");
      case 1: assert(how == 0); break;
      case 2: __trap();
      case 3: std::vector<int>(3).at(how + 4) = 1; break;
      case 4: throw 5;
      case 5: []() noexcept { simt_fail("planted below noexcept"); }();
    }
  }
  __syncthreads();
}
SIMT_EXPORT(failing)

// Uses `bytes` of stack and writes all of it.
__attribute__((noinline)) static int dig(volatile char* above, long bytes) {
  volatile char here[64];
  for (char i = 0; i < 64; i++) here[static_cast<int>(i)] = static_cast<char>(~i);
  if (above - here >= bytes) return here[5];
  return dig(above, bytes) + here[7];
}
extern "C" __global__ void deep(long bytes, int* out) {
  volatile char here = 1;
  if (blockIdx.x == 0 && threadIdx.x == 33) *out = dig(&here, bytes);
}
SIMT_EXPORT(deep)

extern "C" __global__ void past_shared(int bytes) {
  SIMT_DYN_SHARED(char, shared);
  if (threadIdx.x == 0) memset(shared, 1, bytes);
}
SIMT_EXPORT(past_shared)

extern "C" __global__ void spin_for_ever(const unsigned* flag) {
  for (;;) {
    simt_yield();
    if (__atomic_load_n(flag, __ATOMIC_RELAXED) != 0) break;
  }
}
SIMT_EXPORT(spin_for_ever)

extern "C" __global__ void sync_for_ever(const unsigned* flag) {
  while (__syncthreads_or(static_cast<int>(__atomic_load_n(flag, __ATOMIC_RELAXED))) == 0) {
  }
}
SIMT_EXPORT(sync_for_ever)
