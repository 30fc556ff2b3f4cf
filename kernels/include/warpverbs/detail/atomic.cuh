// Atomics as WQEs: which atomics the device can do, of what WQEs each consists, and where results
// go. For amo.cuh and signals.
#pragma once

#include <type_traits>

#include "wqe.cuh"

namespace wv {

/// The new value of the word `w` at the peer, by operation. Each operation returns the old value.
enum class AmoOp {
  /// w + value
  fetch_add,
  /// value if w == compare, else w
  compare_swap,
  /// value
  swap,
  /// w & value
  fetch_and,
  /// w | value
  fetch_or,
  /// w ^ value
  fetch_xor,
};

namespace detail {

template <class T>
inline constexpr bool IS_AMO_WORD = sizeof(T) == 4 || sizeof(T) == 8;

/// The unsigned integer type with the size of T.
template <class T>
using AmoWord = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

/// True if the operation takes the masked compare-and-swap of 8 bytes, which has two WQEBBs.
template <AmoOp Op, class T>
inline constexpr bool IS_WIDE =
    sizeof(T) == 8 && (Op == AmoOp::swap || Op == AmoOp::fetch_and || Op == AmoOp::fetch_or);

/// The bit of `QpContext::atomics` that the operation needs.
template <AmoOp Op, class T>
inline constexpr uint32_t CAPABILITY =
    sizeof(T) == 4                                        ? ATOMIC_MASKED_32
    : Op == AmoOp::fetch_add || Op == AmoOp::compare_swap ? ATOMIC_64
                                                          : ATOMIC_MASKED_64;

WV_DEVICE uint32_t atomics(const QpContext* context) {
  return platform::load_const(&context->atomics);
}

template <AmoOp Op, class T>
WV_DEVICE bool can(const QpContext* context) {
  static_assert(IS_AMO_WORD<T>, "4 or 8 bytes");
  return (atomics(context) & CAPABILITY<Op, T>) != 0;
}

/// Returns the address for results that no caller asked for.
WV_DEVICE LocalAddr sink(const QpContext* context) {
  const auto* const word = reinterpret_cast<const uint64_t*>(&context->atomic_sink);
  return {platform::load_const(word), platform::load_const(&context->atomic_sink_lkey_be)};
}
WV_DEVICE bool has_sink(const QpContext* context) { return sink(context).addr != 0; }

/// Writes the WQE of an atomic: two WQEBBs if IS_WIDE, else one.
///
/// And, or and swap are masked swaps that compare nothing. Exclusive or is an addition in which no
/// bit carries.
template <AmoOp Op, class T, class Q>
WV_DEVICE void write_amo(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst, T value,
                         T compare, LocalAddr result) {
  using Word = AmoWord<T>;
  constexpr Word ALL = ~Word{0};
  Word word, other;
  memcpy(&word, &value, sizeof word);
  memcpy(&other, &compare, sizeof other);
  if constexpr (Op == AmoOp::fetch_add) {
    if constexpr (sizeof(T) == 8) {
      wqe::write_fetch_add(qp, index, control, dst, word, result);
    } else {
      wqe::write_masked_add(qp, index, control, dst, word, Word{0}, result);
    }
  } else if constexpr (Op == AmoOp::compare_swap) {
    if constexpr (sizeof(T) == 8) {
      wqe::write_compare_swap(qp, index, control, dst, other, word, result);
    } else {
      wqe::write_masked_swap(qp, index, control, dst, wqe::MaskedSwap<Word>{word, other, ALL, ALL},
                             result);
    }
  } else if constexpr (Op == AmoOp::fetch_xor) {
    wqe::write_masked_add(qp, index, control, dst, word, ALL, result);
  } else {
    constexpr bool AND = Op == AmoOp::fetch_and;
    const Word mask = Op == AmoOp::swap ? ALL : AND ? ~word : word;
    wqe::write_masked_swap(qp, index, control, dst,
                           wqe::MaskedSwap<Word>{AND ? Word{0} : word, 0, mask, 0}, result);
  }
}

}  // namespace detail
}  // namespace wv
