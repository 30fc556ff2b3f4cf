// What the send phases put at a peer: staged rows of dispatch, and the rows that combine sends
// back.
#pragma once

#include "returns.cuh"

namespace wv::moe {

/// One put of a sender: its offsets in the staging window and in the peer's slot window, and its
/// length.
struct Piece {
  uint64_t from;
  uint64_t to;
  uint32_t bytes;
};

/// All puts of a phase to one peer, by number.
struct Pieces {
  enum class Of {
    /// Each piece is a token.
    tokens,
    /// Each piece is as many returned rows as fit into a put. Returned rows lie one after another
    /// on both sides.
    returned,
    /// Each piece is the row of an expert: of choice i mod top_k of received row i / top_k, if the
    /// expert lives at this rank.
    experts,
  };
  Of of;
  uint32_t count;

  /// Computes piece `i` for `peer`. Returns false if no piece has this number.
  WV_DEVICE bool at(const SlotCall& call, uint32_t peer, uint32_t i, Piece* piece) const {
    switch (of) {
      case Of::tokens:
        *piece = token(call, peer, i);
        return true;
      case Of::returned:
        *piece = returned(call, peer, i);
        return true;
      case Of::experts:
        return expert(call, peer, i, piece);
    }
    return false;
  }

  /// Returns the pieces for the `rows` rows that this rank's dispatch sends to a peer.
  WV_DEVICE static Pieces of_tokens(uint32_t rows) { return {Of::tokens, rows}; }
  /// Returns the pieces that go back for `rows` received rows.
  WV_DEVICE static Pieces of_returns(const MoeContext& moe, uint32_t rows) {
    if (returns_of(moe) == Return::rows) return {Of::experts, rows * moe.top_k};
    const uint32_t each = rows_of_a_piece(moe);
    return {Of::returned, (rows + each - 1) / each};
  }

 private:
  /// Returns the number of returned rows in one put.
  WV_DEVICE static uint32_t rows_of_a_piece(const MoeContext& moe) {
    const auto row_bytes = static_cast<uint32_t>(moe.combine_row_bytes);
    return row_bytes < COMBINE_PUT_BYTES ? COMBINE_PUT_BYTES / row_bytes : 1;
  }
  WV_DEVICE static Piece token(const SlotCall& call, uint32_t peer, uint32_t row) {
    const MoeContext& moe = call.moe();
    const uint32_t token = call.handle.token_of[uint64_t{peer} * moe.max_tokens + row];
    return {call.dispatch_staging(token), call.dispatch_slot(call.rank(), row),
            call.shape().scales_at + call.shape().scale_bytes};
  }
  WV_DEVICE static Piece returned(const SlotCall& call, uint32_t peer, uint32_t i) {
    const uint32_t each = rows_of_a_piece(call.moe()), from = i * each;
    const uint32_t left = call.handle.peers[peer].rows_received - from;
    return {staged_row(call, peer, from, 0), combine_slot(call, call.rank(), from, 0),
            (left < each ? left : each) * static_cast<uint32_t>(call.moe().combine_row_bytes)};
  }
  WV_DEVICE static bool expert(const SlotCall& call, uint32_t peer, uint32_t i, Piece* piece) {
    const MoeContext& moe = call.moe();
    const uint32_t row = i / moe.top_k, k = i % moe.top_k;
    const uint64_t at = (uint64_t{peer} * moe.max_tokens + row) * moe.top_k;
    const MoePick* const picks = call.handle.picks + at;
    if (picks[k].local == NONE) return false;
    uint32_t which = 0;
    for (uint32_t j = 0; j < k; ++j) which += picks[j].local != NONE;
    *piece = {expert_row(call, peer, row, which, picks[k]),
              combine_slot(call, call.rank(), row, which),
              static_cast<uint32_t>(moe.combine_row_bytes)};
    return true;
  }
};

}  // namespace wv::moe
