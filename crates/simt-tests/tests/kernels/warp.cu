// Warp operations, each against a value that the test computes.
#include "simt.cuh"

// Sum of x[0..n) by shuffles within warps and shared memory between them.
extern "C" __global__ void block_reduce(const float* x, float* out, int n, int rounds) {
  SIMT_DYN_SHARED(float, partial);
  const int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  for (int round = 0; round < rounds; round++) {
    float v = i < n ? x[i] : 0.f;
    for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
    if ((t & 31) == 0) partial[t >> 5] = v;
    __syncthreads();
    if (t < 32) {
      v = t < static_cast<int>(blockDim.x >> 5) ? partial[t] : 0.f;
      for (int step = 16; step > 0; step >>= 1) v += __shfl_xor_sync(0xffffffffu, v, step);
      if (t == 0) out[blockIdx.x] = v;
    }
    __syncthreads();
  }
}
SIMT_EXPORT(block_reduce)

// out[0..8][thread]: results of shuffles in their four kinds and with widths.
extern "C" __global__ void shuffles(unsigned* out) {
  const unsigned t = threadIdx.x, n = blockDim.x, v = 1000 + t;
  out[0 * n + t] = __shfl_sync(0xffffffffu, v, 5);
  out[1 * n + t] = __shfl_up_sync(0xffffffffu, v, 3);
  out[2 * n + t] = __shfl_down_sync(0xffffffffu, v, 3);
  out[3 * n + t] = __shfl_xor_sync(0xffffffffu, v, 1);
  out[4 * n + t] = __shfl_sync(0xffffffffu, v, 9, 8);
  out[5 * n + t] = __shfl_up_sync(0xffffffffu, v, 2, 8);
  out[6 * n + t] = __shfl_down_sync(0xffffffffu, v, 2, 8);
  out[7 * n + t] = __shfl_xor_sync(0xffffffffu, v, 12, 8);
}
SIMT_EXPORT(shuffles)

// Types of 1 to 8 bytes go through a shuffle whole. *bad counts differences.
struct Pair {
  float a;
  short b;
};
extern "C" __global__ void shuffle_types(unsigned* bad) {
  const int t = threadIdx.x, from = (t + 7) & 31;
  bool ok = __shfl_sync(0xffffffffu, static_cast<unsigned char>(t), from) == from;
  ok = ok && __shfl_sync(0xffffffffu, static_cast<short>(-t), from) == -from;
  ok = ok && __shfl_sync(0xffffffffu, -1.5 * t, from) == -1.5 * from;
  ok = ok && __shfl_sync(0xffffffffu, 0x123456789abcull + t, from) == 0x123456789abcull + from;
  const Pair got = __shfl_sync(0xffffffffu, Pair{0.5f * t, static_cast<short>(t)}, from);
  ok = ok && got.a == 0.5f * from && got.b == from;
  if (!ok) atomicAdd(bad, 1);
}
SIMT_EXPORT(shuffle_types)

// The lower and the upper lanes of a warp vote apart, each half its own number of times.
extern "C" __global__ void half_votes(unsigned* out) {
  const unsigned t = threadIdx.x;
  const bool low = t < 11;
  const unsigned mask = low ? 0x7ffu : ~0x7ffu;
  unsigned sum = 0;
  for (unsigned i = 0; i < (low ? 5u : 2u); i++) sum += __ballot_sync(mask, (t + i) & 1);
  out[t] = sum;
  out[32 + t] = __any_sync(mask, t == 20) | __all_sync(mask, t < 11) << 1;
}
SIMT_EXPORT(half_votes)

extern "C" __global__ void matches(const unsigned long long* keys, unsigned* out) {
  const unsigned t = threadIdx.x;
  out[t] = __match_any_sync(0xffffffffu, keys[t]);
  int same = 7;
  out[32 + t] = __match_all_sync(0xffffffffu, keys[t], &same);
  out[64 + t] = static_cast<unsigned>(same);
  out[96 + t] = __match_all_sync(0xffffffffu, 4u, &same);
  out[128 + t] = static_cast<unsigned>(same);
}
SIMT_EXPORT(matches)

extern "C" __global__ void reduces(const int* x, int* out) {
  const int v = x[threadIdx.x];
  const unsigned u = static_cast<unsigned>(v);
  const int results[] = {
      __reduce_add_sync(0xffffffffu, v), __reduce_min_sync(0xffffffffu, v), __reduce_max_sync(0xffffffffu, v),
      static_cast<int>(__reduce_min_sync(0xffffffffu, u)), static_cast<int>(__reduce_max_sync(0xffffffffu, u)),
      static_cast<int>(__reduce_and_sync(0xffffffffu, u)), static_cast<int>(__reduce_or_sync(0xffffffffu, u)),
      static_cast<int>(__reduce_xor_sync(0xffffffffu, u)),
  };
  for (int i = 0; i < 8; i++) out[i * 32 + threadIdx.x] = results[i];
}
SIMT_EXPORT(reduces)

// Bit intrinsics on one thread: out[i] as the test expects.
extern "C" __global__ void bits(unsigned* out) {
  if (threadIdx.x != 0) return;
  const unsigned results[] = {
      static_cast<unsigned>(__popc(0xf0f00001u)), static_cast<unsigned>(__popcll(0xffull << 40)),
      static_cast<unsigned>(__ffs(0x50)), static_cast<unsigned>(__ffs(0)), static_cast<unsigned>(__ffsll(1ll << 40)),
      static_cast<unsigned>(__clz(0)), static_cast<unsigned>(__clz(0x00010000)), static_cast<unsigned>(__clzll(1)),
      __brev(0x80000001u), __brev(0x00000012u), __byte_perm(0x33221100u, 0x77665544u, 0x0123u),
      __byte_perm(0x33221100u, 0x77665544u, 0x7654u), __byte_perm(0x000000f0u, 0u, 0x4448u), __umulhi(0x80000000u, 6u),
      __funnelshift_l(0x80000000u, 1u, 1u), __funnelshift_r(0x80000000u, 1u, 31u), __float_as_uint(1.0f),
      static_cast<unsigned>(min(-3, 2) + max(4u, 9u)),
  };
  for (unsigned i = 0; i < sizeof results / sizeof results[0]; i++) out[i] = results[i];
}
SIMT_EXPORT(bits)
