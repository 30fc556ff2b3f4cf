// Waiting for peers: one thread per peer, a clock against each, and beats to the peers that it does
// not wait for.
//
// A healthy rank that waits for a slow one must not be taken for slow itself. So a rank that has
// waited a quarter of its deadline writes a beat to every peer for which it does not wait. It
// writes again every quarter. A new beat of a peer starts the clock against it again. No phase
// waits longer than two deadlines. Clocks stand still while a change is prepared, and start again
// after it; that time has a limit too. They stand still while the thread that waits gets no time,
// as when its process is stopped: a peer is not late because this rank did not look.
//
// A wait ends with a whole look at what it waits for after the look at the clock. What has come
// while the thread stood between the two is found.
#pragma once

#include "credit.cuh"

namespace wv::moe {

/// Looks at the clock, and at the words of the host, so many times per deadline.
inline constexpr uint32_t CHECKS_PER_DEADLINE = 128;

/// The newest beat of `peer`.
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

/// Returns whether this call was found to be passed.
WV_DEVICE bool is_passed(const Call& call) {
  return platform::load_relaxed(&call.moe.passed) == call.call;
}

/// Looks whether a peer that takes part has passed this call (A12). Then the ranks that are well
/// are through with it, and this rank is behind: it waits for no other that is behind as well. One
/// thread.
///
/// No peer passes a rank that is well by so much. A dispatch may be sent one call ahead. Before the
/// next one of the set it waits for the credit of every peer that it hears, and so does the one
/// after that. So the peer has given this rank up, and so has each rank that the peer awaits.
WV_DEVICE_COLD bool look_whether_passed(const Call& call) {
  for (uint32_t peer = 0; peer < call.ranks(); ++peer) {
    if (peer == call.rank() || !call.is_active(peer) || !has_passed(call, peer)) continue;
    platform::store_relaxed(&call.moe.passed, call.call);
    return true;
  }
  return false;
}

/// Takes down that `peer` was waited for in vain. `foreign`: its word was of another epoch. One
/// thread.
WV_DEVICE_COLD void give_up(const Call& call, uint32_t peer, Status status, bool foreign) {
  if (status == Status::timeout && is_passed(call)) {
    return record_fault(call, MoeCause::missed_call, peer);
  }
  suspect(call, peer);
  if (!foreign || status != Status::timeout) return lose(call, peer, status);
  call.report(status);
  record_fault(call, MoeCause::epoch, peer);
}

/// The wait for one peer, by one thread.
class PeerWait {
 public:
  /// @param began_ns  when the wait for all peers began.
  /// @param heeds  whether a beat of the peer starts its clock again.
  WV_DEVICE PeerWait(const Call& call, uint32_t peer, uint64_t began_ns, bool heeds)
      : call_(call),
        peer_(peer),
        heeds_(heeds),
        began_ns_(began_ns),
        counted_ns_(platform::now_ns()),
        used_ns_(counted_ns_ - began_ns) {}

  /// After a look in vain: why the wait ends, or `would_block`. It ends at the earliest with the
  /// second call, so that a look follows the clock.
  WV_DEVICE Status check() {
    if (end_ != Status::would_block) return end_;
    if (looks_++ % platform::LOOKS_PER_CHECK == 0) end_ = find_end();
    return Status::would_block;
  }

 private:
  /// Why the wait is to end, if the next look is in vain, too.
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
    const MoeBoard& board = *call_.moe.board;
    if (has_bit(board.suspects, peer_)) return Status::timeout;
    if (platform::load_relaxed_sys(call_.team.closed + peer_) != 0) return Status::closed;
    const uint32_t beat = beat_of(call_, peer_);
    if (looks_ == 1) {
      if (!trusted(call_, peer_)) return Status::timeout;
      beat_ = beat;
    }
    // The first look asks only if the call before was passed. So a peer that is a little late costs
    // no look at all others.
    const bool asks = looks_ > 1 || call_.call - platform::load_relaxed(&call_.moe.passed) <= 1;
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
                        stood_ns_ < platform::load_relaxed(&call_.moe.clock->change_ns);
    (stands ? stood_ns_ : used_ns_) += passed;
    // A rank that has promised hears of the end of a change later than this one.
    if (stood_ && !stands) used_ns_ = 0;
    stood_ = stands;
    if (beat != beat_ && heeds_) used_ns_ = 0;
    beat_ = beat;
    const uint64_t counted = now - began_ns_ - stood_ns_;
    if (used_ns_ >= deadline || counted / 2 >= deadline) return Status::timeout;
    return look_for_failure();
  }

  /// A wait for words of the peer sees no completion, so it looks for one that is an error.
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
  /// Time up to which was counted; how much of it counts against the peer, how much stood still.
  uint64_t counted_ns_;
  uint64_t used_ns_;
  uint64_t stood_ns_ = 0;
  /// Whether it stood still at the last count.
  bool stood_ = false;
};

/// Writes a beat to `peer`, if its QPs may be used. One thread.
///
/// The host opens the QPs to a peer that is a member of its newest view. So a newcomer hears a rank
/// that waits in a call of the view before.
WV_DEVICE_COLD void beat(const Call& call, uint32_t peer) {
  if (peer == call.rank()) return;
  PeerQp qp;
  if (!call.is_open(peer) && !enter_peer(call, peer)) return;
  if (call.open(peer, &qp) != Status::ok) return;
  ++call.moe.peers[peer].beat;
  PostOptions options{for_own_hca(call)};
  options.try_only = true;  // a ring that is full has no use for a beat
  control(call, qp, peer, options);
}

/// Writes a beat to `peer` if it is time. One thread.
WV_DEVICE void beat_when_due(const Call& call, uint32_t peer, uint64_t* next_ns) {
  const uint64_t now = platform::now_ns();
  if (now < *next_ns) return;
  *next_ns = now + call.handle.deadline_ns / 4 + 1;
  beat(call, peer);
}

/// When a rank beats while the host holds its first call after a limit. Other ranks hear of the
/// change a little later than this one, and wait for this rank meanwhile. It beats for two
/// deadlines: then they have given it up, and a beat would make them wait for it again. One thread.
class HeldBeats {
 public:
  WV_DEVICE explicit HeldBeats(uint64_t deadline_ns)
      : step_ns_(deadline_ns / 4 + 1), next_ns_(platform::now_ns() + step_ns_) {}

  /// Returns whether it is time for the next one.
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
/// peer, `ok` when the wait is over, or why it ends in vain. `settle(peer, status)` records how it
/// ended. Both are called by one thread per peer, all of the grid together. A barrier follows, and
/// after it a fence of the threads that read what the peers have written. Every wait is bounded by
/// its clock (`PeerWait`), so all of it is. The clocks of all peers begin here, so that no wait
/// begins after its end. `heeds(peer)` says whether beats of the peer start its clock again.
template <class Look, class Settle, class Heeds>
WV_DEVICE void await_peers(const Call& call, Look look, Settle settle, Heeds heeds) {
  const uint64_t began_ns = platform::now_ns();
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    // While others wait, this thread beats for the last of its peers.
    const bool last = call.ranks() - peer <= grid_threads();
    PeerWait wait(call, peer, began_ns, heeds(peer));
    uint64_t next_beat = call.after(call.handle.deadline_ns / 4).at_ns;
    bool settled = false;
    spin_until(Watch{nullptr, nullptr}, Deadline{~uint64_t{0}}, [&] {
      if (!settled) {
        Status status = look(peer);
        if (status == Status::would_block) status = wait.check();
        if (status == Status::would_block) return status;
        // The host wants the peer back: nothing more is posted to it.
        if (status == Status::closed || status == Status::aborted) leave_peer(call, peer);
        call.note_wait(peer);
        settle(peer, status);
        settled = true;
        platform::add_relaxed(&call.moe.waiting, ~uint32_t{0});
      }
      if (!last || platform::load_relaxed(&call.moe.waiting) == 0) return Status::ok;
      beat_when_due(call, peer, &next_beat);
      return Status::would_block;
    });
  }
}

}  // namespace wv::moe
