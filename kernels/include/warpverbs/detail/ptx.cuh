// The only file with inline PTX. Each function is one instruction, and its name says what it does.
// The scope is gpu unless the name says sys or cta.
//
// Every asm has a "memory" clobber, so the compiler keeps the order of the source. All addresses
// are global memory: `.global` avoids the shared-memory detour that generic atomics compile to.
// simt_ops.cuh is the twin for the CPU.
#pragma once

#include <cstdint>

namespace wv::platform {

/// 16 bytes that travel in one instruction: two little-endian words.
struct alignas(16) Vec16 {
  uint64_t lo, hi;
};

/// The number of looks of a spin between two checks of errors, abort and deadline.
inline constexpr uint32_t LOOKS_PER_CHECK = 16;

WV_DEVICE uint32_t load_relaxed(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
WV_DEVICE uint64_t load_relaxed(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
WV_DEVICE uint32_t load_relaxed_sys(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
WV_DEVICE uint64_t load_relaxed_sys(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.relaxed.sys.global.L1::no_allocate.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
/// Loads 16 bytes past L1. Formally these are two 8-byte loads: for words that do not change while
/// a thread may read them.
WV_DEVICE Vec16 load16_relaxed(const void* p) {
  Vec16 v;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.lo), "=l"(v.hi)
               : "l"(p)
               : "memory");
  return v;
}
/// Loads 16 bytes through the non-coherent path: for words that are constant while the team lives.
WV_DEVICE Vec16 load16_volatile(const void* p) {
  Vec16 v;
  asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(v.lo), "=l"(v.hi)
               : "l"(p)
               : "memory");
  return v;
}
WV_DEVICE void store16_volatile(void* p, Vec16 v) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi)
               : "memory");
}
WV_DEVICE Vec16 load16_const(const void* p) {
  Vec16 v;
  asm volatile("ld.global.nc.v2.u64 {%0, %1}, [%2];" : "=l"(v.lo), "=l"(v.hi) : "l"(p) : "memory");
  return v;
}
WV_DEVICE uint64_t load_const(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.global.nc.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
WV_DEVICE uint32_t load_const(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}

WV_DEVICE void store_relaxed(uint32_t* p, uint32_t v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
WV_DEVICE void store_relaxed(uint64_t* p, uint64_t v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
WV_DEVICE void store_relaxed_sys(uint32_t* p, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
WV_DEVICE void store_relaxed_sys(uint64_t* p, uint64_t v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
/// Stores 16 bytes. The store is weak: only the next release fence orders it.
WV_DEVICE void store16(void* p, Vec16 v) {
  asm volatile("st.weak.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"(v.lo), "l"(v.hi) : "memory");
}
/// Stores 8 bytes to a device register, in one store.
WV_DEVICE void store_mmio(uint64_t* reg, uint64_t v) {
  asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(reg), "l"(v) : "memory");
}

WV_DEVICE uint32_t add_relaxed(uint32_t* p, uint32_t n) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(p), "r"(n)
               : "memory");
  return old;
}
WV_DEVICE uint64_t add_relaxed(uint64_t* p, uint64_t n) {
  uint64_t old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;"
               : "=l"(old)
               : "l"(p), "l"(n)
               : "memory");
  return old;
}
WV_DEVICE uint64_t exchange_relaxed(uint64_t* p, uint64_t v) {
  uint64_t old;
  asm volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;"
               : "=l"(old)
               : "l"(p), "l"(v)
               : "memory");
  return old;
}
/// Returns the old value: the exchange happened if it is `expected`.
WV_DEVICE uint32_t compare_exchange_relaxed(uint32_t* p, uint32_t expected, uint32_t desired) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(p), "r"(expected), "r"(desired)
               : "memory");
  return old;
}
WV_DEVICE uint64_t compare_exchange_relaxed(uint64_t* p, uint64_t expected, uint64_t desired) {
  uint64_t old;
  asm volatile("atom.relaxed.gpu.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(p), "l"(expected), "l"(desired)
               : "memory");
  return old;
}
/// Adds without reading the old value.
WV_DEVICE void reduce_add(uint64_t* p, uint64_t n) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(n) : "memory");
}
/// Raises the word to `v` without reading the old value.
WV_DEVICE void reduce_max(uint64_t* p, uint64_t v) {
  asm volatile("red.relaxed.gpu.global.max.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
/// Raises a word of host memory, which a host thread polls, to `v`.
WV_DEVICE void reduce_max_sys(uint64_t* p, uint64_t v) {
  asm volatile("red.relaxed.sys.global.max.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

// Operations on the words of a QP that only one block uses.
WV_DEVICE uint64_t load_relaxed_cta(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.relaxed.cta.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
WV_DEVICE uint64_t add_relaxed_cta(uint64_t* p, uint64_t n) {
  uint64_t old;
  asm volatile("atom.relaxed.cta.global.add.u64 %0, [%1], %2;"
               : "=l"(old)
               : "l"(p), "l"(n)
               : "memory");
  return old;
}
WV_DEVICE uint64_t exchange_relaxed_cta(uint64_t* p, uint64_t v) {
  uint64_t old;
  asm volatile("atom.relaxed.cta.global.exch.b64 %0, [%1], %2;"
               : "=l"(old)
               : "l"(p), "l"(v)
               : "memory");
  return old;
}
WV_DEVICE uint64_t compare_exchange_relaxed_cta(uint64_t* p, uint64_t expected, uint64_t desired) {
  uint64_t old;
  asm volatile("atom.relaxed.cta.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(p), "l"(expected), "l"(desired)
               : "memory");
  return old;
}
WV_DEVICE void reduce_add_cta(uint64_t* p, uint64_t n) {
  asm volatile("red.relaxed.cta.global.add.u64 [%0], %1;" ::"l"(p), "l"(n) : "memory");
}

// Acquire operations, for builds that follow the PTX memory model to the letter.
WV_DEVICE uint64_t load_acquire(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
WV_DEVICE uint64_t load_acquire_cta(const uint64_t* p) {
  uint64_t v;
  asm volatile("ld.acquire.cta.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
WV_DEVICE uint64_t exchange_acquire(uint64_t* p, uint64_t v) {
  uint64_t old;
  asm volatile("atom.acquire.gpu.global.exch.b64 %0, [%1], %2;"
               : "=l"(old)
               : "l"(p), "l"(v)
               : "memory");
  return old;
}

/// Sets bits of a word of shared memory, for the block.
WV_DEVICE void or_shared(uint32_t* p, uint32_t bits) {
  asm volatile("red.relaxed.cta.shared.or.b32 [%0], %1;"
               :
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(p))), "r"(bits)
               : "memory");
}

// Read-modify-writes of system scope, on memory of a peer that this GPU can reach. Each returns the
// old value.
#define WV_ATOM_SYS(name, op, bits, suffix, reg)                       \
  WV_DEVICE uint##bits##_t name(uint##bits##_t* p, uint##bits##_t v) { \
    uint##bits##_t old;                                                \
    asm volatile("atom.relaxed.sys.global." op suffix " %0, [%1], %2;" \
                 : "=" reg(old)                                        \
                 : "l"(p), reg(v)                                      \
                 : "memory");                                          \
    return old;                                                        \
  }
WV_ATOM_SYS(add_relaxed_sys, "add", 32, ".u32", "r")
WV_ATOM_SYS(add_relaxed_sys, "add", 64, ".u64", "l")
WV_ATOM_SYS(exchange_relaxed_sys, "exch", 32, ".b32", "r")
WV_ATOM_SYS(exchange_relaxed_sys, "exch", 64, ".b64", "l")
WV_ATOM_SYS(and_relaxed_sys, "and", 32, ".b32", "r")
WV_ATOM_SYS(and_relaxed_sys, "and", 64, ".b64", "l")
WV_ATOM_SYS(or_relaxed_sys, "or", 32, ".b32", "r")
WV_ATOM_SYS(or_relaxed_sys, "or", 64, ".b64", "l")
WV_ATOM_SYS(xor_relaxed_sys, "xor", 32, ".b32", "r")
WV_ATOM_SYS(xor_relaxed_sys, "xor", 64, ".b64", "l")
#undef WV_ATOM_SYS
WV_DEVICE uint32_t compare_exchange_relaxed_sys(uint32_t* p, uint32_t expected, uint32_t desired) {
  uint32_t old;
  asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(p), "r"(expected), "r"(desired)
               : "memory");
  return old;
}
WV_DEVICE uint64_t compare_exchange_relaxed_sys(uint64_t* p, uint64_t expected, uint64_t desired) {
  uint64_t old;
  asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(p), "l"(expected), "l"(desired)
               : "memory");
  return old;
}

// For sm_75 to sm_89 nvcc accepts `fence.release` and `fence.acquire` without a word and assembles
// them to an illegal opcode. Below sm_90 the wider fence takes their place.
#if __CUDA_ARCH__ >= 900
#define WV_FENCE_RELEASE "fence.release"
#define WV_FENCE_ACQUIRE "fence.acquire"
#else
#define WV_FENCE_RELEASE "fence.acq_rel"
#define WV_FENCE_ACQUIRE "fence.acq_rel"
#endif
WV_DEVICE void fence_release_cta() { asm volatile(WV_FENCE_RELEASE ".cta;" ::: "memory"); }
WV_DEVICE void fence_release() { asm volatile(WV_FENCE_RELEASE ".gpu;" ::: "memory"); }
WV_DEVICE void fence_release_sys() { asm volatile(WV_FENCE_RELEASE ".sys;" ::: "memory"); }
WV_DEVICE void fence_acquire() { asm volatile(WV_FENCE_ACQUIRE ".gpu;" ::: "memory"); }
WV_DEVICE void fence_acquire_sys() { asm volatile(WV_FENCE_ACQUIRE ".sys;" ::: "memory"); }
#undef WV_FENCE_RELEASE
#undef WV_FENCE_ACQUIRE
/// Acquires and releases.
WV_DEVICE void fence_acq_rel_cta() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
WV_DEVICE void fence_acq_rel() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
WV_DEVICE void fence_acq_rel_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
/// Fences sequentially consistently at system scope. A thread that stores one word, fences and
/// loads another needs it against a host that stores and loads in the reverse order.
WV_DEVICE void fence_sc_sys() { asm volatile("fence.sc.sys;" ::: "memory"); }

/// Returns four bytes of `a` (numbered 0 to 3) and `b` (4 to 7): byte i is the one that digit i of
/// `places` names.
WV_DEVICE uint32_t permute(uint32_t a, uint32_t b, uint32_t places) {
  return __byte_perm(a, b, places);
}
WV_DEVICE uint16_t byteswap(uint16_t v) { return static_cast<uint16_t>(__byte_perm(v, 0, 0x0001)); }
WV_DEVICE uint32_t byteswap(uint32_t v) { return __byte_perm(v, 0, 0x0123); }
WV_DEVICE uint64_t byteswap(uint64_t v) {
  return uint64_t{byteswap(static_cast<uint32_t>(v))} << 32 |
         byteswap(static_cast<uint32_t>(v >> 32));
}

/// Returns 0 in a way that the compiler cannot see. `aligned` is a multiple of 32.
///
/// An addend that may differ from lane to lane keeps ptxas from first summing up the atomic adds of
/// a warp. That sum would cost 17 instructions for each add, and gains nothing where one thread
/// adds.
WV_DEVICE uint32_t lane_zero(const void* aligned) {
  uint32_t zero;
  asm("{ .reg .u32 lane; mov.u32 lane, %%laneid; and.b32 %0, lane, %1; }"
      : "=r"(zero)
      : "r"(static_cast<uint32_t>(reinterpret_cast<uintptr_t>(aligned))));
  return zero;
}

/// Returns the time of a clock in ns that all SMs of the GPU share. Its step may be a microsecond.
WV_DEVICE uint64_t now_ns() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}
/// Returns a product, a sum or a quotient, rounded to nearest. These are never fused, so that a
/// result does not depend on the compiler.
WV_DEVICE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
WV_DEVICE float add_rn(float a, float b) { return __fadd_rn(a, b); }
WV_DEVICE float div_rn(float a, float b) { return __fdiv_rn(a, b); }
WV_DEVICE uint32_t float_bits(float v) { return __float_as_uint(v); }
WV_DEVICE float float_of(uint32_t bits) { return __uint_as_float(bits); }

/// Returns two halves: each is the larger of that half of the two words.
WV_DEVICE uint32_t max_of_halves(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }

/// Returns two numbers as FP8 (e4m3), `low` in the lower byte: nearest, ties to even. A number that
/// is too large becomes the largest FP8, and a NaN stays a NaN.
#if __CUDA_ARCH__ >= 890
#define WV_HAS_E4M3 1
WV_DEVICE uint32_t floats_to_e4m3(float low, float high) {
  uint16_t codes;
  asm volatile("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}
#endif

/// Prefetches the 128 bytes at `p` into L2. This is a hint, and orders nothing.
WV_DEVICE void prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p) : "memory");
}

/// Waits for all threads of a cooperative grid, and orders memory among them.
WV_DEVICE void grid_sync() { cooperative_groups::this_grid().sync(); }

/// Tells the twin, which counts it, that this thread issues so many loads before it uses any of
/// them.
WV_DEVICE void note_loads(uint32_t) {}

/// The part of a function whose end the lanes of a warp leave together, for the twin. After a
/// divergent branch or loop the compiler makes lanes that entered it together wait for each other.
struct Divergence {
  WV_DEVICE Divergence() {}
};

/// Pauses between two looks at memory that others change.
WV_DEVICE void pause() { asm volatile("nanosleep.u32 32;" ::: "memory"); }

}  // namespace wv::platform
