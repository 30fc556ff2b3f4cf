// Guards: a scope that posts to a peer holds a guard of that peer. So the host can see when no
// scope posts to the peer.
//
// The host resets the QPs to a peer, and replaces its entries in the peer table, only while no
// guard of the peer is held: in the peer's grace period. So what a kernel reads about the peer
// under a guard (entries, life, the index at which a QP's life began) does not change. A put costs
// nothing extra. A scope pays one atomic to take a guard and one to drop it, and a block needs one
// guard for all that it posts.
//
// Take the guard, post and wait, drop the guard. A wait under a guard ends at the latest when the
// host raises the error words of the QPs. The host does that before it waits for guards. A kernel
// that runs for ever calls `refresh` between two pieces of work.
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
  /// The number of recoveries of the peer's QPs, 24 bits.
  uint32_t life;

  /// Returns QP number `i` to the peer, or null if no such QP exists.
  WV_DEVICE QpContext* qp(uint32_t i) const { return peer_qp(*team, peer, i); }

  /// Returns the index at which the life of QP `i` began: tickets at or below this index are stale.
  /// 0 if the peer has no QP `i`.
  WV_DEVICE uint64_t base(uint32_t i) const {
    const QpContext* const context = qp(i);
    return context == nullptr ? 0 : platform::load_relaxed(&context->base);
  }

  /// Keeps the guard, or drops it if the host wants it back. Whole scope.
  ///
  /// A kernel that runs for long calls this between two pieces of work, with no wait under way.
  /// While the peer is open the call costs one load of host memory, no atomic and no fence.
  /// @return `ok`: the guard is still held, and nothing of the peer has changed. `closed`: the
  /// guard is gone; take one again by `guard_wait`.
  WV_DEVICE Status refresh() const;
};

namespace detail {

/// Counts this thread's guard, unless the peer is closed.
WV_DEVICE Status count_guard(PeerGuard* words, const uint32_t* closed) {
  platform::reduce_add(&words->readers, uint64_t{1});
  // Sequentially consistent. Pairs with the fence between the host's store of `closed` and its look
  // at `readers`: either the host sees this guard, or this thread sees `closed`.
  platform::fence_sc_sys();
  if (platform::load_relaxed_sys(closed) != 0) {
    platform::reduce_add(&words->readers, ~uint64_t{0});
    return Status::closed;
  }
  // Acquire. Pairs with the host's release store that opened the peer: this thread sees what the
  // host wrote in the grace period.
  platform::fence_acquire_sys();
  return Status::ok;
}

/// Makes a guard of `peer` that is not yet counted. Returns false if the rank does not exist.
template <class Scope>
WV_DEVICE bool make_guard(Scope scope, const TeamContext& team, uint32_t peer,
                          Guard<Scope>* guard) {
  *guard = {scope, &team, nullptr, nullptr, peer, 0};
  if (peer >= team.ranks) return false;
  guard->words = team.guards + peer;
  guard->closed = team.closed + peer;
  return true;
}

/// Reads the state that is constant while the guard is held.
template <class Scope>
WV_DEVICE Status read_guard(Guard<Scope>* guard, Status counted) {
  const Status status = guard->scope.broadcast(counted);
  guard->scope.sync();  // orders the leader's acquire fence before what the other threads read
  if (status != Status::ok) return status;
  const QpContext* const first = guard->qp(0);
  guard->life = first == nullptr ? 0 : platform::load_relaxed(&first->life);
  return status;
}

}  // namespace detail

/// Takes a guard of `peer` for the scope; never waits. Whole scope, converged.
///
/// @return `ok`: the guard is held until `guard_drop`, or until `refresh` returns `closed`.
/// `closed`: the peer's QPs are being reset, or the host has given the peer up; no guard is held.
/// `invalid`: the rank does not exist.
template <class Scope>
WV_DEVICE Status guard_enter(Scope scope, const TeamContext& team, uint32_t peer,
                             Guard<Scope>* guard) {
  if (!detail::make_guard(scope, team, peer, guard)) return Status::invalid;
  Status status = Status::ok;
  if (scope.leader()) status = detail::count_guard(guard->words, guard->closed);
  return detail::read_guard(guard, status);
}

/// Takes a guard of `peer` for the scope, and waits while the peer is closed. Whole scope,
/// converged.
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
      // A waiter reads the word before it counts itself, so that waiters do not disturb the host.
      if (platform::load_relaxed_sys(guard->closed) != 0) return Status::would_block;
      const Status counted = detail::count_guard(guard->words, guard->closed);
      return counted == Status::ok ? Status::ok : Status::would_block;
    });
  }
  return detail::read_guard(guard, status);
}

/// Gives the guard back, when the scope has ended all use of the peer's QPs and entries. Whole
/// scope, converged. Tickets stay valid until the next recovery, which makes them stale.
template <class Scope>
WV_DEVICE void guard_drop(Scope scope, const Guard<Scope>& guard) {
  scope.sync();  // orders the other threads' work before the leader's fence, which is cumulative
  if (scope.leader()) {
    // Acquire and release. Orders all loads and stores of the scope, doorbells included, before the
    // count: pairs with the host's look at `readers`, after which it resets the QPs.
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
