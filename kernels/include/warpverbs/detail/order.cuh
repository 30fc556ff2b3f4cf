// The scopes of a post's words and fences. Only this file decides them.
//
// - Flags, claim and resv: block scope on a cta QP, else gpu scope.
// - Fences that the NIC depends on: system scope when ring and record lie in host memory, else gpu
//   scope.
// - With WV_STRICT defined, flag words are read with acquire and fences are acquire and release, as
//   the PTX memory model asks. Without it the code relies on L2 as the point where SMs and NIC
//   meet.
#pragma once

#include "../qp.cuh"

namespace wv::order {

#ifdef WV_STRICT
inline constexpr bool STRICT = true;
#else
inline constexpr bool STRICT = false;
#endif

template <class Q>
WV_DEVICE uint64_t load_flag(const Q&, const uint64_t* flag) {
  if constexpr (Q::is_cta()) {
    return STRICT ? platform::load_acquire_cta(flag) : platform::load_relaxed_cta(flag);
  } else {
    return STRICT ? platform::load_acquire(flag) : platform::load_relaxed(flag);
  }
}
template <class Q>
WV_DEVICE uint64_t exchange_flag(const Q&, uint64_t* flag, uint64_t value) {
  if constexpr (Q::is_cta()) return platform::exchange_relaxed_cta(flag, value);
  return STRICT ? platform::exchange_acquire(flag, value) : platform::exchange_relaxed(flag, value);
}
/// Returns whether `flag` was `expected`, and is `desired` now.
template <class Q>
WV_DEVICE bool swap_flag(const Q&, uint64_t* flag, uint64_t expected, uint64_t desired) {
  const uint64_t old = Q::is_cta() ? platform::compare_exchange_relaxed_cta(flag, expected, desired)
                                   : platform::compare_exchange_relaxed(flag, expected, desired);
  return old == expected;
}

/// Loads `claim` or `resv`.
template <class Q>
WV_DEVICE uint64_t load_index(const Q&, const uint64_t* index) {
  return Q::is_cta() ? platform::load_relaxed_cta(index) : platform::load_relaxed(index);
}
template <class Q>
WV_DEVICE uint64_t add_index(const Q& qp, uint64_t* index, uint32_t n) {
  const uint64_t addend = n | platform::lane_zero(qp.context);
  return Q::is_cta() ? platform::add_relaxed_cta(index, addend)
                     : platform::add_relaxed(index, addend);
}
/// Takes an addition of `n` back.
template <class Q>
WV_DEVICE void undo_index(const Q&, uint64_t* index, uint64_t n) {
  return Q::is_cta() ? platform::reduce_add_cta(index, ~n + 1)
                     : platform::reduce_add(index, ~n + 1);
}

/// Releases towards the NIC, and towards the next holder of the token.
template <class Q>
WV_DEVICE void fence_nic(const Q& qp) {
  if (qp.in_host_memory()) {
    STRICT ? platform::fence_acq_rel_sys() : platform::fence_release_sys();
  } else {
    STRICT ? platform::fence_acq_rel() : platform::fence_release();
  }
}

/// Releases towards the holder of the token, before a batch is published or the token moves. On a
/// cta QP the holder then releases to the NIC; on others this fence reaches the NIC as well.
template <class Q>
WV_DEVICE void fence_publish(const Q& qp) {
  if constexpr (Q::is_cta()) {
    STRICT ? platform::fence_acq_rel_cta() : platform::fence_release_cta();
  } else {
    fence_nic(qp);
  }
}

}  // namespace wv::order
