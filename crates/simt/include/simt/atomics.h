// CUDA's atomic functions: relaxed read-modify-writes that return the old value. Each is a schedule
// point. One that changed its word counts as progress; one that did not (a failed compare-and-swap,
// adding 0) is only a look.
#pragma once

#include <cstring>
#include <type_traits>

#include "bits.h"
#include "order.h"
#include "runtime.h"

namespace simt {

template <class T>
struct Same {
  using type = T;
};
// A parameter that takes no part in deduction, so that atomicAdd(&u32, 1) finds its type.
template <class T>
using Value = typename Same<T>::type;

template <class T>
struct AtomicWord {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics exist for 4 and 8 bytes");
  static_assert(std::is_arithmetic<T>::value, "atomics exist for integers and floating point");
  using type = typename std::conditional<sizeof(T) == 4, unsigned, unsigned long>::type;
};

// The plain names have scope gpu.
template <class T, class Update>
inline T atomic_update(Scope scope, T* address, Update update) {
  using Word = typename AtomicWord<T>::type;
  simt_yield();
  const Scoped scoped(scope);
  Word* const word = reinterpret_cast<Word*>(address);
  Word old_bits = __atomic_load_n(word, __ATOMIC_RELAXED), new_bits;
  T old;
  do {
    memcpy(&old, &old_bits, sizeof old);
    const T next = update(old);
    memcpy(&new_bits, &next, sizeof next);
  } while (!__atomic_compare_exchange_n(word, &old_bits, new_bits, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
  if (new_bits != old_bits) simt_progress();
  return old;
}

template <class T>
inline T atomic_add(Scope scope, T* address, Value<T> value) {
  if constexpr (std::is_integral<T>::value) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "atomics exist for 4 and 8 bytes");
    simt_yield();
    const Scoped scoped(scope);
    const T old = __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
    if (value != 0) simt_progress();
    return old;
  } else {
    return atomic_update(scope, address, [value](T old) { return old + value; });
  }
}
template <class T>
inline T atomic_sub(Scope scope, T* address, Value<T> value) {
  static_assert(std::is_integral<T>::value, "integers only");
  using Unsigned = typename std::make_unsigned<T>::type;
  return atomic_add(scope, address, static_cast<T>(Unsigned(0) - static_cast<Unsigned>(value)));
}
template <class T>
inline T atomic_exch(Scope scope, T* address, Value<T> value) {
  using Word = typename AtomicWord<T>::type;
  simt_yield();
  const Scoped scoped(scope);
  const Word next = bit_cast<Word>(static_cast<T>(value));
  const Word old = __atomic_exchange_n(reinterpret_cast<Word*>(address), next, __ATOMIC_RELAXED);
  if (old != next) simt_progress();
  return bit_cast<T>(old);
}
template <class T>
inline T atomic_cas(Scope scope, T* address, Value<T> compare, Value<T> value) {
  static_assert(std::is_integral<T>::value, "integers only");
  using Word = typename AtomicWord<T>::type;
  simt_yield();
  const Scoped scoped(scope);
  Word old = static_cast<Word>(compare);
  const bool swapped =
      __atomic_compare_exchange_n(reinterpret_cast<Word*>(address), &old, static_cast<Word>(value),
                                  false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  if (swapped && compare != value) simt_progress();
  return static_cast<T>(old);
}
template <class T>
inline T atomic_min(Scope scope, T* address, Value<T> value) {
  return atomic_update(scope, address, [value](T old) { return value < old ? value : old; });
}
template <class T>
inline T atomic_max(Scope scope, T* address, Value<T> value) {
  return atomic_update(scope, address, [value](T old) { return old < value ? value : old; });
}
template <class T>
inline T atomic_and(Scope scope, T* address, Value<T> value) {
  return atomic_update(scope, address, [value](T old) { return static_cast<T>(old & value); });
}
template <class T>
inline T atomic_or(Scope scope, T* address, Value<T> value) {
  return atomic_update(scope, address, [value](T old) { return static_cast<T>(old | value); });
}
template <class T>
inline T atomic_xor(Scope scope, T* address, Value<T> value) {
  return atomic_update(scope, address, [value](T old) { return static_cast<T>(old ^ value); });
}

}  // namespace simt

// Scopes make no difference on the CPU; the checker of a sanitizer build looks at them.
#define SIMT_ATOMIC(name, function)                             \
  template <class T>                                            \
  inline T name(T* address, simt::Value<T> value) {             \
    return simt::function(simt::Scope::gpu, address, value);    \
  }                                                             \
  template <class T>                                            \
  inline T name##_block(T* address, simt::Value<T> value) {     \
    return simt::function(simt::Scope::block, address, value);  \
  }                                                             \
  template <class T>                                            \
  inline T name##_system(T* address, simt::Value<T> value) {    \
    return simt::function(simt::Scope::system, address, value); \
  }
SIMT_ATOMIC(atomicAdd, atomic_add)
SIMT_ATOMIC(atomicSub, atomic_sub)
SIMT_ATOMIC(atomicExch, atomic_exch)
SIMT_ATOMIC(atomicMin, atomic_min)
SIMT_ATOMIC(atomicMax, atomic_max)
SIMT_ATOMIC(atomicAnd, atomic_and)
SIMT_ATOMIC(atomicOr, atomic_or)
SIMT_ATOMIC(atomicXor, atomic_xor)
#undef SIMT_ATOMIC

template <class T>
inline T atomicCAS(T* address, simt::Value<T> compare, simt::Value<T> value) {
  return simt::atomic_cas(simt::Scope::gpu, address, compare, value);
}
template <class T>
inline T atomicCAS_block(T* address, simt::Value<T> compare, simt::Value<T> value) {
  return simt::atomic_cas(simt::Scope::block, address, compare, value);
}
template <class T>
inline T atomicCAS_system(T* address, simt::Value<T> compare, simt::Value<T> value) {
  return simt::atomic_cas(simt::Scope::system, address, compare, value);
}

// Counts up to `limit`, then starts at 0; counts down to 0, then starts at `limit`.
inline unsigned atomicInc(unsigned* address, unsigned limit) {
  return simt::atomic_update(simt::Scope::gpu, address,
                             [limit](unsigned old) { return old >= limit ? 0u : old + 1; });
}
inline unsigned atomicDec(unsigned* address, unsigned limit) {
  return simt::atomic_update(simt::Scope::gpu, address, [limit](unsigned old) {
    return old == 0 || old > limit ? limit : old - 1;
  });
}
