// Waiting for several QPs: wait_any waits for the first of some tickets, quiet for all QPs to a
// peer or to all peers.
#pragma once

#include "peer.cuh"
#include "wait.cuh"

namespace wv {

/// One of the tickets that wait_any waits for.
template <class Q>
struct Pending {
  const Q* qp;
  Ticket ticket;
};

/// Waits until one of the `count` tickets is done, or has failed, and sets `*which` to its index.
/// If several are done, that is the first. Once per scope; the leader's list counts, of at most 64.
///
/// @return what `wait` would return for that ticket; `timeout`, with `*which` = count, if none is
/// done; `invalid` if the list is empty or too long. A failed QP ends the wait only if the same
/// look finds no ticket done.
template <class Scope, class Q>
WV_DEVICE Status wait_any(Scope scope, const Pending<Q>* pending, uint32_t count, Deadline deadline,
                          uint32_t* which) {
  constexpr uint32_t MOST = 64;
  uint32_t found = count;
  Status status = Status::invalid;
  if (scope.leader() && count - 1 < MOST) {
    status = spin_until(Watch{nullptr, nullptr}, deadline, [&] {
      Status failure = Status::would_block;
      for (uint32_t place = 0; place < count; ++place) {
        const Status seen = test(Thread{}, *pending[place].qp, pending[place].ticket);
        if (seen == Status::would_block) continue;
        if (seen == Status::ok || failure == Status::would_block) found = place;
        if (seen == Status::ok) return seen;
        failure = seen;
      }
      return failure;
    });
  }
  *which = scope.broadcast(found);
  return scope.broadcast(status);
}

namespace detail {

/// Waits for QPs `first`, `first` + step, ... of the `count` in `qps`. Flushes a few QPs, then
/// waits for them, so that their round trips overlap. Returns the first failure, after the other
/// waits have ended too.
template <class Q>
WV_DEVICE_COLD Status quiet_some(QpContext* const* qps, uint64_t first, uint64_t count,
                                 uint64_t step, Deadline deadline) {
  constexpr uint32_t AT_ONCE = 4;
  Status worst = Status::ok;
  const auto note = [&](Status status) {
    if (worst == Status::ok) worst = status;
  };
  for (uint64_t place = first; place < count; place += AT_ONCE * step) {
    Q qp[AT_ONCE];
    Ticket ticket[AT_ONCE];
    for (uint32_t k = 0; k < AT_ONCE; ++k) {
      ticket[k] = Ticket::done();
      const uint64_t at = place + k * step;
      if (at >= count) continue;
      auto* const context = reinterpret_cast<QpContext*>(
          platform::load_relaxed(reinterpret_cast<const uint64_t*>(qps + at)));
      if (context == nullptr) continue;  // this rank itself, or a peer that is reached directly
      Status status = open_qp(context, &qp[k]);
      if (status == Status::ok) {
        const Posted nop = flush(Thread{}, qp[k], deadline);
        status = nop.status;
        if (status == Status::ok) ticket[k] = nop.ticket;
      }
      note(status);
    }
    for (uint32_t k = 0; k < AT_ONCE; ++k) {
      if (!ticket[k].is_done()) note(wait(Thread{}, qp[k], ticket[k], deadline));
    }
  }
  return worst;
}

/// Waits for all QPs by all threads of the scope, each for some QPs. All threads return the same
/// status: of several failures, the one with the lowest number.
template <class Q, class Scope>
WV_DEVICE Status quiet_all(Scope scope, QpContext* const* qps, uint64_t count, Deadline deadline) {
  scope.sync();  // orders what the other threads have posted
  // Release. Orders stores to peers that are reached directly before the next word of this rank to
  // any peer. Pairs with the acquire of the thread that waits for that word.
  platform::fence_release_sys();
  const uint64_t step = scope.count(true);
  const uint64_t first = scope.before(true);
  const Status status = quiet_some<Q>(qps, first, count, step, deadline);
  // The lowest value wins. Any order would do, but all threads must return the same.
  for (uint32_t value = 1; value <= static_cast<uint32_t>(Status::closed); ++value) {
    if (scope.any(status == static_cast<Status>(value))) return static_cast<Status>(value);
  }
  return Status::ok;
}

}  // namespace detail

/// Waits until everything that was posted before the call on all QPs to `peer` is done, signalled
/// or not, held back or not. Once per scope; its threads share the QPs among them. A QP of another
/// kind than Q counts as `invalid`.
///
/// @return `ok`, or a failure (as quiet of a QP) after the scope has waited for all QPs. `invalid`
/// if `peer` is no rank of the team.
template <class Q = AnyQp<Sharing::shared>, class Scope>
WV_DEVICE Status quiet(Scope scope, const TeamContext& team, uint32_t peer, Deadline deadline) {
  if (peer >= team.ranks) return Status::invalid;
  QpContext* const* const qps = team.qps + uint64_t{peer} * team.qps_per_peer;
  return detail::quiet_all<Q>(scope, qps, team.qps_per_peer, deadline);
}

/// As above, for the QPs to all peers.
template <class Q = AnyQp<Sharing::shared>, class Scope>
WV_DEVICE Status quiet(Scope scope, const TeamContext& team, Deadline deadline) {
  const uint64_t count = uint64_t{team.ranks} * team.qps_per_peer;
  return detail::quiet_all<Q>(scope, team.qps, count, deadline);
}

}  // namespace wv
