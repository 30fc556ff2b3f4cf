// Dispatch: every token goes once to each rank that holds an expert it chose; the receiver spreads
// it over its experts.
//
// Send: the tokens are copied to the staging window with a header each, then one warp per rank puts
// the rows of that rank. Row i of a rank is the i-th token, in token order, that chose one of its
// experts. Receive: headers are checked and copied to the handle, every local expert numbers its
// rows in the order (source, row), the tokens are copied to the experts.
#pragma once

#include "bf16.cuh"
#include "receive.cuh"
#include "send.cuh"

namespace wv::moe {

/// The words of a slot's header: token, call, `top_k` experts, `top_k` weights.
struct Header {
  static constexpr uint32_t TOKEN = 0, CALL = 1, EXPERTS = 2;
};

// Send phase ------------------------------------------------------------------------------------

/// Takes the number of the call and closes those two calls back: their slots may be used again. One
/// thread.
WV_DEVICE void begin_dispatch(const DispatchSendParams& p) {
  MoeContext& moe = *p.moe;
  MoeHandle& handle = *p.handle;
  const uint32_t call = ++moe.call;
  for (uint32_t& closed : moe.released) {
    if (call > 2 && newer(call - 2, closed)) closed = call - 2;
  }
  const bool fits = p.tokens <= moe.max_tokens;
  handle.call = call;
  handle.epoch = moe.epoch;
  handle.tokens = fits ? p.tokens : 0;
  handle.stage = CallStage::dispatch_sent;
  for (Status& phase : handle.phase) phase = Status::ok;
  if (!fits) handle.phase[DISPATCH_SEND] = Status::invalid;
  handle.in_turn = 1;
  handle.stopped = !fits;
  handle.tell = 0;
  handle.refused = ~uint64_t{0};
}

/// Before the staging rows of this set change: what reads them must be done. Also finds out whether
/// a credit is missing. Threads share the peers.
WV_DEVICE void settle(const Call& call) {
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    call.handle.peers[peer].malformed = 0;
    if (peer == call.rank()) continue;
    if (const Status status = settle_staging(call, peer); status != Status::ok) call.stop(status);
    if (!has_credit(call, peer)) platform::store_relaxed(&call.handle.tell, 1u);
  }
}

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
}

/// Copies token `token` with its header to the staging window, if its choices are in order. Whole
/// warp.
WV_DEVICE void stage(const Call& call, const DispatchSendParams& p, uint32_t token) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t choice = uint64_t{token} * moe.top_k + lane();
  const bool mine = lane() < moe.top_k;
  const int32_t expert = mine ? p.experts[choice] : -1;
  const bool chosen = expert != -1;
  // Lanes without a choice take values that no expert has.
  const auto value = chosen ? static_cast<uint32_t>(expert) : (1u << 31) + lane();
  const uint32_t match = warp.match(value);
  const bool twice = chosen && (match & (match - 1)) != 0;
  if (chosen && (static_cast<uint32_t>(expert) >= moe.experts || twice))
    refuse(call, token, expert);
  if (!warp.any(chosen)) return;

  const uint64_t slot = moe.staging.base + call.dispatch_staging(token);
  auto* const header = reinterpret_cast<uint32_t*>(slot);
  if (mine) {
    header[Header::EXPERTS + lane()] = static_cast<uint32_t>(expert);
    header[Header::EXPERTS + moe.top_k + lane()] = platform::float_bits(p.weights[choice]);
  }
  if (warp.leader()) {
    header[Header::TOKEN] = token;
    header[Header::CALL] = call.call;
  }
  const uint64_t x = reinterpret_cast<uint64_t>(p.x) + token * moe.row_bytes;
  copy(slot + moe.header_bytes, x, moe.row_bytes);
}

/// Gives the tokens that chose an expert of `peer` their rows there. Whole warp.
WV_DEVICE uint32_t number_rows(const Call& call, const DispatchSendParams& p, uint32_t peer) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t at = uint64_t{peer} * moe.max_tokens;
  uint32_t rows = 0;
  for (uint32_t base = 0; base < call.handle.tokens; base += 32) {
    const uint32_t token = base + lane();
    bool chosen = false;
    for (uint32_t k = 0; token < call.handle.tokens && k < moe.top_k && !chosen; ++k) {
      const auto expert = static_cast<uint32_t>(p.experts[uint64_t{token} * moe.top_k + k]);
      chosen = expert < moe.experts && moe.homes[expert].rank == peer;
    }
    const uint32_t row = rows + warp.before(chosen);
    if (token < call.handle.tokens) call.handle.row_of[at + token] = chosen ? row : NONE;
    if (chosen) call.handle.token_of[at + row] = token;
    rows += warp.count(chosen);
  }
  return rows;
}

/// Sends the rows of `peer`. Whole warp.
template <Credits C>
WV_DEVICE Outcome send_rows(const Call& call, uint32_t peer, uint32_t rows) {
  const uint64_t at = uint64_t{peer} * call.moe.max_tokens;
  const auto bytes = static_cast<uint32_t>(call.moe.header_bytes + call.moe.row_bytes);
  return send<C>(call, peer, rows, rows, [&](uint32_t row, Piece* piece) {
    *piece = {call.dispatch_staging(call.handle.token_of[at + row]),
              call.dispatch_slot(call.rank(), row), bytes};
    return true;
  });
}

template <Credits C>
WV_DEVICE void dispatch_send(const DispatchSendParams& p) {
  if (thread_in_grid() == 0) begin_dispatch(p);
  grid_sync();
  const Call call(p.moe, p.handle, DISPATCH_SEND);
  settle(call);
  grid_sync();
  if (Warp{}.any(call.runs())) {
    for (uint32_t token = warp_in_grid(); token < call.handle.tokens; token += grid_warps()) {
      stage(call, p, token);
    }
  }
  grid_sync();
  // Everybody is told, and has its rows, before anybody is waited for.
  const bool runs = call.runs(), tells = call.handle.tell != 0;
  for (uint32_t peer = warp_in_grid(); peer < call.ranks(); peer += grid_warps()) {
    const uint32_t rows = number_rows(call, p, peer);
    if (lane() == 0) call.handle.peers[peer].rows_sent = rows;
    if (tells && peer != call.rank()) tell(call, peer);
  }
  Warp{}.sync();  // the lanes' `token_of`
  for (uint32_t peer = warp_in_grid(); peer < call.ranks(); peer += grid_warps()) {
    const bool own = peer == call.rank();
    const Outcome outcome =
        own ? (runs ? Outcome::sent : Outcome::skipped)
            : send_rows<C>(call, peer, Warp{}.broadcast(call.handle.peers[peer].rows_sent));
    if (lane() == 0) call.handle.peers[peer].dispatch_sent = outcome;
  }
}

// Receive phase ---------------------------------------------------------------------------------

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
    const uint32_t expert = header[Header::EXPERTS + k];
    picks[k] = {NONE, NONE, platform::float_of(header[Header::EXPERTS + moe.top_k + k])};
    if (expert == NONE) continue;  // -1: no choice
    if (expert >= moe.experts) {
      good = false;
      continue;
    }
    const ExpertHome home = moe.homes[expert];
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

/// Calls `body(source, row)` for the received rows, spread over `workers` of which this is
/// `worker`.
template <class Body>
WV_DEVICE void for_received_rows(const Call& call, uint32_t worker, uint32_t workers, Body body) {
  const uint32_t most = call.moe.max_tokens;
  uint64_t skipped =
      0;  // rows of the sources before, so that workers stay in step over short sources
  for (uint32_t source = 0; source < call.ranks(); ++source) {
    const uint32_t rows = call.handle.peers[source].rows_received;
    const auto start = static_cast<uint32_t>((worker + workers - skipped % workers) % workers);
    for (uint32_t row = start; row < rows && row < most; row += workers) body(source, row);
    skipped += rows;
  }
}

/// Numbers the rows of one local expert in the order (source, row). Whole warp.
WV_DEVICE void number_picks(const Call& call, const DispatchReceiveParams& p, uint32_t local) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t out = uint64_t{local} * call.ranks() * moe.max_tokens;
  uint32_t total = 0;
  for (uint32_t source = 0; source < call.ranks(); ++source) {
    const uint32_t rows = call.handle.peers[source].rows_received;
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
        p.rows[out + place] = {source, call.handle.sources[at].token};
      }
      total += warp.count(pick != nullptr);
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

/// Says that this rank has read every slot of the call, or given up: the slots may be used again.
/// One thread, after a barrier.
WV_DEVICE void release(const Call& call) {
  // Release. The reads of all blocks, which met at the barrier, before the credit that a later
  // signal carries.
  platform::fence_release_sys();
  call.moe.released[call.kind] = call.call;
}

WV_DEVICE void dispatch_receive(const DispatchReceiveParams& p) {
  if (thread_in_grid() == 0) begin(p.moe, p.handle, DISPATCH_RECEIVE, CallStage::dispatch_sent);
  grid_sync();
  const Call call(p.moe, p.handle, DISPATCH_RECEIVE);
  if (!call.in_turn()) {
    for (uint32_t local = thread_in_grid(); local < call.moe.local_experts;
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
  for (uint32_t local = warp_in_grid(); local < call.moe.local_experts; local += grid_warps()) {
    number_picks(call, p, local);
  }
  grid_sync();
  for_received_rows(call, warp_in_grid(), grid_warps(),
                    [&](uint32_t source, uint32_t row) { spread(call, p, source, row); });
  grid_sync();
  if (thread_in_grid() == 0) release(call);
}

}  // namespace wv::moe
