// Dispatch, receive phase: headers are checked and copied to the handle, then the tokens are laid
// out. By expert, every local expert numbers its rows in the order (source, row). By rank, each
// token lies once, in the order of its source.
#pragma once

#include "dispatch_send.cuh"
#include "receive.cuh"
#include "returns.cuh"

namespace wv::moe {

/// Whether the caller may write what combine sends straight into the staging memory, whose shape is
/// that of the largest call.
WV_DEVICE bool offers_staging(const Call& call) {
  return returns_of(call.moe) != Return::sums && call.shape().max_tokens == call.moe.max_tokens;
}

/// Waits for every peer's word; keeps how each wait ended. Threads share the peers.
///
/// Where the caller may write to the combine staging memory of this call, this phase waits until
/// nothing reads it any more. The caller needs to know only that the phase has ended.
WV_DEVICE void receive_dispatch(const Call& call, const DispatchReceiveParams& p) {
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
      // As many as this layer never sends, or only in a larger call.
      const bool larger = arrival.count <= call.moe.max_tokens;
      record_fault(call, larger ? MoeCause::shape : MoeCause::malformed, peer);
    }
    state.dispatch_received = fits ? arrival.outcome : Outcome::gave_up;
    state.rows_received = fits ? arrival.count : 0;
    if (p.wait_ns != nullptr) p.wait_ns[peer] += arrival.waited_ns;
    const bool here = state.dispatch_received == Outcome::accepted;
    tell_active(p.active, (p.flags & RECEIVE_IN_PLACE) != 0, peer, here);
  });
  if (!offers_staging(call)) return;
  Call combine(&call.moe, &call.handle, COMBINE_SEND);
  combine.deadline = call.deadline;
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    if (peer == call.rank()) continue;
    const Status status = settle_staging(combine, peer);
    if (status == Status::ok) continue;
    call.stop(status);
    record_failure(call, peer, status);
  }
}

/// Gives out no rows, so that no caller writes rows to be sent back over bytes in flight: combine
/// then returns none.
WV_DEVICE_COLD void withhold(const Call& call, const DispatchReceiveParams& p) {
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    call.handle.peers[peer].rows_received = 0;
    if (p.active != nullptr) p.active[peer] = 0;
  }
}

/// Returns where the caller may write what combine sends. A host that replays graphs does not know
/// it: the set goes by the number of the call. The whole grid, behind the barrier after
/// `receive_dispatch`.
WV_DEVICE void tell_staging(const Call& call, const DispatchReceiveParams& p) {
  if (p.staging == nullptr || thread_in_grid() != 0) return;
  const bool offered = call.in_turn() && call.runs() && offers_staging(call);
  *p.staging = offered ? staged_y(call) : 0;
}

/// Address of row `row` from `source`; this rank's own rows are read where they were staged.
WV_DEVICE uint64_t slot_of(const Call& call, uint32_t source, uint32_t row) {
  if (source == call.rank()) {
    const uint32_t token = call.handle.token_of[uint64_t{source} * call.moe.max_tokens + row];
    return call.moe.staging.base + call.dispatch_staging(token);
  }
  return call.moe.slots.base + call.dispatch_slot(source, row);
}

/// Up to 32 received rows of one source, one for each lane.
struct Tile {
  uint32_t number;
  uint32_t source;
  /// The row of lane 0, and how many lanes have one.
  uint32_t first, rows;

  WV_DEVICE bool has_row() const { return lane() < rows; }
  WV_DEVICE uint32_t row() const { return first + lane(); }
};

/// Tiles of one source, empty ones included; of all sources.
WV_DEVICE uint32_t tiles_each(const Call& call) { return (call.moe.max_tokens + 31) / 32; }
WV_DEVICE uint32_t tiles_of(const Call& call) { return call.ranks() * tiles_each(call); }

/// Calls `body(tile)` for all tiles, spread over the warps of the grid. Whole warp.
template <class Body>
WV_DEVICE void for_tiles(const Call& call, Body body) {
  const uint32_t each = tiles_each(call), tiles = tiles_of(call);
  for (uint32_t number = warp_in_grid(); number < tiles; number += grid_warps()) {
    const uint32_t source = number / each, first = number % each * 32;
    const uint32_t received = call.handle.peers[source].rows_received;
    const uint32_t rows = received > first ? received - first : 0;
    body(Tile{number, source, first, rows < 32 ? rows : 32});
  }
}

/// Choices of a header that are read together.
inline constexpr uint32_t CHOICES = 8;

/// Copies one header to the handle, if everything in it is in range: it comes from a peer, and is
/// used for addresses.
WV_DEVICE void read_header(const Call& call, uint32_t source, uint32_t row) {
  const MoeContext& moe = call.moe;
  const uint32_t top_k = moe.top_k, slots = call.view.expert_slots;
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  const auto* const header = reinterpret_cast<const uint32_t*>(slot_of(call, source, row));
  MoePick* const picks = call.handle.picks + at * top_k;
  const uint32_t token = header[Header::TOKEN] & Header::TOKEN_MASK;
  const bool fits = token < call.shape().max_tokens;
  // A tag that is none at all says nothing of the peer's call.
  const bool other =
      token < moe.max_tokens && header[Header::TOKEN] >> Header::TAG_SHIFT != call.shape().tag;
  bool good = fits && !other && header[Header::CALL] == call.call;
  uint32_t found = 0;
  for (uint32_t base = 0; base < top_k; base += CHOICES) {
    // Loads of a batch together; the last choice stands for those behind it.
    uint32_t experts[CHOICES], weights[CHOICES], locals[CHOICES];
    ExpertHome homes[CHOICES];
    for (uint32_t i = 0; i < CHOICES; ++i) {
      const uint32_t k = base + i < top_k ? base + i : top_k - 1;
      experts[i] = header[Header::EXPERTS + k];
      weights[i] = header[Header::EXPERTS + top_k + k];
    }
    for (uint32_t i = 0; i < CHOICES; ++i) {
      homes[i] = call.view.homes[experts[i] < slots ? experts[i] : 0];
    }
    for (uint32_t i = 0; i < CHOICES; ++i) {
      const bool exists = base + i < top_k;
      const bool chosen = exists && experts[i] != NONE;  // else -1: no choice
      good = good && (!chosen || experts[i] < slots);
      const bool here = chosen && experts[i] < slots && homes[i].rank == call.rank();
      locals[i] = here ? homes[i].local : NONE;
      for (uint32_t j = 0; j < i; ++j) good = good && (!here || locals[j] != locals[i]);
      for (uint32_t j = 0; here && j < base; ++j) good = good && picks[j].local != locals[i];
      found += here ? 1 : 0;
      if (exists) picks[base + i] = {locals[i], NONE, platform::float_of(weights[i])};
    }
  }
  if (!good) {
    for (uint32_t k = 0; k < top_k; ++k) picks[k].local = NONE;
    platform::add_relaxed(&call.handle.peers[source].malformed, 1u);
    call.report(Status::invalid);
    record_fault(call, other ? MoeCause::shape : MoeCause::malformed, source);
  }
  call.handle.sources[at] = {good ? token : NONE, good ? found : 0};
}

/// Adds `rows` to the statistics of a local expert, if the caller keeps them.
WV_DEVICE void count_rows(const DispatchReceiveParams& p, uint32_t local, uint32_t rows) {
  if (p.recv_stats == nullptr) return;
  if ((p.flags & RECEIVE_STATS_32) != 0) {
    platform::add_relaxed(reinterpret_cast<uint32_t*>(p.recv_stats) + local, rows);
  } else {
    platform::add_relaxed(p.recv_stats + local, uint64_t{rows});
  }
}

// By expert.

/// Counts the rows of a tile that go to each local expert, and numbers them from 0 in the order of
/// the lanes. `MoePick::row` holds the number until `spread`. Whole warp, behind `read_header` of
/// its lanes.
WV_DEVICE void count_picks(const Call& call, const Tile& tile) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint32_t experts = moe.max_local_experts, tiles = tiles_of(call), top_k = moe.top_k;
  const uint64_t at = uint64_t{tile.source} * moe.max_tokens + (tile.has_row() ? tile.row() : 0);
  MoePick* const picks = call.handle.picks + at * top_k;
  for (uint32_t first = 0; first < experts; first += 32) {
    // The experts first .. first + 31 that this lane's row goes to, as bits.
    uint32_t own = 0;
    for (uint32_t k = 0; tile.has_row() && k < top_k; ++k) {
      const uint32_t at_bit = picks[k].local - first;
      if (at_bit < 32) own |= 1u << at_bit;
    }
    // The lanes whose rows go to expert first + lane(), as bits.
    uint32_t lanes = 0;
    for (uint32_t rest = warp.any_bits(own); rest != 0; rest &= rest - 1) {
      const uint32_t expert = __ffs(rest) - 1;
      const uint32_t votes = warp.ballot((own >> expert & 1) != 0);
      if (lane() == expert) lanes = votes;
    }
    const uint32_t expert = first + lane();
    if (expert < experts) {
      call.moe.tiles[uint64_t{expert} * tiles + tile.number] = __popc(lanes);
    }
    for (uint32_t k = 0; tile.rows != 0 && k < top_k; ++k) {
      const uint32_t at_bit = tile.has_row() ? picks[k].local - first : NONE;
      const uint32_t votes = warp.shuffle(lanes, at_bit % 32);
      if (at_bit < 32) picks[k].row = __popc(votes & ((1u << lane()) - 1));
    }
  }
}

/// Turns the counts of the tiles of one local expert into the rows that the tiles begin with, in
/// the order (source, row). Whole warp.
WV_DEVICE void number_tiles(const Call& call, const DispatchReceiveParams& p, uint32_t local) {
  constexpr Warp warp;
  const uint32_t each = tiles_each(call), tiles = tiles_of(call), ranks = call.ranks();
  uint32_t* const counts = call.moe.tiles + uint64_t{local} * tiles;
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
  warp.sync();  // what other lanes have stored
  for (uint32_t source = lane(); source < ranks; source += 32) {
    const uint32_t begin = counts[source * each];
    const uint32_t end = source + 1 < ranks ? counts[(source + 1) * each] : total;
    p.layout_range[uint64_t{local} * ranks + source] = pack(begin, end - begin);
  }
  if (!warp.leader()) return;
  p.counts[local] = total;
  count_rows(p, local, total);
}

/// Copies one received token to its experts, and keeps its rows at them. Whole warp.
WV_DEVICE void spread(const Call& call, const DispatchReceiveParams& p, uint32_t source,
                      uint32_t row) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  const uint32_t token = call.handle.sources[at].token;
  MoePick pick = pick_of_lane(call, source, row);
  const bool here = pick.local != NONE;
  uint64_t place = 0;
  if (here) {
    const uint32_t tile = source * tiles_each(call) + row / 32;
    pick.row += call.moe.tiles[uint64_t{pick.local} * tiles_of(call) + tile];
    call.handle.picks[at * moe.top_k + lane()].row = pick.row;
    place = expert_place(call, pick.local, pick.row);
    p.src_info[place] = token;
  }
  if (warp.any(here)) deliver(call, p, slot_of(call, source, row), here, place);
}

WV_DEVICE void lay_by_expert(const Call& call, const DispatchReceiveParams& p) {
  const uint32_t experts = call.moe.max_local_experts;
  for (uint32_t local = warp_in_grid(); local < experts; local += grid_warps()) {
    number_tiles(call, p, local);
  }
  grid_sync();
  for_received_rows(call, [&](uint32_t source, uint32_t row) { spread(call, p, source, row); });
}

// By rank.

/// Copies one received token with the local experts that it chose. A row whose header was out of
/// range keeps its place, with no source and no expert. Whole warp.
WV_DEVICE void keep(const Call& call, const DispatchReceiveParams& p, uint32_t source,
                    uint32_t row) {
  const MoeContext& moe = call.moe;
  const uint64_t kept = uint64_t{source} * moe.max_tokens + row;
  const uint64_t at = uint64_t{source} * call.shape().max_tokens + row;
  const MoeSource from = call.handle.sources[kept];
  if (lane() < moe.top_k) {
    const MoePick pick = call.handle.picks[kept * moe.top_k + lane()];
    const bool here = pick.local != NONE;
    p.recv_experts[at * moe.top_k + lane()] = here ? static_cast<int32_t>(pick.local) : -1;
    p.recv_weights[at * moe.top_k + lane()] = here ? pick.weight : 0.0f;
    if (here) count_rows(p, pick.local, 1);
  }
  if (lane() == 0) p.src_info[at] = from.token;
  if (from.token != NONE) deliver(call, p, slot_of(call, source, row), lane() == 0, at);
}

WV_DEVICE void lay_by_rank(const Call& call, const DispatchReceiveParams& p) {
  for (uint32_t source = thread_in_grid(); source < call.ranks(); source += grid_threads()) {
    p.counts[source] = call.handle.peers[source].rows_received;
  }
  for_received_rows(call, [&](uint32_t source, uint32_t row) { keep(call, p, source, row); });
}

/// The phase was called out of turn: it has no rows.
WV_DEVICE_COLD void lay_nothing(const Call& call, const DispatchReceiveParams& p) {
  const bool by_rank = call.moe.layout == MoeLayout::rank_major;
  const uint32_t counts = by_rank ? call.ranks() : call.moe.max_local_experts;
  for (uint32_t i = thread_in_grid(); i < counts; i += grid_threads()) p.counts[i] = 0;
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    if (p.active != nullptr) p.active[peer] = 0;
  }
}

WV_DEVICE_ONCE void dispatch_receive(const DispatchReceiveParams& p) {
  begin_phase(
      *p.moe, [&] { begin(p.moe, p.handle, DISPATCH_RECEIVE, CallStage::dispatch_sent); },
      [&] {
        const Call call(p.moe, p.handle, DISPATCH_RECEIVE);
        if (call.in_turn()) receive_dispatch(call, p);
      });
  const Call call(p.moe, p.handle, DISPATCH_RECEIVE);
  tell_staging(call, p);
  if (!call.in_turn()) return lay_nothing(call, p);
  if (!call.runs()) {
    withhold(call, p);
    grid_sync();
  }
  const bool by_rank = call.moe.layout == MoeLayout::rank_major;
  for_tiles(call, [&](const Tile& tile) {
    if (tile.has_row()) read_header(call, tile.source, tile.row());
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
