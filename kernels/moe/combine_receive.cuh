// Combine, receive phase: the rank of a token adds the returned rows in f32 and rounds the sum once
// to BF16. It adds one row of each rank in the order of the ranks, or weight * row of each expert
// in ascending k. The scalar reference is crates/moe-reference/src/combine.rs.
#pragma once

#include "bf16.cuh"
#include "receive.cuh"
#include "returns.cuh"
#include "send.cuh"

namespace wv::moe {

/// Returns whether both send phases of this call have sent.
WV_DEVICE bool has_sent_both(const Call& call) {
  const MoeHandlePeer& own = call.handle.peers[call.rank()];
  return own.dispatch_sent == Outcome::sent && own.combine_sent == Outcome::sent;
}

/// Waits for every peer's word, and decides whose rows are added: the rows of each peer that
/// received all rows of this rank and returns all of them.
WV_DEVICE void receive_combine(const Call& call, const CombineReceiveParams& p) {
  const auto own = [&] {
    const MoeHandlePeer& state = call.handle.peers[call.rank()];
    const bool sent = state.combine_sent == Outcome::sent;
    return Arrival{sent ? Outcome::accepted : Outcome::not_sent,
                   sent ? state.rows_received - state.malformed : 0, 0};
  };
  const Mask mask{p.active, (p.flags & COMBINE_IN_PLACE) != 0, has_sent_both(call)};
  receive_words(call, own, [&](uint32_t peer, const Arrival& arrival) {
    MoeHandlePeer& state = call.handle.peers[peer];
    state.combine_received = arrival.outcome;
    state.rows_combined = arrival.count;
    state.valid = state.dispatch_sent == Outcome::sent && arrival.outcome == Outcome::accepted &&
                  arrival.count == state.rows_sent;
    // The peer answers, but this rank's rows came too late for it or not at all. The peer names
    // this rank as the cause, and so does this rank.
    const bool unread = state.dispatch_sent == Outcome::sent &&
                        arrival.outcome == Outcome::accepted && arrival.count < state.rows_sent;
    if (unread && state.cause == MoeCause::none) record_fault(call, MoeCause::missed_call, NONE);
    // A peer whose dispatch had other arguments returns other rows. It is not absent.
    const bool differs = state.cause == MoeCause::shape || state.cause == MoeCause::malformed;
    mask.tell(peer, state.valid != 0, differs);
    if (p.wait_ns != nullptr) p.wait_ns[peer] += arrival.waited_ns;
  });
}

/// The weights of the choices of this rank's tokens.
struct Weights {
  /// Weights as `[tokens, top_k]`. Null: all weights are 1.
  const float* weights;

  WV_DEVICE Weights(const Call& call, const CombineReceiveParams& p)
      : weights(p.weights != nullptr ? p.weights : call.handle.weights) {
    if ((call.handle.combine_flags & COMBINE_UNWEIGHTED) != 0) weights = nullptr;
  }
  WV_DEVICE float at(uint64_t choice) const { return weights == nullptr ? 1.0f : weights[choice]; }
};

/// Choice number `lane()` of a token.
struct Choice {
  /// The expert slot. NONE: the token has no such choice. LOST: no rank holds the expert.
  uint32_t slot;
  /// The rank that holds the slot, or NONE.
  uint32_t home;
  float weight;
  /// True if the row of this choice has come back.
  bool contributes;
};

WV_DEVICE Choice choice_of_lane(const SlotCall& call, const Weights& weights, uint32_t token) {
  const uint32_t top_k = call.moe().top_k;
  Choice choice{NONE, NONE, 0, false};
  if (lane() >= top_k) return choice;
  const uint64_t at = uint64_t{token} * top_k + lane();
  choice.slot = call.handle.chosen[at];
  choice.weight = weights.at(at);
  if (choice.slot >= LOST) return choice;
  choice.home = call.view.homes[choice.slot].rank;
  choice.contributes = call.handle.peers[choice.home].valid != 0;
  return choice;
}

/// The part of a token's choices whose rows have come back.
struct Share {
  /// The sum of the weights of all choices, and of the choices that contribute, each in ascending
  /// k.
  float all = 0, left = 0;
  /// True if all choices contribute.
  bool whole = true;
};

/// Returns the share of a token from the choices of all lanes. Whole warp.
WV_DEVICE Share share_of(const Choice& choice) {
  constexpr Warp warp;
  const uint32_t chosen = warp.ballot(choice.slot != NONE), good = warp.ballot(choice.contributes);
  const uint32_t bits = platform::float_bits(choice.weight);
  Share share;
  share.whole = chosen == good;
  for (uint32_t rest = chosen; rest != 0; rest &= rest - 1) {
    const uint32_t k = __ffs(rest) - 1;
    const float weight = platform::float_of(warp.shuffle(bits, k));
    share.all = platform::add_rn(share.all, weight);
    if ((good >> k & 1) != 0) share.left = platform::add_rn(share.left, weight);
  }
  return share;
}

/// Takes one row of each rank to which the token went. Whole warp.
WV_DEVICE void take_ranks(const SlotCall& call, uint32_t token, Terms* terms) {
  const MoeContext& moe = call.moe();
  for (uint32_t base = 0; base < call.ranks(); base += 32) {
    const uint32_t peer = base + lane();
    const bool there = peer < call.ranks();
    const uint32_t known = there ? peer : call.rank();
    const uint32_t row = call.handle.row_of[uint64_t{known} * moe.max_tokens + token];
    const bool valid = there && call.handle.peers[known].valid != 0 && row != NONE;
    // This rank's own rows stay where they were staged.
    const uint64_t at = known == call.rank()
                            ? moe.staging.base + staged_row(call, known, row, 0)
                            : call.layer.data.base + combine_slot(call, known, row, 0);
    terms->take(valid, at, 1.0f);
  }
}

/// Takes the row of each expert to which the token went. Whole warp.
WV_DEVICE void take_experts(const SlotCall& call, const Choice& choice, uint32_t token,
                            Terms* terms) {
  const MoeContext& moe = call.moe();
  const uint32_t peer = choice.home;
  // `which` counts the choices before this one whose experts live at the same rank.
  const uint32_t same = Warp{}.match(peer != NONE ? peer : (1u << 31) + lane());
  const uint32_t which = __popc(same & ((1u << lane()) - 1));
  uint64_t at = 0;
  if (choice.contributes) {
    const uint32_t row = call.handle.row_of[uint64_t{peer} * moe.max_tokens + token];
    if (peer == call.rank()) {
      const uint64_t own = uint64_t{peer} * moe.max_tokens + row;
      const MoePick& pick = call.handle.picks[own * moe.top_k + lane()];
      at = moe.staging.base + expert_row(call, peer, row, which, pick);
    } else {
      at = call.layer.data.base + combine_slot(call, peer, row, which);
    }
  }
  terms->take(choice.contributes, at, choice.weight);
}

/// Adds up a slice of the returned rows of one token. Whole warp.
WV_DEVICE void add_up(const SlotCall& call, const CombineReceiveParams& p, uint32_t token,
                      Slice slice) {
  const MoeContext& moe = call.moe();
  const Choice choice = choice_of_lane(call, Weights(call, p), token);
  const Share share = share_of(choice);
  const bool rows = returns_of(moe) == Return::rows;
  Terms terms;
  if (rows) {
    take_experts(call, choice, token, &terms);
  } else {
    take_ranks(call, token, &terms);
  }
  const bool scaled = !share.whole && (p.flags & COMBINE_RENORMALISE) != 0;
  if (scaled && share.left == 0) terms.clear();
  const float scale = scaled && share.left != 0 ? platform::div_rn(share.all, share.left) : 1.0f;
  const uint32_t vectors = moe.hidden / VECTOR;
  auto* const out = reinterpret_cast<platform::Vec16*>(p.out) + uint64_t{token} * vectors;
  if (rows) {
    terms.add_up<true>(vectors, out, scaled, scale, slice);
  } else {
    terms.add_up<false>(vectors, out, scaled, scale, slice);
  }
  if (lane() == 0 && slice.is_first()) p.token_valid[token] = share.whole;
}

/// Returns whether this layer can do what the parameters ask.
WV_DEVICE bool allowed(const SlotCall& call, const CombineReceiveParams& p) {
  if ((p.flags & ~(COMBINE_RENORMALISE | COMBINE_IN_PLACE)) != 0) return false;
  const bool unweighted = (call.handle.combine_flags & COMBINE_UNWEIGHTED) != 0;
  return p.weights == nullptr || (returns_of(call.moe()) == Return::rows && !unweighted);
}

WV_DEVICE_ONCE void combine_receive(const CombineReceiveParams& p) {
  begin_phase(
      p.moe->layer,
      [&] {
        begin(&p.moe->layer, p.handle, COMBINE_RECEIVE, CallStage::combine_sent);
        const SlotCall call(p.moe, p.handle, COMBINE_RECEIVE);
        if (call.in_turn() && !allowed(call, p)) refuse(call, CallStage::combine_sent);
      },
      [&] {
        const SlotCall call(p.moe, p.handle, COMBINE_RECEIVE);
        if (call.in_turn()) receive_combine(call, p);
      });
  const SlotCall call(p.moe, p.handle, COMBINE_RECEIVE);
  if (!call.in_turn()) {
    for (uint32_t token = thread_in_grid(); token < call.handle.tokens; token += grid_threads()) {
      p.token_valid[token] = 0;
    }
    Mask{p.active, (p.flags & COMBINE_IN_PLACE) != 0, false}.clear(call);
    return;
  }
  const uint32_t tokens = call.handle.tokens;
  const uint32_t each = Slice::each(tokens, batches_of<BATCH>(call.moe().hidden / VECTOR));
  for (uint32_t i = worker(); i < tokens * each; i += workers()) {
    add_up(call, p, i / each, Slice{i % each, each});
  }
  end_receive(call);
}

}  // namespace wv::moe
