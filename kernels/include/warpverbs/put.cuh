// Posting: put, put_inline, signal, put_signal, flush. For one thread or for the 32 lanes of a
// warp.
//
// A call admits and reserves once, every lane writes its WQE, and one doorbell covers all. It
// returns when the work is posted, not when it is done: `wait` (wait.cuh) waits for the ticket.
//
// Order: what one QP carries takes effect at the peer in the order of the indices, so a signal
// posted behind data on the same QP lands after it. Two QPs promise nothing to each other.
//
// Sources: what the calling threads have written, or know of by a barrier, when they call is what
// the NIC reads; the release fence of the post sees to it. A source must not change until its
// ticket, or one that was posted later on the same QP, is done. Inline bytes are copied.
#pragma once

#include "coop.cuh"
#include "peer.cuh"
#include "sq.cuh"
#include "wqe.cuh"

namespace wv {

/// How to post.
struct PostOptions {
  /// When waiting for ring space ends.
  Deadline deadline;
  /// Report the completion, so that the ticket can be waited for. Costs the NIC one CQE; else every
  /// quarter of a ring has one.
  bool signalled = true;
  /// Do not wait for ring space: `would_block`.
  bool try_only = false;
};

/// What one thread or lane puts: `bytes` (1 to MAX_PUT_BYTES) from `src` to `dst`.
struct Put {
  RemoteAddr dst;
  LocalAddr src;
  uint32_t bytes;
};

namespace detail {

// One batch of n WQEBBs: the leader admits, reserves and publishes; `write(index, last)` is called
// by all threads of the scope and writes WQEs below index + n; `last` says whether WQE index + n -
// 1 must be signalled.
template <class Scope, Sharing S, class Write>
WV_DEVICE Posted post(Scope scope, const Qp<S>& qp, uint32_t n, const PostOptions& options,
                      Write write) {
  Status status = Status::invalid;
  uint64_t index = 0;
  if (scope.leader() && n != 0 && n <= sq::max_batch(qp)) {
    status = sq::admit(qp, n, options.deadline, options.try_only);
    if (status == Status::ok) index = sq::reserve(qp, n);
  }
  status = scope.broadcast(status);
  if (status != Status::ok) return {status, {0}};
  index = scope.broadcast(index);
  write(index, options.signalled || sq::passes_quarter(qp, index, n));
  scope.sync();  // the lanes' WQEs before the leader's release fence, which is cumulative
  if (scope.leader()) sq::publish(qp, index, n);
  return {Status::ok, {index + n}};
}

WV_DEVICE bool valid(const Put& put) { return put.bytes - 1 < MAX_PUT_BYTES; }

}  // namespace detail

/// Puts `what`. Warp: each lane whose `active` is set puts its own `what`, lowest lane first.
///
/// @return the ticket, the same for all lanes; `invalid` if a length is 0 or over MAX_PUT_BYTES,
/// nobody is active, or more WQEBBs are needed than a quarter of the ring has; otherwise as
/// sq::admit. Nothing is posted unless `ok`.
template <class Scope, Sharing S>
WV_DEVICE Posted put(Scope scope, const Qp<S>& qp, const Put& what, const PostOptions& options,
                     bool active = true) {
  if (scope.any(active && !detail::valid(what))) return {Status::invalid, {0}};
  const uint32_t n = scope.count(active), place = scope.before(active);
  return detail::post(scope, qp, n, options, [&](uint64_t index, bool last) {
    if (!active) return;
    wqe::write_put(qp, index + place, last && place == n - 1, what.dst, what.src, what.bytes);
  });
}

/// Puts `value` (4 to 28 bytes, a multiple of 4) from registers to `dst`. Warp: each active lane
/// puts its own.
///
/// The peer sees each 8-byte word at an 8-byte boundary whole, but not several words at once: who
/// waits for one of them may still find the old value of another.
/// @return as put.
template <class Scope, Sharing S, class T>
WV_DEVICE Posted put_inline(Scope scope, const Qp<S>& qp, RemoteAddr dst, const T& value,
                            const PostOptions& options, bool active = true) {
  const uint32_t n = scope.count(active), place = scope.before(active);
  return detail::post(scope, qp, n, options, [&](uint64_t index, bool last) {
    if (!active) return;
    wqe::write_inline(qp, index + place, last && place == n - 1, dst, wqe::payload(value));
  });
}

/// Writes `value` to a signal word of the peer, once for the scope: the leader's arguments count.
///
/// It lands after everything that was posted before on this QP. @return as put.
template <class Scope, Sharing S, class T>
WV_DEVICE Posted signal(Scope scope, const Qp<S>& qp, RemoteAddr dst, const T& value,
                        const PostOptions& options) {
  return put_inline(scope, qp, dst, value, options, scope.leader());
}

/// Puts `what` as `put` does and `value` to `signal_dst` behind it: one reservation, one doorbell.
///
/// Warp: the leader's signal lands after the data of all lanes; n + 1 WQEBBs. The peer that sees
/// `value` by `wait_signal` may read the data. @return as put; the ticket covers data and signal.
template <class Scope, Sharing S, class T>
WV_DEVICE Posted put_signal(Scope scope, const Qp<S>& qp, const Put& what, RemoteAddr signal_dst,
                            const T& value, const PostOptions& options, bool active = true) {
  if (scope.any(active && !detail::valid(what))) return {Status::invalid, {0}};
  const uint32_t puts = scope.count(active), place = scope.before(active);
  if (puts == 0) return {Status::invalid, {0}};
  return detail::post(scope, qp, puts + 1, options, [&](uint64_t index, bool last) {
    if (active) wqe::write_put(qp, index + place, false, what.dst, what.src, what.bytes);
    if (scope.leader()) {
      wqe::write_inline(qp, index + puts, last, signal_dst, wqe::payload(value));
    }
  });
}

/// Posts a signalled NOP: its ticket is done when everything posted before on this QP is. For work
/// that was not signalled.
template <class Scope, Sharing S>
WV_DEVICE Posted flush(Scope scope, const Qp<S>& qp, Deadline deadline) {
  return detail::post(scope, qp, 1, PostOptions{deadline}, [&](uint64_t index, bool) {
    if (scope.leader()) wqe::write_nop(qp, index);
  });
}

}  // namespace wv
