// The receive phases' common part: one thread per peer waits for the word of this call.
#pragma once

#include "credit.cuh"

namespace wv::moe {

/// How the wait for one peer ended; `count` is 0 unless accepted.
struct Arrival {
  Outcome outcome;
  uint32_t count;
};

/// Waits for the data word of this call from `peer`. One thread. After `accepted` it, and whoever
/// it meets at a barrier, may read the rows.
///
/// Exactly (epoch, call) is accepted. An older word is ignored; a newer one, or a word that names
/// the call as not sent, ends the wait at once: nothing will come, and nobody is to blame. Words of
/// the other set or kind say nothing.
WV_DEVICE Arrival receive(const Call& call, uint32_t peer) {
  PeerQp qp;
  if (const Status status = call.open(peer, &qp); status != Status::ok) {
    call.report(status);
    return {Outcome::gave_up, 0};
  }
  const MoeSignal* const signal = call.signal_from(peer, call.index);
  Arrival arrival{Outcome::gave_up, 0};
  bool foreign = false;
  const auto look = [&] {
    const Data data = unpack_data(platform::load_relaxed_sys(&signal->data));
    if (data.call == call.call && data.epoch == call.handle.epoch) {
      arrival = {Outcome::accepted, data.count};
      return Status::ok;
    }
    foreign = foreign || (data.call == call.call && data.call != 0);
    const uint64_t not_sent = platform::load_relaxed_sys(&signal->not_sent);
    if (newer(data.call, call.call) || names(not_sent, call.call)) {
      arrival.outcome = Outcome::not_sent;
      return Status::ok;
    }
    return Status::would_block;
  };
  const Status status = wait_signal(Thread{}, call.watch(qp), patience(call, peer), look);
  if (foreign) platform::add_relaxed(&call.moe.foreign_epochs, 1u);
  if (arrival.outcome == Outcome::gave_up) suspect(call, peer);
  call.report(status);
  return arrival;
}

}  // namespace wv::moe
