// Posting data: put, put_value, signal, put_signal. For one thread, the 32 lanes of a warp, or all
// threads of a block.
//
// Sources: what the calling threads have written, or know of by a barrier, when they call is what
// the NIC reads; the release fence of the post sees to it. A source must not change until its
// ticket, or one that was posted later on the same QP, is done. Inline bytes are copied.
#pragma once

#include "peer.cuh"
#include "post.cuh"

namespace wv {

/// What one thread or lane puts: `bytes` (1 to MAX_PUT_BYTES) from `src` to `dst`.
struct Put {
  RemoteAddr dst;
  LocalAddr src;
  uint32_t bytes;
};

namespace detail {

WV_DEVICE bool valid(const Put& put) { return put.bytes - 1 < MAX_PUT_BYTES; }
/// The control byte of the WQE at `place` of a batch.
WV_DEVICE uint32_t control(Place place, bool last, const PostOptions& options) {
  return wqe::control(last && place.before + 1 == place.count, options.fence && place.before == 0);
}

}  // namespace detail

/// Puts `what`. Warp: each lane whose `active` is set puts its own `what`, lowest lane first.
///
/// @return the ticket, the same for all lanes; `invalid` if a length is 0 or over MAX_PUT_BYTES,
/// nobody is active, or more WQEBBs are needed than a quarter of the ring has; otherwise as
/// sq::admit. Nothing is posted unless `ok`.
template <class Scope, class Q>
WV_DEVICE Posted put(Scope scope, const Q& qp, const Put& what, const PostOptions& options,
                     bool active = true) {
  if (scope.any(active && !detail::valid(what))) return {Status::invalid, {0}};
  const Place place = scope.place(active);
  return detail::post(scope, qp, place.count, options, [&](uint64_t index, bool last) {
    if (!active) return;
    wqe::write_put(qp, index + place.before, detail::control(place, last, options), what.dst,
                   what.src, what.bytes);
  });
}

/// Puts `value` (4 to 28 bytes, a multiple of 4) from registers to `dst`. Warp: each active lane
/// puts its own.
///
/// The peer sees each 8-byte word at an 8-byte boundary whole, but not several words at once: who
/// waits for one of them may still find the old value of another.
/// @return as put.
template <class Scope, class Q, class T>
WV_DEVICE Posted put_value(Scope scope, const Q& qp, RemoteAddr dst, const T& value,
                           const PostOptions& options, bool active = true) {
  const Place place = scope.place(active);
  return detail::post(scope, qp, place.count, options, [&](uint64_t index, bool last) {
    if (!active) return;
    wqe::write_inline(qp, index + place.before, detail::control(place, last, options), dst,
                      wqe::payload(value));
  });
}

/// Writes `value` to a signal word of the peer, once for the scope: the leader's arguments count.
///
/// It lands after everything that was posted before on this QP. @return as put.
template <class Scope, class Q, class T>
WV_DEVICE Posted signal(Scope scope, const Q& qp, RemoteAddr dst, const T& value,
                        const PostOptions& options) {
  return put_value(scope, qp, dst, value, options, scope.leader());
}

/// Puts `what` as `put` does and `value` to `signal_dst` behind it: one reservation, one doorbell.
///
/// Warp: the leader's signal lands after the data of all lanes; n + 1 WQEBBs. The peer that sees
/// `value` by `wait_signal` may read the data. @return as put; the ticket covers data and signal.
template <class Scope, class Q, class T>
WV_DEVICE Posted put_signal(Scope scope, const Q& qp, const Put& what, RemoteAddr signal_dst,
                            const T& value, const PostOptions& options, bool active = true) {
  if (scope.any(active && !detail::valid(what))) return {Status::invalid, {0}};
  const Place place = scope.place(active);
  if (place.count == 0) return {Status::invalid, {0}};
  return detail::post(scope, qp, place.count + 1, options, [&](uint64_t index, bool last) {
    if (active) {
      wqe::write_put(qp, index + place.before, detail::control(place, false, options), what.dst,
                     what.src, what.bytes);
    }
    if (scope.leader()) {
      wqe::write_inline(qp, index + place.count, wqe::control(last, false), signal_dst,
                        wqe::payload(value));
    }
  });
}

}  // namespace wv
