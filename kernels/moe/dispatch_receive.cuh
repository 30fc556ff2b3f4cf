// Dispatch, receive phase: headers are checked and copied to the handle, every local expert numbers
// its rows in the order (source, row), the tokens are copied to the experts.
#pragma once

#include "bf16.cuh"
#include "dispatch_send.cuh"
#include "receive.cuh"

namespace wv::moe {

/// Waits for every peer's word; keeps how each wait ended. Threads share the peers.
WV_DEVICE void receive_dispatch(const Call& call) {
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    MoeHandlePeer& state = call.handle.peers[peer];
    Arrival arrival{};
    if (peer == call.rank()) {
      const bool sent = state.dispatch_sent == Outcome::sent;
      arrival = {sent ? Outcome::accepted : Outcome::not_sent, sent ? state.rows_sent : 0};
    } else {
      arrival = receive(call, peer);
    }
    if (arrival.count > call.moe.max_tokens) {
      call.report(Status::invalid);
      arrival = {Outcome::gave_up, 0};
    }
    state.dispatch_received = arrival.outcome;
    state.rows_received = arrival.count;
  }
}

/// Address of row `row` from `source`; this rank's own rows are read where they were staged.
WV_DEVICE uint64_t slot_of(const Call& call, uint32_t source, uint32_t row) {
  if (source == call.rank()) {
    const uint32_t token = call.handle.token_of[uint64_t{source} * call.moe.max_tokens + row];
    return call.moe.staging.base + call.dispatch_staging(token);
  }
  return call.moe.slots.base + call.dispatch_slot(source, row);
}

/// Copies one header to the handle, if everything in it is in range: it comes from a peer, and is
/// used for addresses.
WV_DEVICE void read_header(const Call& call, uint32_t source, uint32_t row) {
  const MoeContext& moe = call.moe;
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  const auto* const header = reinterpret_cast<const uint32_t*>(slot_of(call, source, row));
  MoePick* const picks = call.handle.picks + at * moe.top_k;
  const uint32_t token = header[Header::TOKEN];
  bool good = token < moe.max_tokens && header[Header::CALL] == call.call;
  uint32_t found = 0;
  for (uint32_t k = 0; k < moe.top_k; ++k) {
    const uint32_t slot = header[Header::EXPERTS + k];
    picks[k] = {NONE, NONE, platform::float_of(header[Header::EXPERTS + moe.top_k + k])};
    if (slot == NONE) continue;  // no choice, or one that nobody serves
    if (slot >= call.view.expert_slots) {
      good = false;
      continue;
    }
    const ExpertHome home = call.view.homes[slot];
    if (home.rank != call.rank()) continue;
    for (uint32_t j = 0; j < k; ++j) good = good && picks[j].local != home.local;
    picks[k].local = home.local;
    ++found;
  }
  if (!good) {
    for (uint32_t k = 0; k < moe.top_k; ++k) picks[k].local = NONE;
    platform::add_relaxed(&call.handle.peers[source].malformed, 1u);
    call.report(Status::invalid);
  }
  call.handle.sources[at] = {token, good ? found : 0};
}

/// Numbers the rows of one local expert in the order (source, row). Whole warp.
WV_DEVICE void number_picks(const Call& call, const DispatchReceiveParams& p, uint32_t local) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t out = uint64_t{local} * call.ranks() * moe.max_tokens;
  uint32_t total = 0;
  for (uint32_t source = 0; source < call.ranks(); ++source) {
    const uint32_t rows = call.handle.peers[source].rows_received, begin = total;
    for (uint32_t base = 0; base < rows; base += 32) {
      const uint32_t row = base + lane();
      const uint64_t at = uint64_t{source} * moe.max_tokens + row;
      MoePick* pick = nullptr;
      for (uint32_t k = 0; row < rows && k < moe.top_k && pick == nullptr; ++k) {
        MoePick* const candidate = call.handle.picks + at * moe.top_k + k;
        if (candidate->local == local) pick = candidate;
      }
      const uint32_t place = total + warp.before(pick != nullptr);
      if (pick != nullptr) {
        pick->row = place;
        p.src_info[out + place] = call.handle.sources[at].token;
      }
      total += warp.count(pick != nullptr);
    }
    if (warp.leader()) {
      p.layout_range[uint64_t{local} * call.ranks() + source] = pack(begin, total - begin);
    }
  }
  if (warp.leader()) p.counts[local] = total;
}

/// Copies one received token to its experts. Whole warp.
WV_DEVICE void spread(const Call& call, const DispatchReceiveParams& p, uint32_t source,
                      uint32_t row) {
  const MoeContext& moe = call.moe;
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  if (call.handle.sources[at].picks == 0) return;
  const uint64_t x = slot_of(call, source, row) + moe.header_bytes;
  for (uint32_t k = 0; k < moe.top_k; ++k) {
    const MoePick pick = call.handle.picks[at * moe.top_k + k];
    if (pick.local == NONE) continue;
    const uint64_t place = uint64_t{pick.local} * call.ranks() * moe.max_tokens + pick.row;
    copy(reinterpret_cast<uint64_t>(p.recv_x) + place * moe.row_bytes, x, moe.row_bytes);
  }
}

WV_DEVICE void dispatch_receive(const DispatchReceiveParams& p) {
  if (thread_in_grid() == 0) begin(p.moe, p.handle, DISPATCH_RECEIVE, CallStage::dispatch_sent);
  grid_sync();
  const Call call(p.moe, p.handle, DISPATCH_RECEIVE);
  if (!call.in_turn()) {
    for (uint32_t local = thread_in_grid(); local < call.view.local_experts;
         local += grid_threads()) {
      p.counts[local] = 0;
    }
    return;
  }
  receive_dispatch(call);
  grid_sync();
  for_received_rows(call, thread_in_grid(), grid_threads(),
                    [&](uint32_t source, uint32_t row) { read_header(call, source, row); });
  grid_sync();
  for (uint32_t local = warp_in_grid(); local < call.view.local_experts; local += grid_warps()) {
    number_picks(call, p, local);
  }
  grid_sync();
  for_received_rows(call, warp_in_grid(), grid_warps(),
                    [&](uint32_t source, uint32_t row) { spread(call, p, source, row); });
  grid_sync();
  if (thread_in_grid() == 0) release(call);
}

}  // namespace wv::moe
