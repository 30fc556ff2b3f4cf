// Combine, receive phase: the source adds what came back, in f32, rounded once to BF16: one row of
// each rank in the order of the ranks, or weight * row of each expert in ascending k. The scalar
// reference is crates/moe-reference/src/combine.rs.
#pragma once

#include "bf16.cuh"
#include "receive.cuh"
#include "returns.cuh"
#include "send.cuh"

namespace wv::moe {

/// Waits for every peer's word and decides whose rows are added: those of a peer that got all rows
/// and returns all of them.
WV_DEVICE void receive_combine(const Call& call, const CombineReceiveParams& p) {
  const auto own = [&] {
    const MoeHandlePeer& state = call.handle.peers[call.rank()];
    const bool sent = state.combine_sent == Outcome::sent;
    return Arrival{sent ? Outcome::accepted : Outcome::not_sent,
                   sent ? state.rows_received - state.malformed : 0, 0};
  };
  receive_words(call, own, [&](uint32_t peer, const Arrival& arrival) {
    MoeHandlePeer& state = call.handle.peers[peer];
    state.combine_received = arrival.outcome;
    state.rows_combined = arrival.count;
    state.valid = state.dispatch_sent == Outcome::sent && arrival.outcome == Outcome::accepted &&
                  arrival.count == state.rows_sent;
    if (p.active != nullptr) p.active[peer] = state.valid;
    if (p.wait_ns != nullptr) p.wait_ns[peer] += arrival.waited_ns;
  });
}

/// Weights of the choices of this rank's tokens.
struct Weights {
  /// `[tokens, top_k]`; null: all are 1.
  const float* weights;

  WV_DEVICE Weights(const Call& call, const CombineReceiveParams& p)
      : weights(p.weights != nullptr ? p.weights : call.handle.weights) {
    if ((call.handle.combine_flags & COMBINE_UNWEIGHTED) != 0) weights = nullptr;
  }
  WV_DEVICE float at(uint64_t choice) const { return weights == nullptr ? 1.0f : weights[choice]; }
};

/// What is left of a token's choices.
struct Share {
  /// Sum of the weights of all choices, and of those that contribute, each in ascending k.
  float all = 0, left = 0;
  /// Whether all choices contribute.
  bool whole = true;
};

/// Whether the choice of expert slot `slot` contributes.
WV_DEVICE bool contributes(const Call& call, uint32_t slot) {
  return slot != LOST && call.handle.peers[call.view.homes[slot].rank].valid != 0;
}

WV_DEVICE Share share_of(const Call& call, const Weights& weights, uint32_t token) {
  Share share;
  for (uint32_t k = 0; k < call.moe.top_k; ++k) {
    const uint64_t choice = uint64_t{token} * call.moe.top_k + k;
    const uint32_t slot = call.handle.chosen[choice];
    if (slot == NONE) continue;
    const float weight = weights.at(choice);
    share.all = platform::add_rn(share.all, weight);
    if (contributes(call, slot)) {
      share.left = platform::add_rn(share.left, weight);
    } else {
      share.whole = false;
    }
  }
  return share;
}

/// The rows that are added for one token.
struct Terms {
  const platform::Vec16* rows[MAX_TOP_K];
  float weights[MAX_TOP_K];
  uint32_t count = 0;

  WV_DEVICE void take(uint64_t row, float weight) {
    if (count == MAX_TOP_K) return;
    rows[count] = reinterpret_cast<const platform::Vec16*>(row);
    weights[count++] = weight;
  }
};

/// One row of each rank that the token went to.
WV_DEVICE void take_ranks(const Call& call, uint32_t token, Terms* terms) {
  const MoeContext& moe = call.moe;
  for (uint32_t peer = 0; peer < call.ranks(); ++peer) {
    const uint32_t row = call.handle.row_of[uint64_t{peer} * moe.max_tokens + token];
    if (row == NONE || call.handle.peers[peer].valid == 0) continue;
    // This rank's own rows stay where they were staged.
    terms->take(peer == call.rank() ? moe.staging.base + staged_row(call, peer, row)
                                    : moe.slots.base + combine_slot(call, peer, row, 0),
                1.0f);
  }
}

/// The row of each expert that the token went to.
WV_DEVICE void take_experts(const Call& call, const Weights& weights, uint32_t token,
                            Terms* terms) {
  const MoeContext& moe = call.moe;
  const uint64_t first = uint64_t{token} * moe.top_k;
  for (uint32_t k = 0; k < moe.top_k; ++k) {
    const uint32_t slot = call.handle.chosen[first + k];
    if (slot == NONE || !contributes(call, slot)) continue;
    const uint32_t peer = call.view.homes[slot].rank;
    const uint32_t row = call.handle.row_of[uint64_t{peer} * moe.max_tokens + token];
    uint64_t at;
    if (peer == call.rank()) {
      const uint64_t own = uint64_t{peer} * moe.max_tokens + row;
      at = moe.staging.base + staged_expert(call, call.handle.picks[own * moe.top_k + k]);
    } else {
      uint32_t which = 0;
      for (uint32_t j = 0; j < k; ++j) {
        const uint32_t other = call.handle.chosen[first + j];
        which += other < LOST && call.view.homes[other].rank == peer;
      }
      at = moe.slots.base + combine_slot(call, peer, row, which);
    }
    terms->take(at, weights.at(first + k));
  }
}

/// Adds up one token. Whole warp.
WV_DEVICE void add_up(const Call& call, const CombineReceiveParams& p, uint32_t token) {
  const MoeContext& moe = call.moe;
  const Weights weights(call, p);
  const Share share = share_of(call, weights, token);
  const bool rows = returns_of(moe) == Return::rows;
  Terms terms;
  if (rows) {
    take_experts(call, weights, token, &terms);
  } else {
    take_ranks(call, token, &terms);
  }
  const bool scaled = !share.whole && (p.flags & COMBINE_RENORMALISE) != 0;
  if (scaled && share.left == 0) terms.count = 0;
  const float scale = scaled && share.left != 0 ? platform::div_rn(share.all, share.left) : 1.0f;
  auto* const out =
      reinterpret_cast<platform::Vec16*>(p.out) + uint64_t{token} * (moe.hidden / VECTOR);
  for (uint32_t i = lane(); i < moe.hidden / VECTOR; i += 32) {
    Floats sums;
    for (uint32_t term = 0; term < terms.count; ++term) {
      const Floats row = Floats::of(terms.rows[term][i]);
      if (rows) {
        sums.add(terms.weights[term], row);
      } else {
        sums.add(row);
      }
    }
    if (scaled) sums.scale(scale);
    out[i] = sums.round();
  }
  if (lane() == 0) p.token_valid[token] = share.whole;
}

/// Whether this layer can do what the parameters ask.
WV_DEVICE bool allowed(const Call& call, const CombineReceiveParams& p) {
  if ((p.flags & ~COMBINE_RENORMALISE) != 0) return false;
  const bool unweighted = (call.handle.combine_flags & COMBINE_UNWEIGHTED) != 0;
  return p.weights == nullptr || (returns_of(call.moe) == Return::rows && !unweighted);
}

WV_DEVICE_ONCE void combine_receive(const CombineReceiveParams& p) {
  if (thread_in_grid() == 0) {
    begin(p.moe, p.handle, COMBINE_RECEIVE, CallStage::combine_sent);
    const Call call(p.moe, p.handle, COMBINE_RECEIVE);
    if (call.in_turn() && !allowed(call, p)) refuse(call, CallStage::combine_sent);
  }
  grid_sync();
  const Call call(p.moe, p.handle, COMBINE_RECEIVE);
  if (!call.in_turn()) {
    for (uint32_t token = thread_in_grid(); token < call.handle.tokens; token += grid_threads()) {
      p.token_valid[token] = 0;
    }
    for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
      if (p.active != nullptr) p.active[peer] = 0;
    }
    return;
  }
  receive_combine(call, p);
  grid_sync();
  for (uint32_t token = warp_in_grid(); token < call.handle.tokens; token += grid_warps()) {
    add_up(call, p, token);
  }
  grid_sync();
  if (thread_in_grid() == 0) release(call);
}

}  // namespace wv::moe
