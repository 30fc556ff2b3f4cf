// Waiting: for a ticket (this rank's own work is done), for a signal (a peer's data is here), for a
// QP to be quiet.
#pragma once

#include "coop.cuh"
#include "cq.cuh"
#include "put.cuh"
#include "spin.cuh"

namespace wv {

/// Waits until the post behind `ticket`, and everything before it on this QP, is done: the bytes
/// are in the peer's memory and the sources may change. The post must have been signalled, or a
/// later one.
///
/// Needs no fence: nothing in this rank's memory is read because of it. Once per scope.
/// @return `ok`; `stale_generation` if the QP was recovered since; the QP's failure (the outcome of
/// what was in flight is unknown); `aborted`; `timeout` (the QP is healthy and the ticket stays
/// valid).
template <class Scope, Sharing S>
WV_DEVICE Status wait(Scope scope, const Qp<S>& qp, Ticket ticket, Deadline deadline) {
  Status status = Status::ok;
  if (scope.leader()) {
    QpContext* const context = qp.context;
    status = spin_until(qp.watch(), deadline, [&] {
      // base before cons: after a recovery cons passes every old ticket.
      if (ticket.index <= platform::load_relaxed(&context->base)) return Status::stale_generation;
      if (platform::load_relaxed(&context->cons) >= ticket.index) return Status::ok;
      cq::poll(qp);
      return Status::would_block;
    });
  }
  return scope.broadcast(status);
}

/// Waits until everything that was posted on this QP before the call is done, signalled or not.
/// @return as wait and put.
template <class Scope, Sharing S>
WV_DEVICE Status quiet(Scope scope, const Qp<S>& qp, Deadline deadline) {
  const Posted nop = flush(scope, qp, deadline);
  return nop.status == Status::ok ? wait(scope, qp, nop.ticket, deadline) : nop.status;
}

/// Waits until `look()` says that the signal is there, then lets this scope read what was written
/// before it.
///
/// `look` reads words that peers write with `platform::load_relaxed_sys` and returns `would_block`
/// to wait on, anything else to end. The leader looks.
/// @return what `look` returned; or the failure in `watch`, `aborted`, `timeout`.
template <class Scope, class Look>
WV_DEVICE Status wait_signal(Scope scope, const Watch& watch, Deadline deadline, Look look) {
  Status status = Status::ok;
  if (scope.leader()) {
    status = spin_until(watch, deadline, look);
    // Acquire, once, after success: slot addresses repeat and L1 is not coherent with the NIC.
    // Pairs with the order that the peer's QP keeps between data and signal.
    if (status == Status::ok) platform::fence_acquire_sys();
  }
  return scope.broadcast(status);
}

/// Waits until the 8-byte word at `word` satisfies `accept(value)`; `*seen` is the value of the
/// last look.
template <class Scope, class Accept>
WV_DEVICE Status wait_word(Scope scope, const uint64_t* word, const Watch& watch, Deadline deadline,
                           Accept accept, uint64_t* seen) {
  uint64_t value = 0;
  const Status status = wait_signal(scope, watch, deadline, [&] {
    value = platform::load_relaxed_sys(word);
    return accept(value) ? Status::ok : Status::would_block;
  });
  *seen = scope.broadcast(value);
  return status;
}

}  // namespace wv
