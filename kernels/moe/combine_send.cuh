// Combine, send phase: the rank of the experts sends rows back for each received token. A layer
// sends one of three kinds of row (returns.cuh): the sum of weight * y over this rank's experts,
// the caller's row of the token, or each expert's row. Sums are in f32 in ascending k, rounded once
// to BF16: crates/moe-reference/src/combine.rs.
//
// The rows to send lie in the staging memory, sorted by the rank to which they go. Rows for a peer
// are staged only when no HCA still reads the rows that this set last sent to that peer. A peer
// whose last rows are still on their way gets no rows of this call, and no other peer waits for it.
// With COMBINE_ZERO_COPY the caller writes the rows into the staging memory itself, after the
// receive phase of this call's dispatch has offered that memory. A call to which no memory was
// offered copies.
#pragma once

#include "dispatch_receive.cuh"

namespace wv::moe {

/// The output of the experts as the caller passed it: `y`, or `copy_from` if the caller set
/// COMBINE_ZERO_COPY and the call was offered no memory to write `y` into.
struct Given {
  uint64_t y;
  bool weighted;

  WV_DEVICE explicit Given(const CombineSendParams& p)
      : y(reinterpret_cast<uint64_t>((p.flags & COMBINE_ZERO_COPY) != 0 ? p.copy_from : p.y)),
        weighted((p.flags & COMBINE_UNWEIGHTED) == 0) {}
  /// Returns the address of the row at `place`.
  WV_DEVICE uint64_t at(const MoeContext& moe, uint64_t place) const {
    return y + place * moe.combine_row_bytes;
  }
};

/// Adds up a slice of one received token over the experts of this rank. Whole warp.
WV_DEVICE void add_experts(const SlotCall& call, const Given& given, uint32_t source, uint32_t row,
                           Slice slice) {
  const MoeContext& moe = call.moe();
  const MoePick pick = pick_of_lane(call, source, row);
  const uint64_t place = expert_place(call, pick.local, pick.row);
  Terms terms;
  terms.take(pick.local != NONE, given.at(moe, place), given.weighted ? pick.weight : 1.0f);
  const uint64_t out = moe.staging.base + staged_row(call, source, row, 0);
  terms.add_up<true>(moe.hidden / VECTOR, reinterpret_cast<platform::Vec16*>(out), false, 1.0f,
                     slice);
}

/// Copies a slice of the caller's row of one received token. Whole warp.
WV_DEVICE void copy_row(const SlotCall& call, const Given& given, uint32_t source, uint32_t row,
                        Slice slice) {
  const MoeContext& moe = call.moe();
  const uint64_t place = uint64_t{source} * call.shape().max_tokens + row;
  copy(moe.staging.base + staged_row(call, source, row, 0), given.at(moe, place),
       moe.combine_row_bytes, slice);
}

/// Copies a slice of the rows that the experts made of one received token. Whole warp.
WV_DEVICE void copy_experts(const SlotCall& call, const Given& given, uint32_t source, uint32_t row,
                            Slice slice) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe();
  const MoePick pick = pick_of_lane(call, source, row);
  const uint32_t chosen = warp.ballot(pick.local != NONE);
  const uint32_t which = __popc(chosen & ((1u << lane()) - 1));
  const uint64_t from = given.at(moe, expert_place(call, pick.local, pick.row));
  const uint64_t to = moe.staging.base + staged_row(call, source, row, which);
  for (uint32_t rest = chosen; rest != 0; rest &= rest - 1) {
    const uint32_t lane = __ffs(rest) - 1;
    copy(warp.shuffle(to, lane), warp.shuffle(from, lane), moe.combine_row_bytes, slice);
  }
}

/// Writes the rows for the peers whose credit is one of `credits` (as bits) into the staging
/// memory. The whole grid.
WV_DEVICE_ONCE void stage_returns(const SlotCall& call, const CombineSendParams& p,
                                  uint32_t credits) {
  const uint32_t vectors = call.moe().hidden / VECTOR;
  const Given given(p);
  switch (returns_of(call.moe())) {
    case Return::sums:
      return for_received_rows(
          call, batches_of<BATCH>(vectors),
          [&](uint32_t source, uint32_t row, Slice slice) {
            add_experts(call, given, source, row, slice);
          },
          credits);
    case Return::as_given:
      return for_received_rows(
          call, batches_of<LONG_BATCH>(vectors),
          [&](uint32_t source, uint32_t row, Slice slice) {
            copy_row(call, given, source, row, slice);
          },
          credits);
    case Return::rows:
      return for_received_rows(
          call, batches_of<LONG_BATCH>(vectors),
          [&](uint32_t source, uint32_t row, Slice slice) {
            copy_experts(call, given, source, row, slice);
          },
          credits);
  }
}

/// Returns whether this call has a combine and the layer can do what the flags ask. In a zero-copy
/// call `y` is the staging memory of this call's set, or null.
WV_DEVICE bool allowed(const SlotCall& call, const CombineSendParams& p) {
  if ((p.flags & ~(COMBINE_ZERO_COPY | COMBINE_UNWEIGHTED)) != 0) return false;
  if ((call.handle.combine_flags & COMBINE_NONE) != 0) return false;
  if ((p.flags & COMBINE_ZERO_COPY) == 0) return true;
  if (!offers_staging(call)) return false;
  if (call.handle.offered == 0) return p.copy_from != nullptr;
  const auto y = reinterpret_cast<uint64_t>(p.y);
  return y == 0 || y == staged_y(call);
}

/// Records the options of this combine in the handle. One thread.
WV_DEVICE void take_options(MoeHandle& handle, const CombineSendParams& p) {
  handle.combine_flags = handle.offered != 0 ? p.flags : p.flags & ~COMBINE_ZERO_COPY;
  handle.landed = 0;
  if (p.deadline_ns != 0) handle.deadline_ns = p.deadline_ns;
}

WV_DEVICE_ONCE void combine_send(const CombineSendParams& p) {
  begin_phase(
      p.moe->layer,
      [&] {
        begin(&p.moe->layer, p.handle, COMBINE_SEND, CallStage::dispatched);
        const SlotCall call(p.moe, p.handle, COMBINE_SEND);
        if (call.in_turn() && !allowed(call, p)) refuse(call, CallStage::dispatched);
        if (call.in_turn()) take_options(*p.handle, p);
      },
      [&] {
        const SlotCall call(p.moe, p.handle, COMBINE_SEND);
        if (call.in_turn()) begin_send(call);
      });
  SlotCall call(p.moe, p.handle, COMBINE_SEND);
  if (!call.in_turn()) return;
  const bool copies = !is_zero_copy(call);
  if (copies && Warp{}.any(call.runs())) {
    const bool all = (call.handle.tell & UNSTAGED) == 0;
    stage_returns(call, p, all ? ANY_CREDIT : 1u << GIVEN | 1u << AWAITED);
  }
  grid_sync();
  if ((call.handle.tell & TELL) != 0) {
    for (uint32_t peer = worker(); peer < call.ranks(); peer += workers()) {
      if (peer != call.rank()) tell(call, peer);
    }
  }
  send_to_peers(
      call,
      [&](uint32_t peer) {
        const MoeHandlePeer& state = call.handle.peers[peer];
        const uint32_t rows = state.rows_received;
        return send(call, peer, rows - state.malformed, Pieces::of_returns(call.moe(), rows));
      },
      [&] {
        if (copies && call.handle.landed != 0) {
          stage_returns(call, p, 1u << LANDED);
          grid_sync();
        }
      },
      [&](uint32_t peer, Outcome outcome) { call.handle.peers[peer].combine_sent = outcome; });
}

}  // namespace wv::moe
