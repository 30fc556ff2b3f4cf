// The twin of ptx.cuh for the CPU: __atomic builtins and the hooks of crates/simt. Scopes make no
// difference on the CPU. They are named for the checker of a `tsan` build (simt/order.h).
//
// A load of a word that others may change is a schedule point (`simt_yield`). A store, or a
// read-modify-write that changes its word, is progress (`simt_progress`). Blocks may run on several
// OS threads and the HCA on another, so the atomics are real.
#pragma once

#include <cstdint>

namespace wv::platform {

struct alignas(16) Vec16 {
  uint64_t lo, hi;
};

// A poll may let the OS thread sleep, so each one looks at the clock.
inline constexpr uint32_t LOOKS_PER_CHECK = 1;

using simt::Fence;
using simt::Scope;

namespace twin {

template <class T>
WV_DEVICE T load(Scope scope, const T* p, int order = __ATOMIC_RELAXED) {
  simt_yield();
  const simt::Scoped scoped(scope);
  return __atomic_load_n(p, order);
}
template <class T>
WV_DEVICE void store(Scope scope, T* p, T v) {
  simt_yield();
  const simt::Scoped scoped(scope);
  __atomic_store_n(p, v, __ATOMIC_RELAXED);
  simt_progress();
}
template <class T>
WV_DEVICE T add(Scope scope, T* p, T n) {
  simt_yield();
  simt_progress();
  const simt::Scoped scoped(scope);
  return __atomic_fetch_add(p, n, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T exchange(Scope scope, T* p, T v, int order = __ATOMIC_RELAXED) {
  simt_yield();
  simt_progress();
  const simt::Scoped scoped(scope);
  return __atomic_exchange_n(p, v, order);
}
template <class T>
WV_DEVICE T compare_exchange(Scope scope, T* p, T expected, T desired) {
  simt_yield();
  const simt::Scoped scoped(scope);
  T old = expected;
  if (__atomic_compare_exchange_n(p, &old, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    simt_progress();
  }
  return old;
}
WV_DEVICE void max(Scope scope, uint64_t* p, uint64_t v) {
  simt_yield();
  const simt::Scoped scoped(scope);
  uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (old < v) {
    if (__atomic_compare_exchange_n(p, &old, v, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
      simt_progress();
      return;
    }
  }
}

}  // namespace twin

template <class T>
WV_DEVICE T load_relaxed(const T* p) {
  return twin::load(Scope::gpu, p);
}
template <class T>
WV_DEVICE T load_relaxed_sys(const T* p) {
  return twin::load(Scope::system, p);
}
WV_DEVICE Vec16 load16_relaxed(const void* p) {
  const auto* words = static_cast<const uint64_t*>(p);
  simt_yield();
  const simt::Scoped scoped(Scope::gpu);
  return {__atomic_load_n(words, __ATOMIC_RELAXED), __atomic_load_n(words + 1, __ATOMIC_RELAXED)};
}
WV_DEVICE Vec16 load16_volatile(const void* p) {
  const auto* words = static_cast<const volatile uint64_t*>(p);
  return {words[0], words[1]};
}
WV_DEVICE void store16_volatile(void* p, Vec16 v) {
  auto* words = static_cast<volatile uint64_t*>(p);
  words[0] = v.lo;
  words[1] = v.hi;
}
WV_DEVICE Vec16 load16_const(const void* p) {
  return simt::load_constant(static_cast<const Vec16*>(p));
}
WV_DEVICE uint64_t load_const(const uint64_t* p) { return simt::load_constant(p); }
WV_DEVICE uint32_t load_const(const uint32_t* p) { return simt::load_constant(p); }

template <class T>
WV_DEVICE void store_relaxed(T* p, T v) {
  twin::store(Scope::gpu, p, v);
}
template <class T>
WV_DEVICE void store_relaxed_sys(T* p, T v) {
  twin::store(Scope::system, p, v);
}
WV_DEVICE void store16(void* p, Vec16 v) {
  simt::store_weak16(static_cast<uint64_t*>(p), v.lo, v.hi);
}
WV_DEVICE void store_mmio(uint64_t* reg, uint64_t v) {
  simt_yield();
  simt_mmio_store64(reg, v);
  simt_progress();
}

template <class T>
WV_DEVICE T add_relaxed(T* p, T n) {
  return twin::add(Scope::gpu, p, n);
}
WV_DEVICE uint64_t exchange_relaxed(uint64_t* p, uint64_t v) {
  return twin::exchange(Scope::gpu, p, v);
}
template <class T>
WV_DEVICE T compare_exchange_relaxed(T* p, T expected, T desired) {
  return twin::compare_exchange(Scope::gpu, p, expected, desired);
}
WV_DEVICE void reduce_add(uint64_t* p, uint64_t n) { twin::add(Scope::gpu, p, n); }
WV_DEVICE void reduce_max(uint64_t* p, uint64_t v) { twin::max(Scope::gpu, p, v); }
WV_DEVICE void reduce_max_sys(uint64_t* p, uint64_t v) { twin::max(Scope::system, p, v); }

WV_DEVICE uint64_t load_relaxed_cta(const uint64_t* p) { return twin::load(Scope::block, p); }
WV_DEVICE uint64_t add_relaxed_cta(uint64_t* p, uint64_t n) {
  return twin::add(Scope::block, p, n);
}
WV_DEVICE uint64_t exchange_relaxed_cta(uint64_t* p, uint64_t v) {
  return twin::exchange(Scope::block, p, v);
}
WV_DEVICE uint64_t compare_exchange_relaxed_cta(uint64_t* p, uint64_t expected, uint64_t desired) {
  return twin::compare_exchange(Scope::block, p, expected, desired);
}
WV_DEVICE void reduce_add_cta(uint64_t* p, uint64_t n) { twin::add(Scope::block, p, n); }

WV_DEVICE uint64_t load_acquire(const uint64_t* p) {
  return twin::load(Scope::gpu, p, __ATOMIC_ACQUIRE);
}
WV_DEVICE uint64_t load_acquire_cta(const uint64_t* p) {
  return twin::load(Scope::block, p, __ATOMIC_ACQUIRE);
}
WV_DEVICE uint64_t exchange_acquire(uint64_t* p, uint64_t v) {
  return twin::exchange(Scope::gpu, p, v, __ATOMIC_ACQUIRE);
}

WV_DEVICE void or_shared(uint32_t* p, uint32_t bits) {
  simt_yield();
  const simt::Scoped scoped(Scope::block);
  __atomic_fetch_or(p, bits, __ATOMIC_RELAXED);
}

template <class T>
WV_DEVICE T add_relaxed_sys(T* p, T n) {
  return twin::add(Scope::system, p, n);
}
template <class T>
WV_DEVICE T exchange_relaxed_sys(T* p, T v) {
  return twin::exchange(Scope::system, p, v);
}
template <class T>
WV_DEVICE T and_relaxed_sys(T* p, T v) {
  simt_yield();
  simt_progress();
  const simt::Scoped scoped(Scope::system);
  return __atomic_fetch_and(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T or_relaxed_sys(T* p, T v) {
  simt_yield();
  simt_progress();
  const simt::Scoped scoped(Scope::system);
  return __atomic_fetch_or(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T xor_relaxed_sys(T* p, T v) {
  simt_yield();
  simt_progress();
  const simt::Scoped scoped(Scope::system);
  return __atomic_fetch_xor(p, v, __ATOMIC_RELAXED);
}
template <class T>
WV_DEVICE T compare_exchange_relaxed_sys(T* p, T expected, T desired) {
  return twin::compare_exchange(Scope::system, p, expected, desired);
}

WV_DEVICE void fence_release_cta() { simt::fence(Fence::release, Scope::block); }
WV_DEVICE void fence_acq_rel_cta() { simt::fence(Fence::both, Scope::block); }
WV_DEVICE void fence_acq_rel() { simt::fence(Fence::both, Scope::gpu); }
WV_DEVICE void fence_acq_rel_sys() { simt::fence(Fence::both, Scope::system); }
WV_DEVICE void fence_release() { simt::fence(Fence::release, Scope::gpu); }
WV_DEVICE void fence_release_sys() { simt::fence(Fence::release, Scope::system); }
WV_DEVICE void fence_acquire() { simt::fence(Fence::acquire, Scope::gpu); }
WV_DEVICE void fence_acquire_sys() { simt::fence(Fence::acquire, Scope::system); }
WV_DEVICE void fence_sc_sys() { simt::fence(Fence::both, Scope::system); }

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

// These functions are compiled with -ffp-contract=off, so a product and a sum stay separate
// operations.
WV_DEVICE float mul_rn(float a, float b) { return a * b; }
WV_DEVICE float add_rn(float a, float b) { return a + b; }
WV_DEVICE float div_rn(float a, float b) { return a / b; }
WV_DEVICE uint32_t float_bits(float v) { return __float_as_uint(v); }
WV_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }

WV_DEVICE uint32_t max_of_halves(uint32_t a, uint32_t b) {
  const uint32_t high = a >> 16 > b >> 16 ? a : b;
  const uint32_t low = (a & 0xffff) > (b & 0xffff) ? a : b;
  return (high & 0xffff0000) | (low & 0xffff);
}

WV_DEVICE void prefetch(const void*) {}

WV_DEVICE void grid_sync() { simt_grid_sync(); }

/// Counts that this thread issues `loads` loads before it uses any of them.
WV_DEVICE void note_loads(uint32_t loads) { simt_count_loads(loads); }

/// The part of a function whose end the lanes of a warp leave together. After a divergent branch or
/// loop the compiler makes lanes that entered it together wait for each other. Only launches with
/// `reconverge` obey this.
struct Divergence {
  WV_DEVICE Divergence() { simt_diverge(); }
  WV_DEVICE ~Divergence() { simt_reconverge(); }
  Divergence(const Divergence&) = delete;
  Divergence& operator=(const Divergence&) = delete;
};

WV_DEVICE uint64_t now_ns() { return simt_now_ns(); }
WV_DEVICE void pause() { simt_poll(); }

}  // namespace wv::platform
