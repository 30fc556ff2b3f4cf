// Atomics on words of a peer: fetch-add, compare-swap, swap, and, or, exclusive or, on 4 and 8
// bytes.
//
// These operations are atomic against each other and against other NICs' operations on the peer's
// memory, if all go through the peer's one HCA. Against loads, stores and atomics of the peer's own
// kernels they are only as atomic as the peer's PCIe is. So access a word either by NICs or by
// kernels.
#pragma once

#include "detail/atomic.cuh"
#include "post.cuh"

namespace wv {

/// The operation of one thread or lane. T has 4 or 8 bytes.
template <class T>
struct Amo {
  /// The word, at a multiple of its size.
  RemoteAddr dst;
  T value;
  /// The value that compare_swap expects.
  T compare{};
  /// The place of the old value, at a multiple of its size; read it with `amo_result`. Address 0:
  /// the caller does not want the old value.
  LocalAddr result{};
};

/// Does `Op` to a word of the peer. In a warp or block each active thread does it to its own word,
/// in the order of the threads. Several threads may name the same word. Each result must have a
/// place of its own.
///
/// The operation takes effect after everything that was posted before on this QP. The old value is
/// at `result` when `wait_data` has returned `ok` for the ticket. The library never repeats an
/// atomic: after an error the operation may or may not have happened.
///
/// A call takes one WQEBB per thread. For `swap`, `and` and `or` of 8 bytes it takes two per thread
/// and one more.
///
/// @return as `put`. `invalid` also in three cases: the device cannot do the operation
/// (`QpContext::atomics`), an address is not a multiple of the word's size, or a thread names no
/// place for its result and the QP has no `QpContext::atomic_sink`.
template <AmoOp Op, class Scope, class Q, class T>
WV_DEVICE Posted amo(Scope scope, const Q& qp, const Amo<T>& what, const PostOptions& options,
                     bool active = true) {
  constexpr bool WIDE = detail::IS_WIDE<Op, T>;
  const LocalAddr result = what.result.addr != 0 ? what.result : detail::sink(qp.context);
  const bool bad = what.dst.addr % sizeof(T) != 0 || result.addr % sizeof(T) != 0 ||
                   result.addr == 0 || !detail::can<Op, T>(qp.context);
  if (scope.any(active && bad)) return {Status::invalid, {0}};
  const Place place = scope.place(active);
  if (place.count == 0) return {Status::invalid, {0}};
  const uint32_t n = WIDE ? 2 * place.count + 1 : place.count;
  return detail::post(scope, qp, n, options, [&](uint64_t index, bool last) {
    if (active) {
      const bool first = options.fence && place.before == 0;
      const bool end = last && !WIDE && place.before + 1 == place.count;
      detail::write_amo<Op>(qp, index + (WIDE ? 2 : 1) * uint64_t{place.before},
                            wqe::control(end, first), what.dst, what.value, what.compare, result);
    }
    // The CQE of a WQE of two WQEBBs would name its first WQEBB, so a NOP reports the completion.
    if (WIDE && scope.leader()) wqe::write_nop(qp, index + n - 1, wqe::control(last, false));
  });
}

/// Returns the old value that an atomic on `qp` left at `result`, in the byte order of the CPU.
/// Call this after `wait_data`.
template <class T, class Q>
WV_DEVICE T amo_result(const Q& qp, const T* result) {
  static_assert(detail::IS_AMO_WORD<T>, "4 or 8 bytes");
  using Word = detail::AmoWord<T>;
  Word word = platform::load_relaxed_sys(reinterpret_cast<const Word*>(result));
  // An old value of 4 bytes is big-endian on every device.
  const bool be = sizeof(T) == 4 || (detail::atomics(qp.context) & ATOMIC_RESULT_BE) != 0;
  if (be) word = platform::byteswap(word);
  T value;
  memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace wv
