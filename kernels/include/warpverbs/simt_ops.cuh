// The twin of ptx.cuh for the CPU: __atomic builtins and the hooks of crates/simt.
//
// A load that others may change is a schedule point (`simt_yield`), a store or a read-modify-write
// that changed its word is progress (`simt_progress`). Blocks may run on several OS threads and the
// HCA is another one, so the atomics are real.
#pragma once

#include <cstdint>

namespace wv::platform {

struct alignas(16) Vec16 {
  uint64_t lo, hi;
};

// A poll may let the OS thread sleep, so each one looks at the clock.
inline constexpr uint32_t LOOKS_PER_CHECK = 1;

template <class T>
WV_DEVICE T load_relaxed(const T* p) {
  simt_yield();
  return __atomic_load_n(p, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T load_relaxed_sys(const T* p) {
  return load_relaxed(p);
}
WV_DEVICE Vec16 load16_relaxed(const void* p) {
  const auto* words = static_cast<const uint64_t*>(p);
  simt_yield();
  return {__atomic_load_n(words, __ATOMIC_RELAXED), __atomic_load_n(words + 1, __ATOMIC_RELAXED)};
}
WV_DEVICE Vec16 load16_const(const void* p) { return *static_cast<const Vec16*>(p); }
WV_DEVICE uint64_t load_const(const uint64_t* p) { return *p; }
WV_DEVICE uint32_t load_const(const uint32_t* p) { return *p; }

template <class T>
WV_DEVICE void store_relaxed(T* p, T v) {
  simt_yield();
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
  simt_progress();
}
template <class T>
WV_DEVICE void store_relaxed_sys(T* p, T v) {
  store_relaxed(p, v);
}
WV_DEVICE void store16(void* p, Vec16 v) {
  auto* words = static_cast<uint64_t*>(p);
  __atomic_store_n(words, v.lo, __ATOMIC_RELAXED);
  __atomic_store_n(words + 1, v.hi, __ATOMIC_RELAXED);
}
WV_DEVICE void store_mmio(uint64_t* reg, uint64_t v) {
  simt_yield();
  simt_mmio_store64(reg, v);
  simt_progress();
}

template <class T>
WV_DEVICE T add_relaxed(T* p, T n) {
  simt_yield();
  simt_progress();
  return __atomic_fetch_add(p, n, __ATOMIC_RELAXED);
}
WV_DEVICE uint64_t exchange_relaxed(uint64_t* p, uint64_t v) {
  simt_yield();
  simt_progress();
  return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T compare_exchange_relaxed(T* p, T expected, T desired) {
  simt_yield();
  T old = expected;
  if (__atomic_compare_exchange_n(p, &old, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    simt_progress();
  }
  return old;
}
WV_DEVICE void reduce_add(uint64_t* p, uint64_t n) { add_relaxed(p, n); }
WV_DEVICE void reduce_max(uint64_t* p, uint64_t v) {
  simt_yield();
  uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (old < v) {
    if (__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      simt_progress();
      return;
    }
  }
}

WV_DEVICE void reduce_max_sys(uint64_t* p, uint64_t v) { reduce_max(p, v); }

WV_DEVICE uint64_t load_relaxed_cta(const uint64_t* p) { return load_relaxed(p); }
WV_DEVICE uint64_t add_relaxed_cta(uint64_t* p, uint64_t n) { return add_relaxed(p, n); }
WV_DEVICE uint64_t exchange_relaxed_cta(uint64_t* p, uint64_t v) { return exchange_relaxed(p, v); }
WV_DEVICE uint64_t compare_exchange_relaxed_cta(uint64_t* p, uint64_t expected, uint64_t desired) {
  return compare_exchange_relaxed(p, expected, desired);
}
WV_DEVICE void reduce_add_cta(uint64_t* p, uint64_t n) { reduce_add(p, n); }

WV_DEVICE uint64_t load_acquire(const uint64_t* p) {
  simt_yield();
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}
WV_DEVICE uint64_t load_acquire_cta(const uint64_t* p) { return load_acquire(p); }
WV_DEVICE uint64_t exchange_acquire(uint64_t* p, uint64_t v) {
  simt_yield();
  simt_progress();
  return __atomic_exchange_n(p, v, __ATOMIC_ACQUIRE);
}

WV_DEVICE void fence_release_cta() { __atomic_thread_fence(__ATOMIC_RELEASE); }
WV_DEVICE void fence_acq_rel_cta() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
WV_DEVICE void fence_acq_rel() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
WV_DEVICE void fence_acq_rel_sys() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
template <class T>
WV_DEVICE T add_relaxed_sys(T* p, T v) {
  simt_yield();
  simt_progress();
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T exchange_relaxed_sys(T* p, T v) {
  simt_yield();
  simt_progress();
  return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T and_relaxed_sys(T* p, T v) {
  simt_yield();
  simt_progress();
  return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T or_relaxed_sys(T* p, T v) {
  simt_yield();
  simt_progress();
  return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T xor_relaxed_sys(T* p, T v) {
  simt_yield();
  simt_progress();
  return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T compare_exchange_relaxed_sys(T* p, T expected, T desired) {
  return compare_exchange_relaxed(p, expected, desired);
}

WV_DEVICE void fence_release() { __atomic_thread_fence(__ATOMIC_RELEASE); }
WV_DEVICE void fence_release_sys() { __atomic_thread_fence(__ATOMIC_RELEASE); }
WV_DEVICE void fence_acquire() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
WV_DEVICE void fence_acquire_sys() { __atomic_thread_fence(__ATOMIC_ACQUIRE); }
WV_DEVICE void fence_sc_sys() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

WV_DEVICE uint32_t permute(uint32_t a, uint32_t b, uint32_t places) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    out |= static_cast<uint32_t>(bytes >> (places >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  }
  return out;
}
WV_DEVICE uint32_t lane_zero(const void*) { return 0; }
WV_DEVICE uint16_t byteswap(uint16_t v) { return __builtin_bswap16(v); }
WV_DEVICE uint32_t byteswap(uint32_t v) { return __builtin_bswap32(v); }
WV_DEVICE uint64_t byteswap(uint64_t v) { return __builtin_bswap64(v); }

// Compiled with -ffp-contract=off, so a product and a sum stay apart.
WV_DEVICE float mul_rn(float a, float b) { return a * b; }
WV_DEVICE float add_rn(float a, float b) { return a + b; }
WV_DEVICE uint32_t float_bits(float v) { return __float_as_uint(v); }
WV_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }

WV_DEVICE void grid_sync() { simt_grid_sync(); }

WV_DEVICE uint64_t now_ns() { return simt_now_ns(); }
WV_DEVICE void pause() { simt_poll(); }

}  // namespace wv::platform
