// Combine, receive phase: the source adds the rows of the ranks, in f32 in the order of the ranks,
// rounded once to BF16: src/moe/reference.rs.
#pragma once

#include "bf16.cuh"
#include "receive.cuh"
#include "send.cuh"

namespace wv::moe {

/// Waits for every peer's word and decides whose rows are added: those of a peer that got all rows
/// and returns all of them.
WV_DEVICE void receive_combine(const Call& call) {
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    MoeHandlePeer& state = call.handle.peers[peer];
    Arrival arrival{};
    if (peer == call.rank()) {
      const bool sent = state.combine_sent == Outcome::sent;
      arrival = {sent ? Outcome::accepted : Outcome::not_sent,
                 sent ? state.rows_received - state.malformed : 0};
    } else {
      arrival = receive(call, peer);
    }
    state.combine_received = arrival.outcome;
    state.rows_combined = arrival.count;
    state.valid = state.dispatch_sent == Outcome::sent && arrival.outcome == Outcome::accepted &&
                  arrival.count == state.rows_sent;
  }
}

/// Adds up one token over the ranks. Whole warp.
WV_DEVICE void add_ranks(const Call& call, const CombineReceiveParams& p, uint32_t token) {
  const MoeContext& moe = call.moe;
  const platform::Vec16* rows[MAX_TOP_K];
  uint32_t count = 0;
  // A choice that nobody serves is missing from the start.
  const bool lost =
      lane() < moe.top_k && call.handle.chosen[uint64_t{token} * moe.top_k + lane()] == LOST;
  bool valid = !Warp{}.any(lost);
  for (uint32_t peer = 0; peer < call.ranks(); ++peer) {
    const uint32_t row = call.handle.row_of[uint64_t{peer} * moe.max_tokens + token];
    if (row == NONE) continue;
    const bool back = call.handle.peers[peer].valid != 0;
    valid = valid && back;
    if (!back || count == MAX_TOP_K) continue;
    const uint64_t at = moe.slots.base + call.combine_slot(peer, row);
    rows[count++] = reinterpret_cast<const platform::Vec16*>(at);
  }
  auto* const out =
      reinterpret_cast<platform::Vec16*>(p.out) + uint64_t{token} * moe.hidden / VECTOR;
  for (uint32_t i = lane(); i < moe.hidden / VECTOR; i += 32) {
    Floats sums;
    for (uint32_t row = 0; row < count; ++row) sums.add(Floats::of(rows[row][i]));
    out[i] = sums.round();
  }
  if (lane() == 0) p.token_valid[token] = valid;
}

WV_DEVICE void combine_receive(const CombineReceiveParams& p) {
  if (thread_in_grid() == 0) begin(p.moe, p.handle, COMBINE_RECEIVE, CallStage::combine_sent);
  grid_sync();
  const Call call(p.moe, p.handle, COMBINE_RECEIVE);
  if (!call.in_turn()) {
    for (uint32_t token = thread_in_grid(); token < call.handle.tokens; token += grid_threads()) {
      p.token_valid[token] = 0;
    }
    return;
  }
  receive_combine(call);
  grid_sync();
  for (uint32_t token = warp_in_grid(); token < call.handle.tokens; token += grid_warps()) {
    add_ranks(call, p, token);
  }
  grid_sync();
  if (thread_in_grid() == 0) release(call);
}

}  // namespace wv::moe
