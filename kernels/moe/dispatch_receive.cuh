// Dispatch, receive phase: headers are checked and copied to the handle, then the tokens are laid
// out by expert (every local expert numbers its rows in the order (source, row)) or by rank (each
// token once, in the order of its source).
#pragma once

#include "dispatch_send.cuh"
#include "receive.cuh"
#include "returns.cuh"

namespace wv::moe {

/// Whether the caller may write what combine sends straight into the staging memory.
WV_DEVICE bool offers_staging(const MoeContext& moe) { return returns_of(moe) != Return::sums; }

/// Waits for every peer's word; keeps how each wait ended. Threads share the peers.
///
/// Where the caller may write to the combine staging memory of this call, it is this phase that
/// waits until nothing reads it any more: the caller needs no word but that the phase has ended.
WV_DEVICE void receive_dispatch(const Call& call, const DispatchReceiveParams& p) {
  const auto own = [&] {
    const MoeHandlePeer& state = call.handle.peers[call.rank()];
    const bool sent = state.dispatch_sent == Outcome::sent;
    return Arrival{sent ? Outcome::accepted : Outcome::not_sent, sent ? state.rows_sent : 0, 0};
  };
  receive_words(call, own, [&](uint32_t peer, const Arrival& arrival) {
    MoeHandlePeer& state = call.handle.peers[peer];
    const bool fits = arrival.count <= call.moe.max_tokens;
    if (!fits) {
      call.report(Status::invalid);
      record_fault(call, MoeCause::malformed, peer);
    }
    state.dispatch_received = fits ? arrival.outcome : Outcome::gave_up;
    state.rows_received = fits ? arrival.count : 0;
    if (p.wait_ns != nullptr) p.wait_ns[peer] += arrival.waited_ns;
    if (p.active != nullptr) p.active[peer] = state.dispatch_received == Outcome::accepted;
  });
  if (!offers_staging(call.moe)) return;
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

/// Gives out no rows, so that nobody writes what is to be sent back over bytes in flight: combine
/// then returns none.
WV_DEVICE_COLD void withhold(const Call& call, const DispatchReceiveParams& p) {
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    call.handle.peers[peer].rows_received = 0;
    if (p.active != nullptr) p.active[peer] = 0;
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
    const uint32_t expert = header[Header::EXPERTS + k];
    picks[k] = {NONE, NONE, platform::float_of(header[Header::EXPERTS + moe.top_k + k])};
    if (expert == NONE) continue;  // -1: no choice
    if (expert >= call.view.expert_slots) {
      good = false;
      continue;
    }
    const ExpertHome home = call.view.homes[expert];
    if (home.rank != call.rank()) continue;
    for (uint32_t j = 0; j < k; ++j) good = good && picks[j].local != home.local;
    picks[k].local = home.local;
    ++found;
  }
  if (!good) {
    for (uint32_t k = 0; k < moe.top_k; ++k) picks[k].local = NONE;
    platform::add_relaxed(&call.handle.peers[source].malformed, 1u);
    call.report(Status::invalid);
    record_fault(call, MoeCause::malformed, source);
  }
  call.handle.sources[at] = {good ? token : NONE, good ? found : 0};
}

/// Copies the token of a received row to row `place` of the output. Whole warp.
WV_DEVICE void deliver(const Call& call, const DispatchReceiveParams& p, uint32_t source,
                       uint32_t row, uint64_t place) {
  deliver(call, p, slot_of(call, source, row), place);
}

// By expert.

/// Numbers the rows of one local expert in the order (source, row). Whole warp.
WV_DEVICE void number_picks(const Call& call, const DispatchReceiveParams& p, uint32_t local) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t out = expert_place(call, local, 0);
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
  if (!warp.leader()) return;
  p.counts[local] = total;
  if (p.recv_stats != nullptr) p.recv_stats[local] += total;
}

/// Copies one received token to its experts. Whole warp.
WV_DEVICE void spread(const Call& call, const DispatchReceiveParams& p, uint32_t source,
                      uint32_t row) {
  const MoeContext& moe = call.moe;
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  if (call.handle.sources[at].picks == 0) return;
  for (uint32_t k = 0; k < moe.top_k; ++k) {
    const MoePick pick = call.handle.picks[at * moe.top_k + k];
    if (pick.local == NONE) continue;
    deliver(call, p, source, row, expert_place(call, pick.local, pick.row));
  }
}

WV_DEVICE void lay_by_expert(const Call& call, const DispatchReceiveParams& p) {
  const uint32_t experts = call.moe.max_local_experts;
  for (uint32_t local = warp_in_grid(); local < experts; local += grid_warps()) {
    number_picks(call, p, local);
  }
  grid_sync();
  for_received_rows(call, warp_in_grid(), grid_warps(),
                    [&](uint32_t source, uint32_t row) { spread(call, p, source, row); });
}

// By rank.

/// Copies one received token with the local experts that it chose. A row whose header was out of
/// range keeps its place, with no source and no expert. Whole warp.
WV_DEVICE void keep(const Call& call, const DispatchReceiveParams& p, uint32_t source,
                    uint32_t row) {
  const MoeContext& moe = call.moe;
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  const MoeSource from = call.handle.sources[at];
  if (lane() < moe.top_k) {
    const MoePick pick = call.handle.picks[at * moe.top_k + lane()];
    const bool here = pick.local != NONE;
    p.recv_experts[at * moe.top_k + lane()] = here ? static_cast<int32_t>(pick.local) : -1;
    p.recv_weights[at * moe.top_k + lane()] = here ? pick.weight : 0.0f;
    if (here && p.recv_stats != nullptr) {
      platform::add_relaxed(&p.recv_stats[pick.local], uint64_t{1});
    }
  }
  if (lane() == 0) p.src_info[at] = from.token;
  if (from.token != NONE) deliver(call, p, source, row, at);
}

WV_DEVICE void lay_by_rank(const Call& call, const DispatchReceiveParams& p) {
  for (uint32_t source = thread_in_grid(); source < call.ranks(); source += grid_threads()) {
    p.counts[source] = call.handle.peers[source].rows_received;
  }
  for_received_rows(call, warp_in_grid(), grid_warps(),
                    [&](uint32_t source, uint32_t row) { keep(call, p, source, row); });
}

/// The phase was called out of turn: there are no rows.
WV_DEVICE_COLD void lay_nothing(const Call& call, const DispatchReceiveParams& p) {
  const bool by_rank = call.moe.layout == MoeLayout::rank_major;
  const uint32_t counts = by_rank ? call.ranks() : call.moe.max_local_experts;
  for (uint32_t i = thread_in_grid(); i < counts; i += grid_threads()) p.counts[i] = 0;
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    if (p.active != nullptr) p.active[peer] = 0;
  }
}

WV_DEVICE_ONCE void dispatch_receive(const DispatchReceiveParams& p) {
  if (thread_in_grid() == 0) begin(p.moe, p.handle, DISPATCH_RECEIVE, CallStage::dispatch_sent);
  grid_sync();
  const Call call(p.moe, p.handle, DISPATCH_RECEIVE);
  if (!call.in_turn()) return lay_nothing(call, p);
  receive_dispatch(call, p);
  grid_sync();
  if (!call.runs()) {
    withhold(call, p);
    grid_sync();
  }
  for_received_rows(call, thread_in_grid(), grid_threads(),
                    [&](uint32_t source, uint32_t row) { read_header(call, source, row); });
  grid_sync();
  switch (call.moe.layout) {
    case MoeLayout::rank_major:
      lay_by_rank(call, p);
      break;
    default:
      lay_by_expert(call, p);
  }
  grid_sync();
  if (thread_in_grid() == 0) release(call);
}

}  // namespace wv::moe
