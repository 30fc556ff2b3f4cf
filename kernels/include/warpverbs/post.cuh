// The base of every operation: one batch of WQEs, posted by a scope. Also the operations that move
// no bytes: flush and fence.
//
// The leader admits and reserves once, every thread writes its WQEs, and one doorbell covers all. A
// call returns when the work is posted, not when it is done: `wait` (wait.cuh) waits for the
// ticket.
//
// Order: the work of one QP takes effect at the peer in the order of the indices. So a signal
// posted after data on the same QP lands after the data. Two QPs have no order between them.
#pragma once

#include "coop.cuh"
#include "detail/sq.cuh"
#include "detail/wqe.cuh"

namespace wv {

/// Options of a post.
struct PostOptions {
  /// The end of a wait for ring space. The default ends it at once.
  Deadline deadline;
  /// Reports the completion, so that a thread can wait for the ticket. That costs the NIC one CQE.
  /// Without this, only every quarter of a ring has a CQE.
  bool signalled = true;
  /// Never waits for ring space: returns `would_block` instead.
  bool try_only = false;
  /// More posts follow, so the doorbell may be held back. The work runs when a later post, `flush`
  /// or a wait for its ticket rings. Without one of these it may never run.
  bool more = false;
  /// The first WQE of the call starts only when all earlier reads and atomics of the QP are done.
  bool fence = false;
};

namespace detail {

/// Posts one batch of `n` WQEBBs: the leader admits, reserves and publishes. All threads of the
/// scope call `write(index, last)`, which writes the WQEs below index + n. `last` says whether the
/// WQE at index + n - 1, which is one WQEBB long, must be signalled.
template <class Scope, class Q, class Write>
WV_DEVICE Posted post(Scope scope, const Q& qp, uint32_t n, const PostOptions& options,
                      Write write) {
  uint64_t index = 0;
  bool held = false;
  const auto fill = [&] {
    const bool passes = sq::passes_quarter(qp, index, n);
    held = options.more && !passes;
    write(index, options.signalled || passes);
  };
  Status status = Status::invalid;
  const bool fits = n != 0 && n <= sq::max_batch(qp);
  if constexpr (Scope::is_thread() && !Q::is_exclusive()) {
    if (fits) {
      // The thread does all of this in the branch that has the claim. If it held its claim while it
      // waited for other lanes of its warp, it could wait for lanes that wait for its ring space.
      status = sq::admit(qp, n, options.deadline, options.try_only, [&] {
        index = sq::reserve(qp, n);
        fill();
        sq::publish(qp, index, n, held);
      });
    }
    if (status != Status::ok) return {status, {0}};
  } else {
    if (scope.leader() && fits) {
      status =
          sq::admit(qp, n, options.deadline, options.try_only, [&] { index = sq::reserve(qp, n); });
    }
    status = scope.broadcast(status);
    if (status != Status::ok) return {status, {0}};
    index = scope.broadcast(index);
    fill();
    scope.sync();  // orders the threads' WQEs before the leader's cumulative release fence
    if (scope.leader()) sq::publish(qp, index, n, held);
  }
  return {Status::ok, {index + n, held}};
}

}  // namespace detail

/// Rings for everything that was held back. Returns a ticket that is done when all earlier posts on
/// this QP are done, signalled or not. Posts a signalled NOP, unless everything is done already.
/// Once per scope.
/// @return as put.
template <class Scope, class Q>
WV_DEVICE Posted flush(Scope scope, const Q& qp, Deadline deadline) {
  bool idle = false;
  if (scope.leader()) {
    // `resv` is read before `cons`: if `cons` has reached that `resv`, everything below it is done.
    const uint64_t resv = order::load_index(qp, &qp.context->resv);
    idle = platform::load_relaxed(&qp.context->cons) >= resv;
  }
  if (scope.broadcast(uint32_t{idle}) != 0) return {Status::ok, Ticket::done()};
  return detail::post(scope, qp, 1, PostOptions{deadline}, [&](uint64_t index, bool last) {
    if (scope.leader()) wqe::write_nop(qp, index, wqe::control(last, false));
  });
}

/// Makes later work on this QP start only when all earlier reads and atomics of the QP are done.
/// Writes need no fence among themselves, since they keep their order. Once per scope.
///
/// Posts a NOP with the fence bit. @return as put.
template <class Scope, class Q>
WV_DEVICE Posted fence(Scope scope, const Q& qp, const PostOptions& options) {
  return detail::post(scope, qp, 1, options, [&](uint64_t index, bool last) {
    if (scope.leader()) wqe::write_nop(qp, index, wqe::control(last, true));
  });
}

}  // namespace wv
