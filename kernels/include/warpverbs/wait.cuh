// Waiting for a ticket (this rank's own work is done), for a signal (a peer's data is here), or for
// a quiet QP. `test` looks without waiting.
#pragma once

#include "coop.cuh"
#include "detail/cq.cuh"
#include "put.cuh"
#include "spin.cuh"

namespace wv {

namespace detail {

/// The number of looks before a wait makes sure that the doorbell of a held ticket is rung.
inline constexpr uint32_t LOOKS_BEFORE_RING = 4;

/// Returns what the indices say about `ticket`: `ok`, `stale_life` or `would_block`.
WV_DEVICE Status seen(const QpContext* context, Ticket ticket, uint64_t* cons) {
  // `base` is read before `cons`: after a recovery `cons` is past every old ticket.
  const uint64_t base = platform::load_relaxed(&context->base);
  *cons = platform::load_relaxed(&context->cons);
  if (ticket.index <= base) return Status::stale_life;
  return *cons >= ticket.index ? Status::ok : Status::would_block;
}

/// Returns what the indices say about `ticket` after all completions that have come. Of a wide CQ
/// this takes one CQE after the other, at most up to the ticket.
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

/// Makes sure that a doorbell covers the held post of `ticket`: posts a NOP if none does. Returns
/// false if the ring has no space for a NOP now.
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
  // A wait that times out rings, too: otherwise waits of fewer than LOOKS_BEFORE_RING looks would
  // never ring.
  if (status == Status::timeout && !rung) ring_held<Q>(context, ticket.index);
  return status;
}

}  // namespace detail

/// Waits until the post of `ticket`, and everything before it on this QP, is done. Then the bytes
/// are in the peer's memory and the sources may change. The post, or a later one, must have been
/// signalled. If the post's doorbell was held back, the wait rings.
///
/// The wait takes no fence, since it lets no thread read this rank's memory. Once per scope.
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

/// Waits as `wait` does, and then lets this scope read what the NIC has written here, such as
/// fetched bytes and old values of atomics. Takes one acquire fence of system scope. @return as
/// wait.
template <class Scope, class Q>
WV_DEVICE Status wait_data(Scope scope, const Q& qp, Ticket ticket, Deadline deadline) {
  Status status = wait(Thread{}, qp, scope.leader() ? ticket : Ticket::done(), deadline);
  if (scope.leader() && status == Status::ok) {
    // Acquire. Orders the completion before loads of the data that came before it. Pairs with the
    // NIC, which writes data before its CQE.
    platform::fence_acquire_sys();
  }
  scope.sync();  // orders the leader's acquire before the reads of others: a shuffle orders nothing
  return scope.broadcast(status);
}

/// Looks once whether the post of `ticket` is done; never waits. If the post's doorbell was held
/// back, the call rings. Once per scope. @return as wait, but `would_block` instead of `timeout`.
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
/// `look`, which only the leader calls, reads words that peers write with
/// `platform::load_relaxed_sys`. It returns `would_block` to wait on, and anything else to end the
/// wait.
/// @return what `look` returned, or the failure in `watch`, `aborted` or `timeout`.
template <class Scope, class Look>
WV_DEVICE Status wait_signal(Scope scope, const Watch& watch, Deadline deadline, Look look) {
  Status status = Status::ok;
  if (scope.leader()) {
    status = spin_until(watch, deadline, look);
    // Acquire, once, after success: slot addresses repeat and L1 is not coherent with the NIC.
    // Pairs with the order that the peer's QP keeps between data and signal.
    if (status == Status::ok) platform::fence_acquire_sys();
  }
  scope.sync();  // orders the leader's acquire before the reads of others: a shuffle orders nothing
  return scope.broadcast(status);
}

/// Waits until the 8-byte word at `word` of this rank's window, which a peer writes, satisfies
/// `accept(value)`. `*seen` is the value of the last look. After that the scope may read what the
/// peer's QP carried before that word. @return as wait_signal.
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
