// Scopes, fences and loads of special kinds, as the checker of a build with -fsanitize=thread wants
// to know them (crates/simt/src/check). In other builds they are what the CPU needs and no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace simt {

// How far a fence or an atomic reaches (PTX .cta, .gpu, .sys).
enum class Scope : unsigned char { block = 0, gpu = 1, system = 2 };

// What a fence orders.
enum class Fence : unsigned { acquire = 1, release = 2, both = 3 };

}  // namespace simt

extern "C" {
// Counts a fence that is wider than a block (`LaunchStats::fences`).
void simt_count_fence(void);
}

#ifdef SIMT_TSAN

extern "C" {
extern __thread unsigned char simt_scope_tls __attribute__((tls_model("initial-exec")));
void simt_check_fence(uint32_t what, uint32_t scope);
void* simt_copy(void* to, const void* from, unsigned long bytes);
void* simt_fill(void* to, int byte, unsigned long bytes);
void simt_note_constant(const void* from, unsigned long bytes);
void simt_store_weak(uint64_t* to, uint64_t lo, uint64_t hi);
}

namespace simt {

// The atomics of one function have this scope. Not across a schedule point.
class Scoped {
 public:
  __attribute__((no_sanitize("thread"))) explicit Scoped(Scope scope) {
    simt_scope_tls = static_cast<unsigned char>(scope);
  }
  __attribute__((no_sanitize("thread"))) ~Scoped() {
    simt_scope_tls = static_cast<unsigned char>(Scope::system);
  }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;
};

inline void fence(Fence what, Scope scope) {
  if (scope != Scope::block) simt_count_fence();
  simt_check_fence(static_cast<uint32_t>(what), static_cast<uint32_t>(scope));
}

// 16 bytes, weak, that devices may read meanwhile.
inline void store_weak16(uint64_t* to, uint64_t lo, uint64_t hi) { simt_store_weak(to, lo, hi); }

// A load through the non-coherent path.
template <class T>
inline T load_constant(const T* from) {
  simt_note_constant(from, sizeof(T));
  T value;
  __builtin_memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace simt

// gcc leaves longer copies to the sanitizer's own memcpy.
#define memcpy(to, from, bytes)                                                     \
  (__builtin_constant_p(bytes) && (bytes) <= 16 ? __builtin_memcpy(to, from, bytes) \
                                                : simt_copy(to, from, bytes))
#define memset(to, byte, bytes) simt_fill(to, byte, bytes)

#else

namespace simt {

class Scoped {
 public:
  explicit Scoped(Scope) {}
};

inline void fence(Fence what, Scope scope) {
  if (scope != Scope::block) simt_count_fence();
  if (what == Fence::acquire) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
  } else if (what == Fence::release) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
  } else if (scope == Scope::block) {
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
  } else {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
  }
}

inline void store_weak16(uint64_t* to, uint64_t lo, uint64_t hi) {
  __atomic_store_n(to, lo, __ATOMIC_RELAXED);
  __atomic_store_n(to + 1, hi, __ATOMIC_RELAXED);
}

template <class T>
inline T load_constant(const T* from) {
  return *from;
}

}  // namespace simt

#endif

// A load through the read-only path; on the CPU a load.
template <class T>
inline T __ldg(const T* from) {
  return simt::load_constant(from);
}
