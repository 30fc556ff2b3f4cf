// Combine, send phase: the rank of the experts adds up, for each received token, weight * y of its
// experts and sends one row back. The sum is in f32 in a fixed order, rounded once to BF16:
// src/moe/reference.rs.
#pragma once

#include "dispatch_receive.cuh"

namespace wv::moe {

/// Adds up one received token over the experts of this rank. Whole warp.
WV_DEVICE void add_experts(const Call& call, const CombineSendParams& p, uint32_t source,
                           uint32_t row) {
  struct Term {
    const platform::Vec16* y;
    float weight;
  };
  const MoeContext& moe = call.moe;
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  Term terms[MAX_TOP_K];
  uint32_t count = 0;
  for (uint32_t k = 0; k < moe.top_k; ++k) {
    const MoePick pick = call.handle.picks[at * moe.top_k + k];
    if (pick.local == NONE) continue;
    const uint64_t place = uint64_t{pick.local} * call.ranks() * moe.max_tokens + pick.row;
    const uint64_t y = reinterpret_cast<uint64_t>(p.y) + place * moe.combine_row_bytes;
    terms[count++] = {reinterpret_cast<const platform::Vec16*>(y), pick.weight};
  }
  const uint64_t target = source == call.rank()
                              ? moe.slots.base + call.combine_slot(source, row)
                              : moe.staging.base + call.combine_staging(source, row);
  auto* const out = reinterpret_cast<platform::Vec16*>(target);
  for (uint32_t i = lane(); i < moe.hidden / VECTOR; i += 32) {
    Floats sums;
    for (uint32_t term = 0; term < count; ++term)
      sums.add(terms[term].weight, Floats::of(terms[term].y[i]));
    out[i] = sums.round();
  }
}

/// Sends `peer` the sums of its rows, which lie behind one another on both sides. Whole warp.
WV_DEVICE Outcome send_sums(const Call& call, uint32_t peer) {
  const MoeHandlePeer& state = call.handle.peers[peer];
  const MoeContext& moe = call.moe;
  const auto row_bytes = static_cast<uint32_t>(moe.combine_row_bytes);
  const uint32_t each = row_bytes < COMBINE_PUT_BYTES ? COMBINE_PUT_BYTES / row_bytes : 1;
  const uint32_t rows = state.rows_received;
  return send<Credits::required>(
      call, peer, rows - state.malformed, (rows + each - 1) / each, [&](uint32_t i, Piece* piece) {
        const uint32_t from = i * each, left = rows - from;
        *piece = {call.combine_staging(peer, from), call.combine_slot(call.rank(), from),
                  (left < each ? left : each) * row_bytes};
        return true;
      });
}

WV_DEVICE void combine_send(const CombineSendParams& p) {
  if (thread_in_grid() == 0) begin(p.moe, p.handle, COMBINE_SEND, CallStage::dispatched);
  grid_sync();
  const Call call(p.moe, p.handle, COMBINE_SEND);
  if (!call.in_turn()) return;
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    if (peer == call.rank()) continue;
    if (const Status status = settle_staging(call, peer); status != Status::ok) call.stop(status);
    if (!has_credit(call, peer)) platform::store_relaxed(&call.handle.tell, 1u);
  }
  grid_sync();
  if (Warp{}.any(call.runs())) {
    for_received_rows(call, warp_in_grid(), grid_warps(),
                      [&](uint32_t source, uint32_t row) { add_experts(call, p, source, row); });
  }
  grid_sync();
  const bool runs = call.runs();
  if (call.handle.tell != 0) {
    for (uint32_t peer = warp_in_grid(); peer < call.ranks(); peer += grid_warps()) {
      if (peer != call.rank()) tell(call, peer);
    }
  }
  for (uint32_t peer = warp_in_grid(); peer < call.ranks(); peer += grid_warps()) {
    const Outcome outcome =
        peer == call.rank() ? (runs ? Outcome::sent : Outcome::skipped) : send_sums(call, peer);
    if (lane() == 0) call.handle.peers[peer].combine_sent = outcome;
  }
}

}  // namespace wv::moe
