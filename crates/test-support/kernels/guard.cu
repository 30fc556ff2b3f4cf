// Puts words to one peer under guards, while the host recovers that peer.
#include <warpverbs/guard.cuh>
#include <warpverbs/put.cuh>
#include <warpverbs/wait.cuh>

#include "abi.h"

using wv::Guard;
using wv::Status;

namespace {

template <class Scope>
struct Guarded {
  const wv::GuardPutParams& p;
  Scope scope;
  uint32_t place;  // of the scope in the grid
  const wv::TeamContext& team = *p.team;
  wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  wv::GuardSeen seen{};
  Guard<Scope> guard{};

  WV_DEVICE bool stopped() {
    uint32_t stop = 0;
    if (scope.leader()) stop = wv::platform::load_relaxed_sys(p.stop);
    return scope.broadcast(stop) != 0;
  }

  // A guard, however often the peer is closed meanwhile.
  WV_DEVICE Status enter() {
    Status status = wv::guard_enter(scope, team, p.peer, &guard);
    if (status == Status::closed) {
      ++seen.closed;
      status = wv::guard_wait(scope, team, p.peer, deadline, &guard);
    }
    if (status == Status::ok) seen.life = guard.life;
    return status;
  }

  // Puts word `k` and waits for it. The leader puts.
  WV_DEVICE Status put(uint32_t k) {
    const wv::PeerWindow there = wv::load_peer(team, p.window, p.peer, wv::qp_rail(team, p.qp));
    const uint64_t at = (uint64_t{place} * p.count + k) * 8;
    wv::AnyQp<wv::Sharing::shared> qp;
    Status status = wv::open_qp(guard.qp(p.qp), &qp);
    wv::Put what{{}, {}, 8};
    const bool inside = there.at(p.dst_offset + at, 8, &what.dst) &&
                        wv::local_at(wv::rail_window(team, p.window, there), at, 8, &what.src);
    if (status == Status::ok && !inside) status = Status::invalid;
    if (status != Status::ok) return status;
    const wv::Posted posted = wv::put(scope, qp, what, {deadline}, scope.leader());
    if (posted.status != Status::ok) return posted.status;
    if (seen.done == 0) seen.ticket = posted.ticket.index;
    return wv::wait(scope, qp, posted.ticket, deadline);
  }

  WV_DEVICE Status hold() {
    Status status = enter();
    if (status != Status::ok) return status;
    if (scope.leader()) {
      status = wv::spin_until({nullptr, nullptr}, deadline, [&] {
        return wv::platform::load_relaxed_sys(p.stop) != 0 ? Status::ok : Status::would_block;
      });
    }
    status = scope.broadcast(status);
    wv::guard_drop(scope, guard);
    return status;
  }

  // One guard for `each` words, or one for all that is refreshed. A word that failed is put again
  // under another guard: the peer has not seen it, or sees it twice.
  WV_DEVICE Status put_all() {
    Status status = enter();
    uint32_t under = 0;
    while (status == Status::ok) {
      if (seen.done == uint64_t{p.count} * p.rounds || stopped()) {
        wv::guard_drop(scope, guard);
        return Status::ok;
      }
      const bool renew = p.each != 0 && under == p.each;
      if (renew) wv::guard_drop(scope, guard);
      const bool lost = !renew && p.each == 0 && guard.refresh() == Status::closed;
      if (lost) ++seen.closed;
      if (renew || lost) {
        status = lost ? wv::guard_wait(scope, team, p.peer, deadline, &guard) : enter();
        seen.life = guard.life;
        under = 0;
        continue;
      }
      const Status put_status = put(seen.done % p.count);
      ++under;
      if (put_status == Status::ok) {
        ++seen.done;
        continue;
      }
      ++seen.failed;
      seen.failure = put_status;
      wv::guard_drop(scope, guard);
      if (put_status == Status::invalid || deadline.passed()) return put_status;
      // The QP stays in error until the host recovers it, so wait until it has been closed.
      status = reopened();
      under = 0;
    }
    return status;
  }

  // Waits for a guard of a later life.
  WV_DEVICE Status reopened() {
    const uint32_t old = seen.life;
    for (;;) {
      const Status status = wv::guard_wait(scope, team, p.peer, deadline, &guard);
      if (status != Status::ok) return status;
      seen.life = guard.life;
      if (guard.life != old) return Status::ok;
      wv::guard_drop(scope, guard);
      const bool late = scope.any(deadline.passed());
      if (late) return Status::timeout;
      if (stopped()) return Status::aborted;
      wv::platform::pause();
    }
  }

  WV_DEVICE void run() {
    seen.status = p.count == 0 ? hold() : put_all();
    if (scope.leader()) p.seen[place] = seen;
  }
};

}  // namespace

extern "C" __global__ void wv_test_guard_thread(wv::GuardPutParams p) {
  Guarded<wv::Thread>{p, {}, wv::thread_in_grid()}.run();
}
WV_EXPORT(wv_test_guard_thread)

extern "C" __global__ void wv_test_guard_warp(wv::GuardPutParams p) {
  Guarded<wv::Warp>{p, {}, wv::warp_in_grid()}.run();
}
WV_EXPORT(wv_test_guard_warp)

extern "C" __global__ void wv_test_guard_block(wv::GuardPutParams p) {
  Guarded<wv::Block>{p, {}, wv::block_in_grid()}.run();
}
WV_EXPORT(wv_test_guard_block)
