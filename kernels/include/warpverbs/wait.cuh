// Waiting: for a ticket (this rank's own work is done), for a signal (a peer's data is here), for a
// QP to be quiet. `test` is the look without the wait.
#pragma once

#include "coop.cuh"
#include "detail/cq.cuh"
#include "put.cuh"
#include "spin.cuh"

namespace wv {

namespace detail {

/// Looks of a wait before it sees to it that a ticket which was held back is rung.
inline constexpr uint32_t LOOKS_BEFORE_RING = 4;

/// What the indices say about `ticket`: `ok`, `stale_life` or `would_block`.
WV_DEVICE Status seen(const QpContext* context, Ticket ticket, uint64_t* cons) {
  // base before cons: after a recovery cons passes every old ticket.
  const uint64_t base = platform::load_relaxed(&context->base);
  *cons = platform::load_relaxed(&context->cons);
  if (ticket.index <= base) return Status::stale_life;
  return *cons >= ticket.index ? Status::ok : Status::would_block;
}

/// The same after all completions that have come: a whole look. Of a wide CQ it takes one CQE after
/// the other, at most those up to the ticket.
template <class Q>
WV_DEVICE Status look_at(const Q& qp, Ticket ticket) {
  uint64_t cons;
  Status status = seen(qp.context, ticket, &cons);
  for (bool more = true; more && status == Status::would_block;) {
    more = cq::poll(qp, cons);
    status = seen(qp.context, ticket, &cons);
  }
  return status;
}

/// Sees to it that the post behind a held ticket is rung: posts a NOP if no doorbell has covered
/// it. False: the ring has no space for a NOP now.
template <class Q>
WV_DEVICE_COLD bool ring_held(QpContext* context, uint64_t ticket) {
  if (platform::load_relaxed(&context->doorbell_index) >= ticket) return true;
  const Q qp = reopen<Q>(context);
  PostOptions options{};
  options.try_only = true;
  return post(Thread{}, qp, 1, options, [&](uint64_t index, bool last) {
           wqe::write_nop(qp, index, wqe::control(last, false));
         }).status == Status::ok;
}

/// Waits for a ticket that was not done at first sight.
template <class Q>
WV_DEVICE_COLD Status wait_on(QpContext* context, Ticket ticket, Deadline deadline) {
  const Q qp = reopen<Q>(context);
  bool rung = !ticket.held;
  uint32_t looks = 0;
  const Status status = spin_until(qp.watch(), deadline, [&] {
    const Status found = look_at(qp, ticket);
    if (found != Status::would_block) return found;
    if (!rung && ++looks > LOOKS_BEFORE_RING) rung = ring_held<Q>(context, ticket.index);
    return Status::would_block;
  });
  // A timeout rings, too: waits that are shorter than LOOKS_BEFORE_RING looks would never ring.
  if (status == Status::timeout && !rung) ring_held<Q>(context, ticket.index);
  return status;
}

}  // namespace detail

/// Waits until the post behind `ticket`, and everything before it on this QP, is done. Then the
/// bytes are in the peer's memory and the sources may change. The post must have been signalled, or
/// a later one; if its doorbell was held back, the wait rings.
///
/// Needs no fence: nothing in this rank's memory is read because of it. Once per scope.
/// @return `ok`; `stale_life` if the QP was recovered since; the QP's failure; `aborted`;
/// `timeout`. After a failure the outcome of WQEs that were in flight is unknown. After `timeout`
/// the QP is healthy and the ticket stays valid.
template <class Scope, class Q>
WV_DEVICE Status wait(Scope scope, const Q& qp, Ticket ticket, Deadline deadline) {
  Status status = Status::ok;
  if (scope.leader() && !ticket.is_done()) {
    uint64_t cons;
    status = detail::seen(qp.context, ticket, &cons);
    if (status == Status::would_block) status = detail::wait_on<Q>(qp.context, ticket, deadline);
  }
  return scope.broadcast(status);
}

/// Waits as `wait` does, and then lets this scope read what the NIC has written here: fetched
/// bytes, old values of atomics. One acquire fence of system scope. @return as wait.
template <class Scope, class Q>
WV_DEVICE Status wait_data(Scope scope, const Q& qp, Ticket ticket, Deadline deadline) {
  Status status = wait(Thread{}, qp, scope.leader() ? ticket : Ticket::done(), deadline);
  if (scope.leader() && status == Status::ok) {
    // Acquire. The completion before the loads of what came before it; pairs with the NIC, which
    // writes data before its CQE.
    platform::fence_acquire_sys();
  }
  scope.sync();  // the leader's acquire before what the others read: a shuffle orders nothing
  return scope.broadcast(status);
}

/// Looks once whether the post behind `ticket` is done; never waits. If its doorbell was held back,
/// the call rings. Once per scope. @return as wait, but `would_block` instead of `timeout`.
template <class Scope, class Q>
WV_DEVICE Status test(Scope scope, const Q& qp, Ticket ticket) {
  Status status = Status::ok;
  if (scope.leader() && !ticket.is_done()) {
    status = detail::look_at(qp, ticket);
    if (status == Status::would_block) {
      const Status fault = qp.watch().fault();
      if (fault != Status::ok) {
        status = fault;
      } else if (ticket.held) {
        detail::ring_held<Q>(qp.context, ticket.index);
      }
    }
  }
  return scope.broadcast(status);
}

/// Waits until everything that was posted on this QP before the call is done, signalled or not,
/// held back or not.
///
/// @return as wait and put.
template <class Scope, class Q>
WV_DEVICE Status quiet(Scope scope, const Q& qp, Deadline deadline) {
  const Posted nop = flush(scope, qp, deadline);
  return nop.status == Status::ok ? wait(scope, qp, nop.ticket, deadline) : nop.status;
}

/// Waits until `look()` finds the signal, then lets this scope read what was written before it.
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
  scope.sync();  // the leader's acquire before what the others read: a shuffle orders nothing
  return scope.broadcast(status);
}

/// Waits until the 8-byte word at `word` of this rank's window, which a peer writes, satisfies
/// `accept(value)`; `*seen` is the value of the last look. What the peer's QP carried before that
/// word may be read then. @return as wait_signal.
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
