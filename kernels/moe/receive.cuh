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

/// The same, and adds the time of the wait to `waited[peer]`, unless that is null.
WV_DEVICE Arrival receive(const Call& call, uint32_t peer, uint64_t* waited) {
  const uint64_t start = platform::now_ns();
  const Arrival arrival = receive(call, peer);
  if (waited != nullptr) waited[peer] += platform::now_ns() - start;
  return arrival;
}

/// Calls `body(source, row)` for the received rows, spread over `workers` of which this is
/// `worker`.
template <class Body>
WV_DEVICE void for_received_rows(const Call& call, uint32_t worker, uint32_t workers, Body body) {
  const uint32_t most = call.moe.max_tokens;
  uint64_t skipped =
      0;  // rows of the sources before, so that workers stay in step over short sources
  for (uint32_t source = 0; source < call.ranks(); ++source) {
    const uint32_t rows = call.handle.peers[source].rows_received;
    const auto start = static_cast<uint32_t>((worker + workers - skipped % workers) % workers);
    for (uint32_t row = start; row < rows && row < most; row += workers) body(source, row);
    skipped += rows;
  }
}

/// Says that this rank has read every slot of the call, or given up: the slots may be used again.
/// One thread, after a barrier.
WV_DEVICE void release(const Call& call) {
  // Release. The reads of all blocks, which met at the barrier, before the credit that a later
  // signal carries.
  platform::fence_release_sys();
  call.moe.released[call.kind] = call.call;
}

}  // namespace wv::moe
