// What every operation is built on: one batch of WQEs, posted by a scope. And the operations that
// move no bytes: flush and fence.
//
// A call admits and reserves once, every thread writes its WQEs, and one doorbell covers all. It
// returns when the work is posted, not when it is done: `wait` (wait.cuh) waits for the ticket.
//
// Order: what one QP carries takes effect at the peer in the order of the indices. So a signal
// posted after data on the same QP lands after it. Two QPs promise nothing to each other.
#pragma once

#include "coop.cuh"
#include "detail/sq.cuh"
#include "detail/wqe.cuh"

namespace wv {

/// How to post.
struct PostOptions {
  /// When waiting for ring space ends; left out, at once.
  Deadline deadline;
  /// Report the completion, so that the ticket can be waited for. Costs the NIC one CQE; else every
  /// quarter of a ring has one.
  bool signalled = true;
  /// Do not wait for ring space: `would_block`.
  bool try_only = false;
  /// More follows: the doorbell may be held back. The work runs when a later post, `flush` or a
  /// wait for its ticket rings; nothing else is promised.
  bool more = false;
  /// The first WQE of the call starts when all earlier reads and atomics of the QP are done.
  bool fence = false;
};

namespace detail {

/// One batch of `n` WQEBBs: the leader admits, reserves and publishes. All threads of the scope
/// call `write(index, last)`, which writes WQEs below index + n. `last` says whether the WQE at
/// index + n - 1 must be signalled. That WQE is one WQEBB long.
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
      // All of it in the branch that has the claim. A lane that waited with its claim for other
      // lanes of its warp could wait for lanes that wait for its space.
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
    scope.sync();  // the threads' WQEs before the leader's release fence, which is cumulative
    if (scope.leader()) sq::publish(qp, index, n, held);
  }
  return {Status::ok, {index + n, held}};
}

}  // namespace detail

/// Rings everything that was held back. Gives a ticket that is done when all earlier posts on this
/// QP are, signalled or not. It posts a signalled NOP, unless everything is done already. Once per
/// scope.
/// @return as put.
template <class Scope, class Q>
WV_DEVICE Posted flush(Scope scope, const Q& qp, Deadline deadline) {
  bool idle = false;
  if (scope.leader()) {
    // resv before cons: what is below resv here is done if cons is not behind it.
    const uint64_t resv = order::load_index(qp, &qp.context->resv);
    idle = platform::load_relaxed(&qp.context->cons) >= resv;
  }
  if (scope.broadcast(uint32_t{idle}) != 0) return {Status::ok, Ticket::done()};
  return detail::post(scope, qp, 1, PostOptions{deadline}, [&](uint64_t index, bool last) {
    if (scope.leader()) wqe::write_nop(qp, index, wqe::control(last, false));
  });
}

/// What is posted on this QP after it starts when all earlier reads and atomics of the QP are done.
/// Writes need none: they keep their order by themselves. Once per scope.
///
/// Posts a NOP that waits. @return as put.
template <class Scope, class Q>
WV_DEVICE Posted fence(Scope scope, const Q& qp, const PostOptions& options) {
  return detail::post(scope, qp, 1, options, [&](uint64_t index, bool last) {
    if (scope.leader()) wqe::write_nop(qp, index, wqe::control(last, true));
  });
}

}  // namespace wv
