// Dispatch, receive phase: headers are checked and copied to the handle, then the tokens are laid
// out. In the layout by expert every local expert numbers its rows in the order (source, row). In
// the layout by rank each token lies once, in the order of its source.
#pragma once

#include "receive.cuh"
#include "returns.cuh"
#include "tiles.cuh"

namespace wv::moe {

/// Returns whether the caller may write what combine sends straight into the staging memory, whose
/// shape is that of the largest call.
WV_DEVICE bool offers_staging(const SlotCall& call) {
  return returns_of(call.moe()) != Return::sums && call.shape().max_tokens == call.moe().max_tokens;
}

/// Returns the mask by which the phase reports the peers to its caller.
WV_DEVICE Mask mask_of(const Call& call, const DispatchReceiveParams& p) {
  const bool sent = call.handle.peers[call.rank()].dispatch_sent == Outcome::sent;
  return {p.active, (p.flags & RECEIVE_IN_PLACE) != 0, sent};
}

/// Clears `offered` if an HCA still reads the combine staging memory of this call for a peer.
/// Threads share the peers; a barrier follows.
WV_DEVICE void look_for_readers(const Call& call) {
  const uint32_t index = signal_index(KIND_COMBINE, call.call);
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    if (peer == call.rank() || is_done(call, peer, index)) continue;
    platform::store_relaxed(&call.handle.offered, 0u);
  }
}

/// Returns the tag of the shape with which `peer` has sent this call, from the header of its first
/// row. One thread, after the data word of a peer that has sent rows.
WV_DEVICE_COLD uint32_t tag_from(const SlotCall& call, uint32_t peer) {
  // Acquire. Orders the rows of the peer after the data word that this thread has read: pairs with
  // the order that the peer's QP keeps between rows and word.
  platform::fence_acquire_sys();
  const auto* const header = reinterpret_cast<const uint32_t*>(slot_of(call, peer, 0));
  return header[Header::TOKEN] >> Header::TAG_SHIFT;
}

/// Waits for every peer's word, and records how each wait ended. Threads share the peers.
WV_DEVICE void receive_dispatch(const SlotCall& call, const DispatchReceiveParams& p) {
  if (offers_staging(call)) look_for_readers(call);
  const Mask mask = mask_of(call, p);
  const auto own = [&] {
    const MoeHandlePeer& state = call.handle.peers[call.rank()];
    const bool sent = state.dispatch_sent == Outcome::sent;
    return Arrival{sent ? Outcome::accepted : Outcome::not_sent, sent ? state.rows_sent : 0, 0};
  };
  receive_words(call, own, [&](uint32_t peer, const Arrival& arrival) {
    MoeHandlePeer& state = call.handle.peers[peer];
    const bool fits = arrival.count <= call.shape().max_tokens;
    if (!fits) {
      call.report(Status::invalid);
      // This layer sends so many rows never, or only in a larger call.
      const bool larger = arrival.count <= call.moe().max_tokens;
      record_fault(call, larger ? MoeCause::shape : MoeCause::malformed, peer,
                   larger ? tags_with(call, tag_from(call, peer)) : 0);
    }
    state.dispatch_received = fits ? arrival.outcome : Outcome::gave_up;
    state.rows_received = fits ? arrival.count : 0;
    if (p.wait_ns != nullptr) p.wait_ns[peer] += arrival.waited_ns;
    const bool here = state.dispatch_received == Outcome::accepted;
    mask.tell(peer, here, !fits);
  });
}

/// Sets the number of received rows to 0, so that combine returns no rows.
WV_DEVICE_COLD void withhold(const Call& call, const DispatchReceiveParams& p) {
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    call.handle.peers[peer].rows_received = 0;
  }
  mask_of(call, p).clear(call);
}

/// Writes where the caller may put what combine sends, or 0, to `staging`. A host that replays
/// graphs does not know the address, since the set depends on the number of the call. The whole
/// grid, after the barrier that follows `receive_dispatch`.
WV_DEVICE void tell_staging(const SlotCall& call, const DispatchReceiveParams& p) {
  if (p.staging == nullptr || thread_in_grid() != 0) return;
  const bool offered = call.in_turn() && call.runs() && call.handle.offered != 0;
  *p.staging = offered ? staged_y(call) : 0;
}

/// Adds `rows` to the statistics of a local expert, if the caller keeps statistics.
WV_DEVICE void count_rows(const DispatchReceiveParams& p, uint32_t local, uint32_t rows) {
  if (p.recv_stats == nullptr) return;
  if ((p.flags & RECEIVE_STATS_32) != 0) {
    platform::add_relaxed(reinterpret_cast<uint32_t*>(p.recv_stats) + local, rows);
  } else {
    platform::add_relaxed(p.recv_stats + local, uint64_t{rows});
  }
}

// Layout by expert.

/// Replaces the row counts of one local expert's tiles by the first row of each tile at that
/// expert, in the order (source, row). Whole warp.
WV_DEVICE void number_tiles(const SlotCall& call, const DispatchReceiveParams& p, uint32_t local) {
  constexpr Warp warp;
  const uint32_t each = tiles_each(call), tiles = tiles_of(call), ranks = call.ranks();
  uint32_t* const counts = call.moe().tiles + uint64_t{local} * tiles;
  uint32_t total = 0;
  for (uint32_t base = 0; base < tiles; base += 32 * BATCH) {
    const Batch batch{base + lane(), tiles};
    uint32_t found[BATCH];
    for (uint32_t k = 0; k < BATCH; ++k) found[k] = counts[batch.source(k)];
    for (uint32_t k = 0; k < BATCH; ++k) {
      const uint32_t count = batch.has(k) ? found[k] : 0;
      const uint32_t sum = warp.sum_up_to(count);
      if (batch.has(k)) counts[batch.at(k)] = total + sum - count;
      total += warp.shuffle(sum, 31);
    }
  }
  warp.sync();  // makes visible what other lanes have stored
  for (uint32_t source = lane(); source < ranks; source += 32) {
    const uint32_t begin = counts[source * each];
    const uint32_t end = source + 1 < ranks ? counts[(source + 1) * each] : total;
    p.layout_range[uint64_t{local} * ranks + source] = pack(begin, end - begin);
  }
  if (!warp.leader()) return;
  p.counts[local] = total;
  count_rows(p, local, total);
}

/// Copies a slice of one received token to its experts, and records the row that it has at each.
/// Whole warp.
WV_DEVICE void spread(const SlotCall& call, const DispatchReceiveParams& p, uint32_t source,
                      uint32_t row, Slice slice) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe();
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  const bool chooses = lane() < moe.top_k;
  MoePick* const pick = call.handle.picks + at * moe.top_k + (chooses ? lane() : 0);
  const uint32_t local = chooses ? pick->local : NONE;
  const bool here = local != NONE;
  uint64_t place = 0;
  if (here) {
    const uint32_t tile = source * tiles_each(call) + row / TILE_ROWS;
    const uint32_t before = call.moe().tiles[uint64_t{local} * tiles_of(call) + tile];
    // The warp of the first slice writes the final number while the warps of other slices read it.
    const uint32_t kept = platform::load_relaxed(&pick->row);
    const uint32_t number = (kept & IN_TILE) != 0 ? (kept & ~IN_TILE) + before : kept;
    place = expert_place(call, local, number);
    if (slice.is_first()) {
      platform::store_relaxed(&pick->row, number);
      p.src_info[place] = call.handle.sources[at].token;
    }
  }
  if (warp.any(here)) deliver(call, p, slot_of(call, source, row), here, place, slice);
}

WV_DEVICE void lay_by_expert(const SlotCall& call, const DispatchReceiveParams& p) {
  const uint32_t experts = call.moe().max_local_experts;
  for (uint32_t local = worker(); local < experts; local += workers()) {
    number_tiles(call, p, local);
  }
  grid_sync();
  for_received_rows(
      call, batches_to_deliver(call),
      [&](uint32_t source, uint32_t row, Slice slice) { spread(call, p, source, row, slice); });
}

// Layout by rank.

/// Copies a slice of one received token. The first slice also writes the local experts that the
/// token chose. A row whose header was out of range keeps its place, with no source and no expert.
/// Whole warp.
WV_DEVICE void keep(const SlotCall& call, const DispatchReceiveParams& p, uint32_t source,
                    uint32_t row, Slice slice) {
  const MoeContext& moe = call.moe();
  const uint64_t kept = uint64_t{source} * moe.max_tokens + row;
  const uint64_t at = uint64_t{source} * call.shape().max_tokens + row;
  const MoeSource from = call.handle.sources[kept];
  if (slice.is_first() && lane() < moe.top_k) {
    const MoePick pick = call.handle.picks[kept * moe.top_k + lane()];
    const bool here = pick.local != NONE;
    p.recv_experts[at * moe.top_k + lane()] = here ? static_cast<int32_t>(pick.local) : -1;
    p.recv_weights[at * moe.top_k + lane()] = here ? pick.weight : 0.0f;
    if (here) count_rows(p, pick.local, 1);
  }
  if (slice.is_first() && lane() == 0) p.src_info[at] = from.token;
  if (from.token != NONE) deliver(call, p, slot_of(call, source, row), lane() == 0, at, slice);
}

WV_DEVICE void lay_by_rank(const SlotCall& call, const DispatchReceiveParams& p) {
  for (uint32_t source = thread_in_grid(); source < call.ranks(); source += grid_threads()) {
    p.counts[source] = call.handle.peers[source].rows_received;
  }
  for_received_rows(
      call, batches_to_deliver(call),
      [&](uint32_t source, uint32_t row, Slice slice) { keep(call, p, source, row, slice); });
}

/// Gives out no rows, for a phase that was called out of turn.
WV_DEVICE_COLD void lay_nothing(const SlotCall& call, const DispatchReceiveParams& p) {
  const bool by_rank = call.moe().layout == MoeLayout::rank_major;
  const uint32_t counts = by_rank ? call.ranks() : call.moe().max_local_experts;
  for (uint32_t i = thread_in_grid(); i < counts; i += grid_threads()) p.counts[i] = 0;
  Mask{p.active, (p.flags & RECEIVE_IN_PLACE) != 0, false}.clear(call);
}

WV_DEVICE_ONCE void dispatch_receive(const DispatchReceiveParams& p) {
  begin_phase(
      p.moe->layer,
      [&] {
        begin(&p.moe->layer, p.handle, DISPATCH_RECEIVE, CallStage::dispatch_sent);
        const SlotCall call(p.moe, p.handle, DISPATCH_RECEIVE);
        if (call.in_turn()) p.handle->offered = offers_staging(call) && call.runs();
      },
      [&] {
        const SlotCall call(p.moe, p.handle, DISPATCH_RECEIVE);
        if (call.in_turn()) receive_dispatch(call, p);
      });
  const SlotCall call(p.moe, p.handle, DISPATCH_RECEIVE);
  tell_staging(call, p);
  if (!call.in_turn()) return lay_nothing(call, p);
  if (!call.runs()) {
    withhold(call, p);
    grid_sync();
  }
  const bool by_rank = call.moe().layout == MoeLayout::rank_major;
  for_tiles(call, [&](const Tile& tile) {
    read_headers(call, tile);
    if (!by_rank) count_picks(call, tile);
  });
  grid_sync();
  if (by_rank) {
    lay_by_rank(call, p);
  } else {
    lay_by_expert(call, p);
  }
  end_receive(call);
}

}  // namespace wv::moe
