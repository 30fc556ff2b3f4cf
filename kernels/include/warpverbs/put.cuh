// Posting data: put, put_two, put_value, signal, put_signal. For one thread, the 32 lanes of a
// warp, or all threads of a block.
//
// Sources: the NIC reads what the calling threads have written before the call, or know of by a
// barrier. The release fence of the post makes that visible. A source must not change until its
// ticket, or the ticket of a later post on the same QP, is done. Inline bytes are copied.
//
// With PostOptions::try_only each function returns `would_block` instead of waiting for ring space.
#pragma once

#include "detail/atomic.cuh"
#include "detail/combine.cuh"
#include "detail/transfer.cuh"

namespace wv {

/// What one thread or lane puts: `bytes` from `src` to `dst`. At least 1 byte. More than
/// MAX_PUT_BYTES (1 GiB) take one WQEBB for each MAX_PUT_BYTES, and arrive in pieces.
struct Put {
  RemoteAddr dst;
  LocalAddr src;
  uint64_t bytes;
};

/// Two pieces of local memory that go to `dst` one after the other. Each piece has at least 1 byte,
/// and both together have at most MAX_PUT_BYTES.
struct PutTwo {
  RemoteAddr dst;
  LocalAddr first;
  uint32_t first_bytes;
  LocalAddr second;
  uint32_t second_bytes;
};

/// The effect of a signal on the word at the peer.
enum class SignalOp {
  /// Overwrites the word: the default, where the device keeps the order of writes.
  write,
  /// Adds to the word of 4 or 8 bytes, atomically against other NIC operations, where the device
  /// can.
  add,
};

/// Puts `what`. In a warp or block each thread whose `active` is set puts its own `what`, lowest
/// thread first.
///
/// @return the ticket, equal for all threads. `invalid` if a length is 0, no thread is active, or
/// the call needs more WQEBBs than a quarter of the ring. Other failures are those of sq::admit.
/// Nothing is posted unless `ok`.
template <class Scope, class Q>
WV_DEVICE Posted put(Scope scope, const Q& qp, const Put& what, const PostOptions& options,
                     bool active = true) {
  const detail::Transfer transfer{what.dst, what.src, what.bytes, 0};
  return detail::transfer<detail::Kind::put>(scope, qp, transfer, options, active);
}

/// Puts two pieces by one WQE of one WQEBB. A warp or block acts as for put. @return as put.
template <class Scope, class Q>
WV_DEVICE Posted put_two(Scope scope, const Q& qp, const PutTwo& what, const PostOptions& options,
                         bool active = true) {
  const uint64_t bytes = uint64_t{what.first_bytes} + what.second_bytes;
  const bool bad = what.first_bytes == 0 || what.second_bytes == 0 || bytes > MAX_PUT_BYTES;
  if (scope.any(active && bad)) return {Status::invalid, {0}};
  const Place place = scope.place(active);
  return detail::post(scope, qp, place.count, options, [&](uint64_t index, bool last) {
    if (!active) return;
    wqe::write_put_two(qp, index + place.before, detail::control(place, last, options), what.dst,
                       what.first, what.first_bytes, what.second, what.second_bytes);
  });
}

/// Puts `value` (4 to 28 bytes, a multiple of 4) from registers to `dst`. In a warp or block each
/// active thread puts its own value. Lanes of one warp whose targets follow each other share a WQE
/// of up to 28 bytes: 32 lanes with 4 bytes each take 5 WQEs. A block whose size is no multiple of
/// 32 does not combine.
///
/// The peer sees each 8-byte word at an 8-byte boundary whole, but not several words at once. A
/// thread that sees the new value of one word may still find the old value of another.
/// @return as put.
template <class Scope, class Q, class T>
WV_DEVICE Posted put_value(Scope scope, const Q& qp, RemoteAddr dst, const T& value,
                           const PostOptions& options, bool active = true) {
  const detail::Piece piece = detail::combine(scope, dst, value, active);
  const Place place = scope.place(piece.head);
  return detail::post(scope, qp, place.count, options, [&](uint64_t index, bool last) {
    if (!piece.head) return;
    wqe::write_inline(qp, index + place.before, detail::control(place, last, options), dst,
                      piece.payload);
  });
}

namespace detail {

/// The signal that is posted after the data.
template <SignalOp Op, class T>
struct SignalTail {
  static constexpr uint32_t WQES = 1;
  RemoteAddr dst;
  T value;

  /// Returns whether the device can do the signal. Only an addition needs a capability.
  template <class Q>
  WV_DEVICE bool valid(const Q& qp) const {
    if constexpr (Op == SignalOp::write) {
      return true;
    } else {
      return dst.addr % sizeof(T) == 0 && has_sink(qp.context) &&
             can<AmoOp::fetch_add, T>(qp.context);
    }
  }
  template <class Q>
  WV_DEVICE void write(const Q& qp, uint64_t index, uint32_t control) const {
    if constexpr (Op == SignalOp::write) {
      wqe::write_inline(qp, index, control, dst, wqe::payload(value));
    } else {
      write_amo<AmoOp::fetch_add, T>(qp, index, control, dst, value, 0, sink(qp.context));
    }
  }
};

}  // namespace detail

/// Writes `value` (4 to 28 bytes, a multiple of 4) to a signal word of the peer.
/// `signal<SignalOp::add>` adds it instead (4 or 8 bytes at a multiple of their size). One signal
/// for the scope: the leader's arguments count.
///
/// The signal lands after everything that was posted before on this QP. An addition is an atomic:
/// the library does not repeat it, so after an error it may or may not have happened.
///
/// @return as put. `invalid` also for an addition that the device cannot do (`QpContext::atomics`),
/// or on a QP without `QpContext::atomic_sink`, which takes its result.
template <SignalOp Op = SignalOp::write, class Scope, class Q, class T>
WV_DEVICE Posted signal(Scope scope, const Q& qp, RemoteAddr dst, const T& value,
                        const PostOptions& options) {
  const detail::SignalTail<Op, T> tail{dst, value};
  if (Op == SignalOp::add && scope.any(scope.leader() && !tail.valid(qp))) {
    return {Status::invalid, {0}};
  }
  return detail::post(scope, qp, 1, options, [&](uint64_t index, bool last) {
    if (scope.leader()) tail.write(qp, index, wqe::control(last, options.fence));
  });
}

/// Puts `what` as `put` does and signals after it as `signal` does: one reservation, one doorbell.
///
/// In a warp or block the leader's signal lands after the data of all n active threads, and the
/// call takes n + 1 WQEBBs. The thread of the peer that sees `value` by `wait_signal` may read the
/// data. @return as put and signal; the ticket covers data and signal.
template <SignalOp Op = SignalOp::write, class Scope, class Q, class T>
WV_DEVICE Posted put_signal(Scope scope, const Q& qp, const Put& what, RemoteAddr signal_dst,
                            const T& value, const PostOptions& options, bool active = true) {
  const detail::SignalTail<Op, T> tail{signal_dst, value};
  if (Op == SignalOp::add && scope.any(scope.leader() && !tail.valid(qp))) {
    return {Status::invalid, {0}};
  }
  const detail::Transfer transfer{what.dst, what.src, what.bytes, 0};
  return detail::transfer<detail::Kind::put>(scope, qp, transfer, options, active, tail);
}

}  // namespace wv
