// Dispatch, send phase: every token goes once to each rank that holds an expert it chose.
//
// The tokens are copied to the staging window with a header each, then one warp per rank puts the
// rows of that rank. Row i of a rank is the i-th token, in token order, that chose one of its
// experts.
#pragma once

#include "format.cuh"
#include "send.cuh"

namespace wv::moe {

/// The words of a slot's header: token, call, `top_k` expert slots, `top_k` weights.
struct Header {
  static constexpr uint32_t TOKEN = 0, CALL = 1, EXPERTS = 2;
};

/// Keeps the first choice, in token order, that is refused.
WV_DEVICE void refuse(const Call& call, uint32_t token, int32_t expert) {
  const uint64_t found = pack(token, static_cast<uint32_t>(expert));
  uint64_t old = platform::load_relaxed(&call.handle.refused);
  while (found < old) {
    const uint64_t seen = platform::compare_exchange_relaxed(&call.handle.refused, old, found);
    if (seen == old) break;
    old = seen;
  }
  call.stop(Status::invalid);
  record_fault(call, MoeCause::refused, NONE, 0, static_cast<uint32_t>(expert));
}

/// The slot that a choice of `expert` by token `token` goes to, of those at ranks that take part:
/// this rank's own if it has one, else they take turns. LOST if there is none. Twin:
/// `Placement::choose`.
WV_DEVICE uint32_t choose_slot(const Call& call, uint32_t token, uint32_t expert) {
  const MoeView& view = call.view;
  const ExpertSlots slots = view.experts[expert];
  const auto serves = [&](uint32_t slot) {
    return call.handle.peers[view.homes[slot].rank].active != 0;
  };
  uint32_t alive = 0;
  for (uint32_t i = 0; i < slots.count; ++i) {
    const uint32_t slot = view.replicas[slots.first + i];
    if (!serves(slot)) continue;
    if (view.homes[slot].rank == call.rank()) return slot;
    ++alive;
  }
  if (alive == 0) return LOST;
  uint32_t turn = (token + call.rank()) % alive;
  for (uint32_t i = 0;; ++i) {
    const uint32_t slot = view.replicas[slots.first + i];
    if (serves(slot) && turn-- == 0) return slot;
  }
}

/// Keeps in the handle where the choices of token `token` go, one choice per lane, and refuses what
/// is out of range or chosen twice. Whole warp; returns this lane's slot.
WV_DEVICE uint32_t choose(const Call& call, const DispatchSendParams& p, uint32_t token) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t choice = uint64_t{token} * moe.top_k + lane();
  const bool mine = lane() < moe.top_k;
  const int32_t expert = mine ? p.experts[choice] : -1;
  const bool chosen = expert != -1;
  // Lanes without a choice take values that no expert has.
  const auto value = chosen ? static_cast<uint32_t>(expert) : (1u << 31) + lane();
  const uint32_t match = warp.match(value);
  const bool inside = chosen && value < moe.experts;
  const bool twice = chosen && (match & (match - 1)) != 0;
  if (chosen && (!inside || twice)) refuse(call, token, expert);
  uint32_t slot = chosen ? LOST : NONE;
  if (inside) slot = choose_slot(call, token, value);
  if (mine) {
    call.handle.chosen[choice] = slot;
    call.handle.weights[choice] = p.weights == nullptr ? 1.0f : p.weights[choice];
  }
  return slot;
}

/// Copies token `token` with its header, `slot` by lane, to the staging window, unless nobody gets
/// it. Whole warp.
WV_DEVICE void stage(const Call& call, const DispatchSendParams& p, uint32_t token, uint32_t slot) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const bool sent = slot < LOST;
  if (!warp.any(sent)) return;
  const uint64_t at = moe.staging.base + call.dispatch_staging(token);
  auto* const header = reinterpret_cast<uint32_t*>(at);
  if (lane() < moe.top_k) {
    const float weight = call.handle.weights[uint64_t{token} * moe.top_k + lane()];
    header[Header::EXPERTS + lane()] = sent ? slot : NONE;
    header[Header::EXPERTS + moe.top_k + lane()] = platform::float_bits(weight);
  }
  if (warp.leader()) {
    header[Header::TOKEN] = token;
    header[Header::CALL] = call.call;
  }
  pack_token(moe, p, token, at);
}

/// Gives the tokens that go to `peer` their rows there. Whole warp.
WV_DEVICE uint32_t number_rows(const Call& call, uint32_t peer) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t at = uint64_t{peer} * moe.max_tokens;
  uint32_t rows = 0;
  for (uint32_t base = 0; base < call.handle.tokens; base += 32) {
    const uint32_t token = base + lane();
    bool goes = false;
    for (uint32_t k = 0; token < call.handle.tokens && k < moe.top_k && !goes; ++k) {
      const uint32_t slot = call.handle.chosen[uint64_t{token} * moe.top_k + k];
      goes = slot < LOST && call.view.homes[slot].rank == peer;
    }
    const uint32_t row = rows + warp.before(goes);
    if (token < call.handle.tokens) call.handle.row_of[at + token] = goes ? row : NONE;
    if (goes) call.handle.token_of[at + row] = token;
    rows += warp.count(goes);
  }
  return rows;
}

WV_DEVICE_ONCE void dispatch_send(const DispatchSendParams& p) {
  if (thread_in_grid() == 0) begin_dispatch(p);
  grid_sync();
  const Call call(p.moe, p.handle, DISPATCH_SEND);
  begin_dispatch_send(call, p.active);
  grid_sync();
  const bool stages = Warp{}.any(call.runs());
  for (uint32_t token = warp_in_grid(); token < call.handle.tokens; token += grid_warps()) {
    const uint32_t slot = choose(call, p, token);
    if (stages) stage(call, p, token, slot);
  }
  grid_sync();
  // Everybody is told, and has its rows, before anybody is waited for.
  const bool tells = call.handle.tell != 0;
  for (uint32_t peer = warp_in_grid(); peer < call.ranks(); peer += grid_warps()) {
    const uint32_t rows = number_rows(call, peer);
    if (lane() == 0) call.handle.peers[peer].rows_sent = rows;
    if (tells && peer != call.rank()) tell(call, peer);
  }
  Warp{}.sync();  // the lanes' `token_of`
  send_to_peers(
      call,
      [&](uint32_t peer) {
        const uint32_t rows = Warp{}.broadcast(call.handle.peers[peer].rows_sent);
        return send(call, peer, rows, Pieces::of_tokens(rows));
      },
      [&](uint32_t peer, Outcome outcome) { call.handle.peers[peer].dispatch_sent = outcome; });
}

}  // namespace wv::moe
