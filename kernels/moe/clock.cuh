// Waiting for peers. One thread waits for each peer and measures the time that counts against that
// peer. Threads beat to the peers for which this rank does not wait.
//
// A healthy rank that waits for a slow one must not be taken for slow itself. So a rank that has
// waited a quarter of its deadline writes a beat to every peer for which it does not wait. It
// repeats that every quarter. A new beat of a peer starts the clock against that peer again. No
// phase waits longer than two deadlines. Clocks stand still while the host prepares a change, for a
// limited time, and start again after it. A clock also stands still while its thread gets no time,
// as when the process is stopped: a peer is not late because this rank did not look.
//
// After the last look at the clock a wait looks once more for everything that it waits for. So it
// finds what has come while its thread stood between these looks.
#pragma once

#include "credit.cuh"

namespace wv::moe {

/// The number of times in a deadline that a wait looks at the clock and at the words of the host.
inline constexpr uint32_t CHECKS_PER_DEADLINE = 128;

/// Returns the newest beat of `peer`.
WV_DEVICE uint32_t beat_of(const Call& call, uint32_t peer) {
  uint32_t newest = 0;
  for (uint32_t i = 0; i < SIGNALS_PER_PEER; ++i) {
    const uint32_t beat = second(platform::load_relaxed_sys(&call.signal_from(peer, i)->alive));
    if (beat > newest) newest = beat;
  }
  return newest;
}

/// Returns whether a word of `peer` says that it has begun a call at least 2 * SETS after this one.
WV_DEVICE bool has_passed(const Call& call, uint32_t peer) {
  const uint32_t before = call.call + 2 * SETS - 1;
  for (uint32_t i = 0; i < SIGNALS_PER_PEER; ++i) {
    const MoeSignal* const signal = call.signal_from(peer, i);
    const uint64_t data = platform::load_relaxed_sys(&signal->data);
    const uint64_t alive = platform::load_relaxed_sys(&signal->alive);
    if (data != 0 && ahead(unpack_data(data).call, before)) return true;
    if (alive != 0 && ahead(first(alive), before)) return true;
  }
  return false;
}

/// Returns whether a look has found that a peer has passed this call.
WV_DEVICE bool is_passed(const Call& call) {
  return platform::load_relaxed(&call.layer.passed) == call.call;
}

/// Returns whether a peer that takes part has passed this call (A12), and notes that in `passed`.
/// Then the healthy ranks have finished this call and this rank is behind. It stops waiting for
/// other ranks that are behind as well. One thread.
///
/// No peer gets so far ahead of a healthy rank. A peer may send a dispatch one call ahead. Before
/// its next dispatch of the set, and before the one after that, the peer waits for the credit of
/// every rank that it hears. So a peer that has passed this rank has given this rank up, and so has
/// each rank that the peer awaits.
WV_DEVICE_COLD bool look_whether_passed(const Call& call) {
  for (uint32_t peer = 0; peer < call.ranks(); ++peer) {
    if (peer == call.rank() || !call.is_active(peer) || !has_passed(call, peer)) continue;
    platform::store_relaxed(&call.layer.passed, call.call);
    return true;
  }
  return false;
}

/// Records that this rank waited for `peer` in vain. `foreign`: the word of the peer had another
/// epoch. One thread.
WV_DEVICE_COLD void give_up(const Call& call, uint32_t peer, Status status, bool foreign) {
  if (status == Status::timeout && is_passed(call)) {
    return record_fault(call, MoeCause::missed_call, peer);
  }
  suspect(call, peer);
  if (!foreign || status != Status::timeout) return lose(call, peer, status);
  call.report(status);
  record_fault(call, MoeCause::epoch, peer);
}

/// The wait of one thread for one peer.
class PeerWait {
 public:
  /// @param began_ns  when the wait for all peers began.
  /// @param heeds  true if a beat of the peer starts its clock again.
  WV_DEVICE PeerWait(const Call& call, uint32_t peer, uint64_t began_ns, bool heeds)
      : call_(call),
        peer_(peer),
        heeds_(heeds),
        began_ns_(began_ns),
        counted_ns_(platform::now_ns()),
        used_ns_(counted_ns_ - began_ns) {}

  /// Returns why the wait ends, or `would_block`. The thread calls this after each look that found
  /// nothing. A cause that one call finds is returned by the next call, so that a look follows the
  /// look at the clock.
  WV_DEVICE Status check() {
    if (end_ != Status::would_block) return end_;
    if (looks_++ % platform::LOOKS_PER_CHECK == 0) end_ = find_end();
    return Status::would_block;
  }

 private:
  /// Returns why the wait ends if the next look finds nothing either, or `would_block`.
  WV_DEVICE Status find_end() {
    const QpContext* const qp = call_.qp_to(peer_);
    const Watch watch{qp == nullptr ? nullptr : &qp->err, &call_.team.config->abort};
    if (const Status fault = watch.fault(); fault != Status::ok) return fault;
    const uint64_t now = platform::now_ns();
    const uint64_t step = call_.handle.deadline_ns / CHECKS_PER_DEADLINE;
    if (looks_ > 1 && now - counted_ns_ < step) return Status::would_block;
    return count(now);
  }

  WV_DEVICE_COLD Status count(uint64_t now) {
    const MoeBoard& board = *call_.layer.board;
    if (has_bit(board.suspects, peer_)) return Status::timeout;
    if (platform::load_relaxed_sys(call_.team.closed + peer_) != 0) return Status::closed;
    const uint32_t beat = beat_of(call_, peer_);
    if (looks_ == 1) {
      if (!trusted(call_, peer_)) return Status::timeout;
      beat_ = beat;
    }
    // The first check looks at the words of all peers only if this call or the one before was found
    // to be passed. So a peer that is a little late costs no such look.
    const bool asks = looks_ > 1 || call_.call - platform::load_relaxed(&call_.layer.passed) <= 1;
    if (asks && (is_passed(call_) || look_whether_passed(call_))) return Status::timeout;
    const uint64_t deadline = call_.handle.deadline_ns;
    uint64_t passed = now - counted_ns_;
    counted_ns_ = now;
    if (passed > deadline / 4) {  // this thread got no time
      stood_ns_ += passed - deadline / 4;
      passed = deadline / 4;
    }
    const bool stands = platform::load_relaxed_sys(&board.preparing) != 0 &&
                        has_bit(board.promised, peer_) &&
                        stood_ns_ < platform::load_relaxed(&call_.layer.clock->change_ns);
    (stands ? stood_ns_ : used_ns_) += passed;
    // A rank that has promised hears of the end of a change later than this rank.
    if (stood_ && !stands) used_ns_ = 0;
    stood_ = stands;
    if (beat != beat_ && heeds_) used_ns_ = 0;
    beat_ = beat;
    const uint64_t counted = now - began_ns_ - stood_ns_;
    if (used_ns_ >= deadline || counted / 2 >= deadline) return Status::timeout;
    return look_for_failure();
  }

  /// Polls the completion queue of the peer's QP for an error. A wait for words of the peer would
  /// not see one.
  WV_DEVICE Status look_for_failure() const {
    PeerQp qp;
    if (looks_ == 1) return Status::would_block;
    if (!call_.is_open(peer_) && !enter_peer(call_, peer_)) return Status::closed;
    if (const Status status = call_.open(peer_, &qp); status != Status::ok) return status;
    cq::poll(qp, platform::load_relaxed(&qp.context->cons));
    return Status::would_block;
  }

  const Call& call_;
  uint32_t peer_;
  bool heeds_;
  Status end_ = Status::would_block;
  uint32_t looks_ = 0;
  uint32_t beat_ = 0;
  uint64_t began_ns_;
  /// The time up to which this wait has counted, how much counts against the peer, and how long the
  /// clock stood still.
  uint64_t counted_ns_;
  uint64_t used_ns_;
  uint64_t stood_ns_ = 0;
  /// True if the clock stood still at the last count.
  bool stood_ = false;
};

/// Writes a beat to `peer`, if its QPs may be used. One thread.
///
/// The host opens the QPs to each member of its newest view. So a new member hears a rank that
/// still waits in a call of the view before.
WV_DEVICE_COLD void beat(const Call& call, uint32_t peer) {
  if (peer == call.rank()) return;
  PeerQp qp;
  if (!call.is_open(peer) && !enter_peer(call, peer)) return;
  if (call.open(peer, &qp) != Status::ok) return;
  ++call.layer.peers[peer].beat;
  PostOptions options{for_own_hca(call)};
  options.try_only = true;  // a beat is not worth a wait for room in the ring
  control(call, qp, peer, options);
}

/// Writes a beat to `peer` if the next beat is due. One thread.
WV_DEVICE void beat_when_due(const Call& call, uint32_t peer, uint64_t* next_ns) {
  const uint64_t now = platform::now_ns();
  if (now < *next_ns) return;
  *next_ns = now + call.handle.deadline_ns / 4 + 1;
  beat(call, peer);
}

/// The times at which a rank beats while the host holds its first call after a limit. Other ranks
/// hear of the change a little later than this rank, and wait for this rank meanwhile. This rank
/// beats for two deadlines. After that the others have given it up, and a beat would make them wait
/// for it again. One thread.
class HeldBeats {
 public:
  WV_DEVICE explicit HeldBeats(uint64_t deadline_ns)
      : step_ns_(deadline_ns / 4 + 1), next_ns_(platform::now_ns() + step_ns_) {}

  /// Returns whether the next beat is due.
  WV_DEVICE bool are_due() {
    const uint64_t now = platform::now_ns();
    if (left_ == 0 || now < next_ns_) return false;
    next_ns_ = now + step_ns_;
    --left_;
    return true;
  }

 private:
  uint64_t step_ns_;
  uint64_t next_ns_;
  uint32_t left_ = 2 * 4;
};

/// Waits for every peer. `look(peer)` returns `would_block` while this thread has to wait for the
/// peer, `ok` when the wait is over, or why the wait ends in vain. `settle(peer, status)` records
/// how the wait ended. One thread for each peer calls both, and all threads of the grid take part.
/// The caller follows this with a barrier; threads that read what peers wrote then need a fence.
/// `PeerWait` bounds each wait. The clocks of all peers begin here, so that no wait begins after
/// its end. `heeds(peer)` returns whether beats of the peer start its clock again.
template <class Look, class Settle, class Heeds>
WV_DEVICE void await_peers(const Call& call, Look look, Settle settle, Heeds heeds) {
  const uint64_t began_ns = platform::now_ns();
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    // While other threads wait, this thread beats for the last of its peers.
    const bool last = call.ranks() - peer <= grid_threads();
    PeerWait wait(call, peer, began_ns, heeds(peer));
    uint64_t next_beat = call.after(call.handle.deadline_ns / 4).at_ns;
    bool settled = false;
    spin_until(Watch{nullptr, nullptr}, Deadline{~uint64_t{0}}, [&] {
      if (!settled) {
        Status status = look(peer);
        if (status == Status::would_block) status = wait.check();
        if (status == Status::would_block) return status;
        // The host is about to reset the QPs of the peer: nothing more is posted to the peer.
        if (status == Status::closed || status == Status::aborted) leave_peer(call, peer);
        call.note_wait(peer);
        settle(peer, status);
        settled = true;
        platform::add_relaxed(&call.layer.waiting, ~uint32_t{0});
      }
      if (!last || platform::load_relaxed(&call.layer.waiting) == 0) return Status::ok;
      beat_when_due(call, peer, &next_beat);
      return Status::would_block;
    });
  }
}

}  // namespace wv::moe
