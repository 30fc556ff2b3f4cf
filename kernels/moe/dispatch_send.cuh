// Dispatch, send phase: every token goes once to each rank that holds an expert it chose.
//
// The warps copy the tokens with a header each to the staging window. Then a block numbers the rows
// of each rank, and one of its warps puts them. Row i of a rank is the i-th token, in token order,
// that chose one of its experts.
#pragma once

#include "format.cuh"
#include "send.cuh"

namespace wv::moe {

/// The words of a slot's header: token (16 bits, with the tag of the call's shape above them),
/// call, `top_k` expert slots, `top_k` weights.
struct Header {
  static constexpr uint32_t TOKEN = 0, CALL = 1, EXPERTS = 2;
  static constexpr uint32_t TAG_SHIFT = 16, TOKEN_MASK = (1u << TAG_SHIFT) - 1;
  static_assert(MAX_MOE_TOKENS <= TOKEN_MASK);
};

/// Records a choice that is refused, if it is the first in token order, and stops the phase.
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

/// Returns the expert slot to which a choice of `expert` by token `token` goes, among the slots at
/// ranks that take part. A slot at this rank is preferred; otherwise the slots take turns. LOST if
/// no such rank has a slot. Twin: `Placement::choose`.
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

/// Returns choice number `at` of the caller. A 64-bit id that 32 bits do not hold becomes the
/// nearest that they do hold. No layer has so many experts, so the choice is refused, and never
/// taken for -1.
WV_DEVICE int32_t id_of(const DispatchSendParams& p, uint64_t at) {
  if ((p.flags & DISPATCH_IDS_64) == 0) return p.experts[at];
  const int64_t id = reinterpret_cast<const int64_t*>(p.experts)[at];
  constexpr int64_t LEAST = -(int64_t{1} << 31), MOST = (int64_t{1} << 31) - 1;
  return static_cast<int32_t>(id < LEAST ? LEAST : id > MOST ? MOST : id);
}

/// The slot to which a lane's choice of a token goes, and its weight.
struct Chosen {
  /// The expert slot. NONE: the lane has no choice. LOST: no rank holds the expert.
  uint32_t slot;
  float weight;
};

/// Marks the ranks to which token `token` goes: sets `row_of` to 0 there, since the row is not yet
/// known, and to NONE elsewhere. Whole warp.
WV_DEVICE void mark_ranks(const SlotCall& call, uint32_t token, uint32_t slot) {
  constexpr Warp warp;
  const uint32_t home = slot < LOST ? call.view.homes[slot].rank : NONE;
  for (uint32_t base = 0; base < call.ranks(); base += 32) {
    const uint32_t peer = base + lane();
    bool goes = false;
    for (uint32_t k = 0; k < call.moe().top_k; ++k) {
      const uint32_t rank = warp.shuffle(home, k);  // by all lanes
      goes = goes || rank == peer;
    }
    if (peer >= call.ranks()) continue;
    call.handle.row_of[uint64_t{peer} * call.moe().max_tokens + token] = goes ? 0 : NONE;
  }
}

/// Returns where this lane's choice of token `token` goes. The warp of the token's first slice also
/// records that in the handle, and refuses choices that are out of range or made twice. Whole warp.
WV_DEVICE Chosen choose(const SlotCall& call, const DispatchSendParams& p, uint32_t token,
                        Slice slice) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe();
  const uint64_t choice = uint64_t{token} * moe.top_k + lane();
  const bool mine = lane() < moe.top_k;
  const float weight = mine && p.weights != nullptr ? p.weights[choice] : 1.0f;
  const int32_t expert = mine ? id_of(p, choice) : -1;
  const bool chosen = expert != -1;
  // Each lane without a choice takes a value that no expert has.
  const auto value = chosen ? static_cast<uint32_t>(expert) : (1u << 31) + lane();
  const uint32_t match = warp.match(value);
  const bool inside = chosen && value < moe.experts;
  const bool twice = chosen && (match & (match - 1)) != 0;
  if (chosen && (!inside || twice) && slice.is_first()) refuse(call, token, expert);
  uint32_t slot = chosen ? LOST : NONE;
  // No rank takes part in a call that has ended `aborted`. The host may be overwriting the tables
  // of that call's view, since it waits only for calls that run.
  if (inside && call.handle.aborted == 0) slot = choose_slot(call, token, value);
  if (!slice.is_first()) return {slot, weight};
  if (mine) {
    call.handle.chosen[choice] = slot;
    call.handle.weights[choice] = weight;
  }
  mark_ranks(call, token, slot);
  return {slot, weight};
}

/// Copies a slice of token `token` to the staging window, unless no rank gets the token. The first
/// slice also writes the header, with `chosen` of each lane. Whole warp.
WV_DEVICE void stage(const SlotCall& call, const DispatchSendParams& p, uint32_t token,
                     const Chosen& chosen, Slice slice) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe();
  const bool sent = chosen.slot < LOST;
  if (!warp.any(sent)) return;
  const uint64_t at = moe.staging.base + call.dispatch_staging(token);
  auto* const header = reinterpret_cast<uint32_t*>(at);
  if (slice.is_first() && lane() < moe.top_k) {
    header[Header::EXPERTS + lane()] = sent ? chosen.slot : NONE;
    header[Header::EXPERTS + moe.top_k + lane()] = platform::float_bits(chosen.weight);
  }
  if (slice.is_first() && warp.leader()) {
    header[Header::TOKEN] = token | call.shape().tag << Header::TAG_SHIFT;
    header[Header::CALL] = call.call;
  }
  pack_token(call, p, token, at, slice);
}

/// The number of marks, of tokens one after another, that a thread loads together.
inline constexpr uint32_t MARKS = 8;

/// Returns the number of rows for `peer`, and gives each token that goes to `peer` its row there,
/// in token order: the number of marks before it. Whole block, after the barrier that follows
/// `mark_ranks`.
WV_DEVICE uint32_t number_rows(const SlotCall& call, uint32_t peer) {
  const uint64_t at = uint64_t{peer} * call.moe().max_tokens;
  const uint32_t tokens = call.handle.tokens;
  uint32_t* const row_of = call.handle.row_of + at;
  uint32_t* const token_of = call.handle.token_of + at;
  uint32_t rows = 0;
  for (uint32_t base = 0; base < tokens; base += MARKS * block_threads()) {
    const uint32_t first = base + MARKS * thread_in_block();
    uint32_t marks[MARKS], count = 0;
    for (uint32_t k = 0; k < MARKS; ++k) marks[k] = row_of[first + k < tokens ? first + k : 0];
    for (uint32_t k = 0; k < MARKS; ++k) {
      const bool goes = first + k < tokens && marks[k] != NONE;
      marks[k] = goes ? count++ : NONE;
    }
    const Place place = Block{}.sum(count);  // after all loads of the block
    for (uint32_t k = 0; k < MARKS; ++k) {
      if (marks[k] == NONE) continue;
      const uint32_t row = rows + place.before + marks[k];
      row_of[first + k] = row;
      token_of[row] = first + k;
    }
    rows += place.count;
  }
  return rows;
}

/// The address, size and number of the caller's tokens, from the parameters alone.
struct Tokens {
  uint64_t x;
  uint64_t bytes;
  uint32_t count;

  WV_DEVICE explicit Tokens(const DispatchSendParams& p)
      : x(reinterpret_cast<uint64_t>(p.x)), count(p.tokens) {
    MoeShape shape;
    take_shape(*p.moe, p, shape);
    bytes = casts(shape, p.flags) ? p.moe->combine_row_bytes : shape.row_bytes;
  }
  /// Prefetches token `token`. Whole warp.
  WV_DEVICE void prefetch(uint32_t token) const {
    if (token >= count) return;
    for (uint64_t at = lane() * 128; at < bytes; at += 32 * 128) {
      platform::prefetch(reinterpret_cast<const void*>(x + token * bytes + at));
    }
  }
};

/// The number of tokens that a warp prefetches ahead. The first are prefetched while one thread
/// begins the call.
inline constexpr uint32_t AHEAD = 2;

/// Numbers the rows of every peer, then sends the words for which peers wait before any rows. A
/// block numbers the rows of those peers to which its own warps send. The whole grid.
WV_DEVICE void number_peers(const SlotCall& call) {
  const bool tells = (call.handle.tell & TELL) != 0, again = call.layer.untold != 0;
  for (uint32_t peer = block_in_grid(); peer < call.ranks(); peer += grid_blocks()) {
    const uint32_t rows = number_rows(call, peer);
    if (thread_in_block() == 0) call.handle.peers[peer].rows_sent = rows;
  }
  block_sync();  // makes visible what other threads have stored
  // Every peer gets its word before this rank waits for any peer.
  if (!tells && !again) return;
  for (uint32_t peer = worker(); peer < call.ranks(); peer += workers()) {
    if (peer == call.rank()) continue;
    if (again) tell_aborted(call, peer);
    if (tells) tell(call, peer);
  }
}

/// Returns the send buffer that this call may fill, or NONE. No HCA reads that buffer, and this
/// rank does not read its own rows of the call before from it. In peace each set has its own
/// buffer, and no further buffers are touched. All threads get the same answer, since no thread
/// changes the words that it depends on.
WV_DEVICE uint32_t free_buffer(const SlotCall& call, uint32_t busy) {
  const uint32_t taken = busy | 1u << call.handle.recent;
  const uint32_t own = call.set();
  if ((taken >> own & 1) == 0) return own;
  const uint32_t free = ~taken & ((1u << call.moe().buffers) - 1);
  return free != 0 ? __ffs(free) - 1 : NONE;
}

/// Waits until a send buffer is free, and beats meanwhile. Returns that buffer, or NONE. One
/// thread, while no other thread posts.
WV_DEVICE_COLD uint32_t await_buffer(const SlotCall& call) {
  uint64_t next_beat = call.after(call.handle.deadline_ns / 4).at_ns;
  uint32_t buffer = NONE;
  const Watch watch{nullptr, &call.team.config->abort};
  const Status status = spin_until(watch, call.deadline, [&] {
    call.handle.busy = 0;
    for (uint32_t peer = 0; peer < call.ranks(); ++peer) {
      if (peer != call.rank()) find_busy(call, peer);
    }
    buffer = free_buffer(call, call.handle.busy);
    if (buffer != NONE) return Status::ok;
    if (platform::now_ns() < next_beat) return Status::would_block;
    next_beat = Deadline::in(call.handle.deadline_ns / 4).at_ns;
    for (uint32_t peer = 0; peer < call.ranks(); ++peer) beat(call, peer);
    return Status::would_block;
  });
  if (status == Status::ok) return buffer;
  ++call.moe().unbuffered;
  call.handle.unbuffered = call.moe().unbuffered;
  platform::store_relaxed_sys(&call.layer.board->unbuffered, call.moe().unbuffered);
  call.stop(status);
  record_fault(call, status == Status::timeout ? MoeCause::no_buffer : MoeCause::aborted, NONE);
  return NONE;
}

/// Takes a send buffer for this call. The whole grid, after a barrier. If no buffer is free, one
/// thread waits for one between two barriers. If none becomes free in time, the call sends nothing.
WV_DEVICE uint32_t take_buffer(const SlotCall& call) {
  // No thread changes `aborted` and `busy` before the barrier below, so all threads decide alike.
  if (call.handle.aborted != 0) return call.set();
  uint32_t buffer = free_buffer(call, call.handle.busy);
  const bool none = buffer == NONE;
  if (none) grid_sync();
  if (thread_in_grid() == 0) {
    if (none) buffer = await_buffer(call);
    call.handle.buffer = buffer;
    if (buffer != NONE) call.moe().buffer = buffer;
  }
  if (!none) return buffer;
  grid_sync();
  return call.handle.buffer;
}

WV_DEVICE_ONCE void dispatch_send(const DispatchSendParams& p) {
  // The first warp prefetches nothing: one of its threads begins the call at once.
  if (thread_in_grid() >= 32) {
    const Tokens tokens(p);
    for (uint32_t i = 0; i < AHEAD; ++i) tokens.prefetch(worker() + i * workers());
  }
  begin_phase(
      p.moe->layer, [&] { begin_dispatch(p); },
      [&] { begin_dispatch_send(SlotCall(p.moe, p.handle, DISPATCH_SEND), p.active); });
  SlotCall call(p.moe, p.handle, DISPATCH_SEND);
  call.buffer = take_buffer(call);
  const bool stages = Warp{}.any(call.runs());
  const Tokens tokens(p);
  const uint32_t count = call.handle.tokens;
  const uint32_t each = Slice::each(count, batches_to_pack(call, p));
  for (uint32_t i = worker(); i < count * each; i += workers()) {
    const uint32_t token = i / each;
    const Slice slice{i % each, each};
    if (each == 1) tokens.prefetch(token + AHEAD * workers());
    const Chosen chosen = choose(call, p, token, slice);
    if (stages) stage(call, p, token, chosen, slice);
  }
  grid_sync();
  number_peers(call);
  send_to_peers(
      call,
      [&](uint32_t peer) {
        const uint32_t rows = Warp{}.broadcast(call.handle.peers[peer].rows_sent);
        return send(call, peer, rows, Pieces::of_tokens(rows));
      },
      [] {},
      [&](uint32_t peer, Outcome outcome) { call.handle.peers[peer].dispatch_sent = outcome; });
}

}  // namespace wv::moe
