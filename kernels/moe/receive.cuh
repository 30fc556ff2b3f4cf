// The receive phases' common part: one thread per peer waits for the word of this call.
#pragma once

#include "begin.cuh"
#include "clock.cuh"
#include "rows.cuh"

namespace wv::moe {

/// How the wait for one peer ended, and how long it took; `count` is 0 unless accepted.
struct Arrival {
  Outcome outcome;
  uint32_t count;
  uint64_t waited_ns;
};

/// Reports to the caller of a phase whether rows of `peer` are here. In place its mask loses the
/// peers whose rows are not, and keeps the others as they are.
WV_DEVICE void tell_active(uint32_t* active, bool in_place, uint32_t peer, bool here) {
  if (active == nullptr || (in_place && here)) return;
  active[peer] = here;
}

/// Looks once for the data word of this call from `peer`: `would_block` if it has not come and
/// still may.
///
/// Exactly (epoch, call) is accepted. An older word is ignored. A newer one, or a word that names
/// the call as not sent, ends the wait at once. No data will come, and no rank is to blame. Words
/// of the other set or kind say nothing.
WV_DEVICE Status look_for_data(const Call& call, uint32_t peer, Arrival* arrival, bool* foreign) {
  const MoeSignal* const signal = call.signal_from(peer, call.index);
  const uint64_t word = platform::load_relaxed_sys(&signal->data);
  const uint64_t not_sent = platform::load_relaxed_sys(&signal->not_sent);
  const Data data = unpack_data(word);
  if (word != 0 && data.call == call.call) {
    if (data.epoch == call.handle.epoch) {
      *arrival = {Outcome::accepted, data.count, 0};
      return Status::ok;
    }
    *foreign = true;
  }
  if ((word != 0 && ahead(data.call, call.call)) || names(not_sent, call.call)) {
    *arrival = {Outcome::not_sent, 0, 0};
    return Status::ok;
  }
  return Status::would_block;
}

/// Takes down that `peer` was waited for in vain.
WV_DEVICE_COLD void give_up(const Call& call, uint32_t peer, Status status, bool foreign) {
  suspect(call, peer);
  call.report(status == Status::closed ? Status::aborted : status);
  if (foreign && status == Status::timeout) return record_fault(call, MoeCause::epoch, peer);
  record_failure(call, peer, status);
}

/// Waits for the data word of every active peer, and calls `settle(peer, arrival)` by one thread
/// for each, for this rank itself with what `own()` says. A rank that does not take part has not
/// sent. After the next barrier the whole grid may read the rows.
template <class Own, class Settle>
WV_DEVICE void receive_words(const Call& call, Own own, Settle settle) {
  Arrival arrival{};
  bool foreign = false, any = false;
  const auto look = [&](uint32_t peer) {
    arrival = {Outcome::not_sent, 0, 0};
    if (peer == call.rank()) {
      arrival = own();
      return Status::ok;
    }
    if (!call.is_active(peer)) return Status::ok;
    arrival.outcome = Outcome::gave_up;
    return look_for_data(call, peer, &arrival, &foreign);
  };
  await_peers(call, look, [&](uint32_t peer, Status status) {
    any = any || arrival.outcome == Outcome::accepted;
    if (foreign) platform::add_relaxed(&call.moe.foreign_epochs, 1u);
    if (status != Status::ok) {
      give_up(call, peer, status, foreign);
    } else if (peer != call.rank() && call.is_active(peer)) {
      trust(call, peer);
      if (arrival.outcome == Outcome::not_sent) record_fault(call, MoeCause::missed_call, peer);
    }
    foreign = false;
    arrival.waited_ns = peer == call.rank() ? 0 : platform::now_ns() - call.began_ns;
    settle(peer, arrival);
  });
  // Acquire, once, after success: slot addresses repeat and L1 is not coherent with the NIC. Pairs
  // with the order that the peer's QP keeps between data and signal; the barrier that follows
  // carries it to the grid.
  if (any) platform::fence_acquire_sys();
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    leave_peer(call, peer);
  }
}

/// Calls `body(source, row, slice)` for `each` slices of the received rows, spread over the warps
/// of the grid. Whole warp.
template <class Body>
WV_DEVICE void spread_rows(const Call& call, uint32_t each, Body body) {
  constexpr Warp warp;
  const uint32_t worker = warp_in_grid(), workers = grid_warps(), ranks = call.ranks();
  // Slices of the sources before, so that workers stay in step over short sources.
  uint64_t skipped = 0;
  for (uint32_t base = 0; base < ranks; base += 32) {
    // The counts of 32 sources in one load.
    const uint32_t of_lane = base + lane();
    const uint32_t rows_of_lane = of_lane < ranks ? call.handle.peers[of_lane].rows_received : 0;
    for (uint32_t source = base; source < ranks && source < base + 32; ++source) {
      const uint32_t rows = warp.shuffle(rows_of_lane, source - base);
      const auto start = static_cast<uint32_t>((worker + workers - skipped % workers) % workers);
      for (uint32_t i = start; i < rows * each; i += workers) {
        body(source, i / each, Slice{i % each, each});
      }
      skipped += uint64_t{rows} * each;
    }
  }
}

/// Calls `body(source, row)` for the received rows, spread over the warps of the grid. Whole warp.
template <class Body>
WV_DEVICE void for_received_rows(const Call& call, Body body) {
  spread_rows(call, 1, [&](uint32_t source, uint32_t row, Slice) { body(source, row); });
}

/// The same for slices of them, where the rows are too few for the grid: `body(source, row,
/// slice)`.
template <class Body>
WV_DEVICE void for_slices_of_rows(const Call& call, Body body) {
  constexpr Warp warp;
  uint32_t rows = 0;
  for (uint32_t peer = lane(); peer < call.ranks(); peer += 32) {
    rows += call.handle.peers[peer].rows_received;
  }
  spread_rows(call, Slice::each(warp.shuffle(warp.sum_up_to(rows), 31)), body);
}

/// Says that this rank has read every slot of the call, or given up: the slots may be used again.
/// Writes to the board what the phase has found out. One thread, when all blocks have read.
WV_DEVICE void release(const Call& call) {
  // Release. The reads of all blocks, which `end_receive` has counted, before the credit that a
  // later signal carries. Pairs with the peer, whose rows come only after it has seen that credit.
  platform::fence_release_sys();
  call.moe.released[call.kind] = call.call;
  publish_suspects(call);
  // The last word to the host, which then takes for granted that the call touches nothing any more.
  if (call.phase == COMBINE_RECEIVE || (call.handle.combine_flags & COMBINE_NONE) != 0) {
    call.moe.ended[call.set()] = call.call;
    publish_finished(call.moe);
  }
}

/// Ends a receive phase: the last block to come releases the slots. No block waits.
WV_DEVICE void end_receive(const Call& call) {
  block_sync();
  if (thread_in_block() != 0) return;
  // Release. What this block has read and written before its count; pairs with the fence below of
  // the last block to count.
  platform::fence_acq_rel();
  if (platform::add_relaxed(&call.moe.left, 1u) + 1 != grid_blocks()) return;
  // Acquire. What the other blocks did before they counted.
  platform::fence_acq_rel();
  release(call);
}

}  // namespace wv::moe
