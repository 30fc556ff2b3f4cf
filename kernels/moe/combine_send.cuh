// Combine, send phase: the rank of the experts sends rows back for each received token. It sends
// the sum of weight * y over its experts, the row that the caller made of it, or the row of every
// expert. Sums are in f32 in ascending k, rounded once to BF16:
// crates/moe-reference/src/combine.rs.
//
// The sent rows lie in the staging memory. With COMBINE_ZERO_COPY the caller has written them:
// since the receive phase of this call's dispatch, which has waited for that memory.
#pragma once

#include "dispatch_receive.cuh"

namespace wv::moe {

/// Adds up a slice of one received token over the experts of this rank. Whole warp.
WV_DEVICE void add_experts(const Call& call, const CombineSendParams& p, uint32_t source,
                           uint32_t row, Slice slice) {
  const MoeContext& moe = call.moe;
  const bool weighted = (p.flags & COMBINE_UNWEIGHTED) == 0;
  const MoePick pick = pick_of_lane(call, source, row);
  const uint64_t place = expert_place(call, pick.local, pick.row);
  Terms terms;
  terms.take(pick.local != NONE, reinterpret_cast<uint64_t>(p.y) + place * moe.combine_row_bytes,
             weighted ? pick.weight : 1.0f);
  const uint64_t out = moe.staging.base + staged_row(call, source, row);
  terms.add_up<true>(moe.hidden / VECTOR, reinterpret_cast<platform::Vec16*>(out), false, 1.0f,
                     slice);
}

/// Copies a slice of the caller's row of one received token. Whole warp.
WV_DEVICE void copy_row(const Call& call, const CombineSendParams& p, uint32_t source, uint32_t row,
                        Slice slice) {
  const MoeContext& moe = call.moe;
  const uint64_t place = uint64_t{source} * call.shape().max_tokens + row;
  const uint64_t from = reinterpret_cast<uint64_t>(p.y) + place * moe.combine_row_bytes;
  copy(moe.staging.base + staged_row(call, source, row), from, moe.combine_row_bytes, slice);
}

/// Copies a slice of what each expert made of one received token. Whole warp.
WV_DEVICE void copy_experts(const Call& call, const CombineSendParams& p, uint32_t source,
                            uint32_t row, Slice slice) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const MoePick pick = pick_of_lane(call, source, row);
  const uint64_t place = expert_place(call, pick.local, pick.row);
  const uint64_t from = reinterpret_cast<uint64_t>(p.y) + place * moe.combine_row_bytes;
  const uint64_t to = moe.staging.base + staged_expert(call, pick);
  for (uint32_t rest = warp.ballot(pick.local != NONE); rest != 0; rest &= rest - 1) {
    const uint32_t lane = __ffs(rest) - 1;
    copy(warp.shuffle(to, lane), warp.shuffle(from, lane), moe.combine_row_bytes, slice);
  }
}

/// Puts what goes back into the staging memory.
WV_DEVICE_ONCE void stage_returns(const Call& call, const CombineSendParams& p) {
  const uint32_t vectors = call.moe.hidden / VECTOR;
  switch (returns_of(call.moe)) {
    case Return::sums:
      return for_received_rows(call, batches_of<BATCH>(vectors),
                               [&](uint32_t source, uint32_t row, Slice slice) {
                                 add_experts(call, p, source, row, slice);
                               });
    case Return::as_given:
      return for_received_rows(call, batches_of<LONG_BATCH>(vectors),
                               [&](uint32_t source, uint32_t row, Slice slice) {
                                 copy_row(call, p, source, row, slice);
                               });
    case Return::rows:
      return for_received_rows(call, batches_of<LONG_BATCH>(vectors),
                               [&](uint32_t source, uint32_t row, Slice slice) {
                                 copy_experts(call, p, source, row, slice);
                               });
  }
}

/// Whether this call has a combine, and the layer can do what the flags ask. `y` of a zero-copy
/// call is the staging memory of this call's set, or null.
WV_DEVICE bool allowed(const Call& call, const CombineSendParams& p) {
  if ((p.flags & ~(COMBINE_ZERO_COPY | COMBINE_UNWEIGHTED)) != 0) return false;
  if ((call.handle.combine_flags & COMBINE_NONE) != 0) return false;
  if ((p.flags & COMBINE_ZERO_COPY) == 0) return true;
  const auto y = reinterpret_cast<uint64_t>(p.y);
  return offers_staging(call) && (y == 0 || y == staged_y(call));
}

/// Takes down what the caller wants of this combine. One thread.
WV_DEVICE void take_options(MoeHandle& handle, const CombineSendParams& p) {
  handle.combine_flags = p.flags;
  if (p.deadline_ns != 0) handle.deadline_ns = p.deadline_ns;
}

WV_DEVICE_ONCE void combine_send(const CombineSendParams& p) {
  begin_phase(
      *p.moe,
      [&] {
        begin(p.moe, p.handle, COMBINE_SEND, CallStage::dispatched);
        const Call call(p.moe, p.handle, COMBINE_SEND);
        if (call.in_turn() && !allowed(call, p)) refuse(call, CallStage::dispatched);
        if (call.in_turn()) take_options(*p.handle, p);
      },
      [&] {
        const Call call(p.moe, p.handle, COMBINE_SEND);
        if (call.in_turn()) begin_send(call);
      });
  const Call call(p.moe, p.handle, COMBINE_SEND);
  if (!call.in_turn()) return;
  if (Warp{}.any(call.runs()) && (p.flags & COMBINE_ZERO_COPY) == 0) stage_returns(call, p);
  grid_sync();
  if (call.handle.tell != 0) {
    for (uint32_t peer = worker(); peer < call.ranks(); peer += workers()) {
      if (peer != call.rank()) tell(call, peer);
    }
  }
  send_to_peers(
      call,
      [&](uint32_t peer) {
        const MoeHandlePeer& state = call.handle.peers[peer];
        const uint32_t rows = state.rows_received;
        return send(call, peer, rows - state.malformed, Pieces::of_returns(call.moe, rows));
      },
      [&](uint32_t peer, Outcome outcome) { call.handle.peers[peer].combine_sent = outcome; });
}

}  // namespace wv::moe
