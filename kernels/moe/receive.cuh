// The common part of the receive phases: one thread for each peer waits for the peer's word of this
// call.
#pragma once

#include "begin.cuh"
#include "clock.cuh"
#include "rows.cuh"

namespace wv::moe {

/// How the wait for one peer ended, and how long it took. `count` is 0 unless the word was
/// accepted.
struct Arrival {
  Outcome outcome;
  uint32_t count;
  uint64_t waited_ns;
};

/// The mask by which a phase reports to its caller whether rows of each peer are here. An in-place
/// mask loses the peers whose rows are not here, and keeps its other entries. If this rank has sent
/// nothing in the call, the call says nothing about its peers, so an in-place mask stays as it was.
struct Mask {
  /// Entries by rank. Null: the caller wants no report.
  uint32_t* active;
  bool in_place;
  /// True if this rank has sent, in the phases so far.
  bool sent;

  /// Reports one peer; one thread for each peer. `differs`: the peer has made the call with other
  /// arguments. It is not absent, so it keeps its place in an in-place mask.
  WV_DEVICE void tell(uint32_t peer, bool here, bool differs = false) const {
    if (active == nullptr || (in_place && (here || differs || !sent))) return;
    active[peer] = here;
  }
  /// Reports that no rows are here. The whole grid.
  WV_DEVICE void clear(const Call& call) const {
    for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
      tell(peer, false);
    }
  }
};

/// Looks once for the data word of this call from `peer`. Returns `would_block` if the word has not
/// come and still may.
///
/// Only a word of this epoch and call is accepted, and an older word is ignored. A word of a newer
/// call, or one that names this call as not sent, ends the wait at once: no data will come, and no
/// rank is to blame. Words of the other set or kind say nothing.
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

/// Waits for the data word of every active peer. One thread for each rank calls `settle(rank,
/// arrival)`; for this rank itself the arrival is what `own()` returns. A rank that does not take
/// part counts as not having sent. After the next barrier the whole grid may read the rows.
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
  const auto heeds = [](uint32_t) { return true; };
  const auto end = [&](uint32_t peer, Status status) {
    any = any || arrival.outcome == Outcome::accepted;
    if (foreign) platform::add_relaxed(&call.layer.foreign_epochs, 1u);
    if (status != Status::ok) {
      give_up(call, peer, status, foreign);
    } else if (peer != call.rank() && call.is_active(peer)) {
      trust(call, peer);
      if (arrival.outcome == Outcome::not_sent) record_fault(call, MoeCause::missed_call, peer);
    }
    foreign = false;
    arrival.waited_ns = peer == call.rank() ? 0 : platform::now_ns() - call.began_ns;
    settle(peer, arrival);
  };
  await_peers(call, look, end, heeds);
  // Acquire, once, after success: slot addresses repeat and L1 is not coherent with the NIC. Pairs
  // with the order that the peer's QP keeps between data and signal; the barrier that follows
  // carries it to the grid.
  if (any) platform::fence_acquire_sys();
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    leave_peer(call, peer);
  }
}

/// The bits of all states that a peer's credit can have.
inline constexpr uint32_t ANY_CREDIT = ~0u;

/// Calls `body(source, row, slice)` for the received rows of the peers whose credit is one of
/// `credits`, as bits. The rows are spread over the warps of the grid. If there are fewer rows than
/// warps, several warps share the `batches` batches of a row. Whole warp.
template <class Body>
WV_DEVICE void for_received_rows(const Call& call, uint32_t batches, Body body,
                                 uint32_t credits = ANY_CREDIT) {
  constexpr Warp warp;
  const uint32_t ranks = call.ranks(), step = workers();
  // One load gets the counts of 32 sources.
  const auto rows_from = [&](uint32_t base) {
    const uint32_t source = base + lane();
    if (source >= ranks) return 0u;
    const bool counts =
        credits == ANY_CREDIT || (credits >> call.layer.peers[source].credit & 1) != 0;
    return counts ? call.handle.peers[source].rows_received : 0;
  };
  uint32_t counted = 0;
  for (uint32_t base = 0; base < ranks; base += 32) counted += rows_from(base);
  const uint32_t each = Slice::each(warp.shuffle(warp.sum_up_to(counted), 31), batches);
  // The slices of a source begin at the worker after the last slice of the source before, so that
  // short sources use all workers alike.
  uint32_t start = worker();
  for (uint32_t base = 0; base < ranks; base += 32) {
    const uint32_t rows_of_lane = rows_from(base);
    for (uint32_t source = base; source < ranks && source < base + 32; ++source) {
      const uint32_t slices = warp.shuffle(rows_of_lane, source - base) * each;
      for (uint32_t i = start; i < slices; i += step) {
        body(source, i / each, Slice{i % each, each});
      }
      const uint32_t taken = slices % step;
      start = start >= taken ? start - taken : start + step - taken;
    }
  }
}

/// Notes that this rank has read, or given up, every slot of the call, so that the slots may be
/// used again. Aborted calls do so too: otherwise a rank that is held in the next call would owe a
/// credit for them. Also writes to the board what the phase has found out. One thread, when all
/// blocks have read.
WV_DEVICE void release(const Call& call) {
  // Release. Orders the reads of all blocks, which `end_receive` has counted, before the credit
  // that a later signal carries. Pairs with the peer, whose rows come only after it has seen that
  // credit.
  platform::fence_release_sys();
  call.layer.released[call.kind] = call.call;
  // Release. Orders the board's other words before `publish_finished`; pairs with the acquire load
  // of the host.
  if (publish_suspects(call)) platform::fence_release_sys();
  // After this last word the host takes for granted that the call touches nothing any more.
  if (call.phase == COMBINE_RECEIVE || (call.handle.combine_flags & COMBINE_NONE) != 0) {
    call.layer.ended[call.set()] = call.call;
    publish_finished(call.layer);
  }
}

/// Ends a receive phase: the last block to arrive releases the slots. No block waits.
WV_DEVICE void end_receive(const Call& call) {
  block_sync();
  if (thread_in_block() != 0) return;
  // Release. Orders what this block has read and written before its count; pairs with the fence
  // below of the last block to count.
  platform::fence_acq_rel();
  if (platform::add_relaxed(&call.layer.left, 1u) + 1 != grid_blocks()) return;
  // Acquire. Orders what the other blocks did before they counted before what follows.
  platform::fence_acq_rel();
  release(call);
}

}  // namespace wv::moe
