// Guards: a scope that posts to a peer holds one, so that the host can see when none does.
//
// The host resets the QPs to a peer, and replaces its entries in the peer table, only while no
// guard of it is held. That time is its grace period. So what a kernel reads of the peer under a
// guard (entries, life, where the QPs' lives began) does not change. No put pays for that. One
// atomic for a scope when it takes a guard and one when it drops it; a block needs one guard for
// all it posts.
//
// Take it, post and wait, drop it. A wait under a guard ends at latest when the host raises the
// QPs' error words, which it does before it waits for guards. A kernel that runs for ever calls
// `refresh` between two pieces of work.
#pragma once

#include "abi.h"
#include "coop.cuh"
#include "peer.cuh"
#include "spin.cuh"

namespace wv {

/// A guard of one peer, held by one scope. Made by `guard_enter` or `guard_wait`.
template <class Scope>
struct Guard {
  Scope scope;
  const TeamContext* team;
  PeerGuard* words;
  const uint32_t* closed;
  uint32_t peer;
  /// Recoveries that the peer's QPs have been through, 24 bits. Grows with each.
  uint32_t life;

  /// QP number `i` to the peer; null if it does not exist.
  WV_DEVICE QpContext* qp(uint32_t i) const { return peer_qp(*team, peer, i); }

  /// Index at which the life of QP `i` began: tickets at or below it are stale. 0 if the peer has
  /// no QP `i`.
  WV_DEVICE uint64_t base(uint32_t i) const {
    const QpContext* const context = qp(i);
    return context == nullptr ? 0 : platform::load_relaxed(&context->base);
  }

  /// Keeps the guard if the host does not want it back, and drops it if it does. Whole scope.
  ///
  /// For kernels that run for long: between two pieces of work, with no wait under way. One load of
  /// host memory; no atomic, no fence while the peer is open.
  /// @return `ok`: still held, nothing of the peer has changed. `closed`: the guard is gone; take
  /// one again by `guard_wait`.
  WV_DEVICE Status refresh() const;
};

namespace detail {

/// Counts this thread's guard, unless the peer is closed.
WV_DEVICE Status count_guard(PeerGuard* words, const uint32_t* closed) {
  platform::reduce_add(&words->readers, uint64_t{1});
  // Sequentially consistent. Pairs with the fence between the host's store of `closed` and its look
  // at `readers`: it sees this guard, or this thread sees the word.
  platform::fence_sc_sys();
  if (platform::load_relaxed_sys(closed) != 0) {
    platform::reduce_add(&words->readers, ~uint64_t{0});
    return Status::closed;
  }
  // Acquire. Pairs with the host's release store that opened the peer: what it wrote in the grace
  // period is seen.
  platform::fence_acquire_sys();
  return Status::ok;
}

/// Guard of `peer`, not yet counted. False if the rank does not exist.
template <class Scope>
WV_DEVICE bool make_guard(Scope scope, const TeamContext& team, uint32_t peer,
                          Guard<Scope>* guard) {
  *guard = {scope, &team, nullptr, nullptr, peer, 0};
  if (peer >= team.ranks) return false;
  guard->words = team.guards + peer;
  guard->closed = team.closed + peer;
  return true;
}

/// The state that is constant while the guard is held.
template <class Scope>
WV_DEVICE Status read_guard(Guard<Scope>* guard, Status counted) {
  const Status status = guard->scope.broadcast(counted);
  guard->scope.sync();  // the leader's acquire fence before what the others read
  if (status != Status::ok) return status;
  const QpContext* const first = guard->qp(0);
  guard->life = first == nullptr ? 0 : platform::load_relaxed(&first->life);
  return status;
}

}  // namespace detail

/// Takes a guard of `peer` for the scope; never waits. Whole scope, converged.
///
/// @return `ok`: held, until `guard_drop`, or `refresh` has returned `closed`. `closed`: the peer's
/// QPs are being reset, or the host has given the peer up; nothing is held. `invalid`: no such
/// rank.
template <class Scope>
WV_DEVICE Status guard_enter(Scope scope, const TeamContext& team, uint32_t peer,
                             Guard<Scope>* guard) {
  if (!detail::make_guard(scope, team, peer, guard)) return Status::invalid;
  Status status = Status::ok;
  if (scope.leader()) status = detail::count_guard(guard->words, guard->closed);
  return detail::read_guard(guard, status);
}

/// The same, and waits while the peer is closed.
///
/// @return as guard_enter, but never `closed`; `aborted` if the host ends all calls of the team;
/// `timeout`.
template <class Scope>
WV_DEVICE Status guard_wait(Scope scope, const TeamContext& team, uint32_t peer, Deadline deadline,
                            Guard<Scope>* guard) {
  if (!detail::make_guard(scope, team, peer, guard)) return Status::invalid;
  Status status = Status::ok;
  if (scope.leader()) {
    const Watch watch{nullptr, &team.config->abort};
    status = spin_until(watch, deadline, [&] {
      // Test before count, so that waiters do not disturb the host.
      if (platform::load_relaxed_sys(guard->closed) != 0) return Status::would_block;
      const Status counted = detail::count_guard(guard->words, guard->closed);
      return counted == Status::ok ? Status::ok : Status::would_block;
    });
  }
  return detail::read_guard(guard, status);
}

/// Gives the guard back: the scope has ended everything that it does with the peer's QPs and
/// entries. Whole scope, converged. Tickets stay valid until the next recovery, which makes them
/// stale.
template <class Scope>
WV_DEVICE void guard_drop(Scope scope, const Guard<Scope>& guard) {
  scope.sync();  // the others' work before the leader's fence, which is cumulative
  if (scope.leader()) {
    // Acquire and release. All loads and stores of the scope, doorbells included, before the count:
    // pairs with the host's look at `readers`, after which it resets the QPs.
    platform::fence_acq_rel_sys();
    platform::reduce_add(&guard.words->readers, ~uint64_t{0});
  }
}

template <class Scope>
WV_DEVICE Status Guard<Scope>::refresh() const {
  Status status = Status::ok;
  if (scope.leader() && platform::load_relaxed_sys(closed) != 0) status = Status::closed;
  status = scope.broadcast(status);
  if (status == Status::closed) guard_drop(scope, *this);
  return status;
}

}  // namespace wv
