// Dispatch, send phase: every token goes once to each rank that holds an expert it chose.
//
// The tokens are copied to the staging window with a header each, then a block numbers the rows of
// each rank, and one of its warps puts them. Row i of a rank is the i-th token, in token order,
// that chose one of its experts.
#pragma once

#include "format.cuh"
#include "send.cuh"

namespace wv::moe {

/// The words of a slot's header: token (16 bits, below the tag of the call's shape), call, `top_k`
/// expert slots, `top_k` weights.
struct Header {
  static constexpr uint32_t TOKEN = 0, CALL = 1, EXPERTS = 2;
  static constexpr uint32_t TAG_SHIFT = 16, TOKEN_MASK = (1u << TAG_SHIFT) - 1;
  static_assert(MAX_MOE_TOKENS <= TOKEN_MASK);
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

/// The slot that a choice of `expert` by token `token` goes to, of those at ranks that take part.
/// It is this rank's own if it has one, else they take turns. LOST if no rank has one. Twin:
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

/// Choice number `at` of the caller. For an id that 32 bits do not hold stands the nearest that
/// they do. No layer has so many experts, so it is refused, and never taken for -1.
WV_DEVICE int32_t id_of(const DispatchSendParams& p, uint64_t at) {
  if ((p.flags & DISPATCH_IDS_64) == 0) return p.experts[at];
  const int64_t id = reinterpret_cast<const int64_t*>(p.experts)[at];
  constexpr int64_t LEAST = -(int64_t{1} << 31), MOST = (int64_t{1} << 31) - 1;
  return static_cast<int32_t>(id < LEAST ? LEAST : id > MOST ? MOST : id);
}

/// What a lane's choice of a token has come to.
struct Chosen {
  /// Expert slot; NONE: no choice, LOST: no rank holds the expert.
  uint32_t slot;
  float weight;
};

/// Marks the ranks to which token `token` goes: `row_of` is no row yet but 0. Whole warp.
WV_DEVICE void mark_ranks(const Call& call, uint32_t token, uint32_t slot) {
  constexpr Warp warp;
  const uint32_t home = slot < LOST ? call.view.homes[slot].rank : NONE;
  for (uint32_t base = 0; base < call.ranks(); base += 32) {
    const uint32_t peer = base + lane();
    bool goes = false;
    for (uint32_t k = 0; k < call.moe.top_k; ++k) {
      const uint32_t rank = warp.shuffle(home, k);  // by all lanes
      goes = goes || rank == peer;
    }
    if (peer >= call.ranks()) continue;
    call.handle.row_of[uint64_t{peer} * call.moe.max_tokens + token] = goes ? 0 : NONE;
  }
}

/// Where the choices of token `token` go, one choice per lane. The warp of its first slice keeps
/// that in the handle, and refuses what is out of range or chosen twice. Whole warp; returns what
/// this lane's choice has come to.
WV_DEVICE Chosen choose(const Call& call, const DispatchSendParams& p, uint32_t token,
                        Slice slice) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
  const uint64_t choice = uint64_t{token} * moe.top_k + lane();
  const bool mine = lane() < moe.top_k;
  const float weight = mine && p.weights != nullptr ? p.weights[choice] : 1.0f;
  const int32_t expert = mine ? id_of(p, choice) : -1;
  const bool chosen = expert != -1;
  // Lanes without a choice take values that no expert has.
  const auto value = chosen ? static_cast<uint32_t>(expert) : (1u << 31) + lane();
  const uint32_t match = warp.match(value);
  const bool inside = chosen && value < moe.experts;
  const bool twice = chosen && (match & (match - 1)) != 0;
  if (chosen && (!inside || twice) && slice.is_first()) refuse(call, token, expert);
  uint32_t slot = chosen ? LOST : NONE;
  // No rank takes part in a call that has ended `aborted`. The host may be writing the tables of
  // its view over: it waits only for calls that run.
  if (inside && call.handle.aborted == 0) slot = choose_slot(call, token, value);
  if (!slice.is_first()) return {slot, weight};
  if (mine) {
    call.handle.chosen[choice] = slot;
    call.handle.weights[choice] = weight;
  }
  mark_ranks(call, token, slot);
  return {slot, weight};
}

/// Copies a slice of token `token`, and with the first its header, `chosen` by lane, to the staging
/// window, unless no rank gets it. Whole warp.
WV_DEVICE void stage(const Call& call, const DispatchSendParams& p, uint32_t token,
                     const Chosen& chosen, Slice slice) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe;
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

/// Marks that a thread looks at together, of tokens one after another.
inline constexpr uint32_t MARKS = 8;

/// Gives the tokens that go to `peer` their rows at that peer, in the order of the tokens: it
/// counts the marks before a token. Whole block, after a barrier after `mark_ranks`.
WV_DEVICE uint32_t number_rows(const Call& call, uint32_t peer) {
  const uint64_t at = uint64_t{peer} * call.moe.max_tokens;
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

/// The tokens of the caller, as far as the parameters tell where they lie.
struct Tokens {
  uint64_t x;
  uint64_t bytes;
  uint32_t count;

  WV_DEVICE explicit Tokens(const DispatchSendParams& p)
      : x(reinterpret_cast<uint64_t>(p.x)), count(p.tokens & 0xffff) {
    MoeShape shape;
    take_shape(*p.moe, p, shape);
    bytes = casts(shape, p.flags) ? p.moe->combine_row_bytes : shape.row_bytes;
  }
  /// Asks for token `token`. Whole warp.
  WV_DEVICE void prefetch(uint32_t token) const {
    if (token >= count) return;
    for (uint64_t at = lane() * 128; at < bytes; at += 32 * 128) {
      platform::prefetch(reinterpret_cast<const void*>(x + token * bytes + at));
    }
  }
};

/// Tokens of a warp that are asked for ahead: the first of them while one thread begins the call.
inline constexpr uint32_t AHEAD = 2;

/// Numbers the rows of every peer, and sends what peers wait for before any rows. A block takes
/// the peers whose rows its warps send. The whole grid.
WV_DEVICE void number_peers(const Call& call) {
  const bool tells = (call.handle.tell & TELL) != 0, again = call.moe.untold != 0;
  for (uint32_t peer = block_in_grid(); peer < call.ranks(); peer += grid_blocks()) {
    const uint32_t rows = number_rows(call, peer);
    if (thread_in_block() == 0) call.handle.peers[peer].rows_sent = rows;
  }
  block_sync();  // what other threads have stored
  // Every peer has its word before this rank waits for any of them.
  if (!tells && !again) return;
  for (uint32_t peer = worker(); peer < call.ranks(); peer += workers()) {
    if (peer == call.rank()) continue;
    if (again) tell_aborted(call, peer);
    if (tells) tell(call, peer);
  }
}

/// The send buffer that this call may fill: no HCA reads it, and this rank does not read its own
/// rows of the call before there. NONE: there is none. In peace each set has one, and no more are
/// touched. All threads find the same, from words that are steady.
WV_DEVICE uint32_t free_buffer(const Call& call, uint32_t busy) {
  const uint32_t taken = busy | 1u << call.handle.recent;
  const uint32_t own = call.set();
  if ((taken >> own & 1) == 0) return own;
  const uint32_t free = ~taken & ((1u << call.moe.buffers) - 1);
  return free != 0 ? __ffs(free) - 1 : NONE;
}

/// Waits until a send buffer is free, and beats meanwhile. One thread; no other posts.
WV_DEVICE_COLD uint32_t await_buffer(const Call& call) {
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
  ++call.moe.unbuffered;
  call.handle.unbuffered = call.moe.unbuffered;
  platform::store_relaxed_sys(&call.moe.board->unbuffered, call.moe.unbuffered);
  call.stop(status);
  record_fault(call, status == Status::timeout ? MoeCause::no_buffer : MoeCause::aborted, NONE);
  return NONE;
}

/// Takes a send buffer for this call. The whole grid, after a barrier. Where none is free one
/// thread waits for it, between two barriers, and the call sends nothing if none becomes free in
/// time.
WV_DEVICE uint32_t take_buffer(const Call& call) {
  // No thread changes `aborted` and `busy` before the barrier below, so all come to the same.
  if (call.handle.aborted != 0) return call.set();
  uint32_t buffer = free_buffer(call, call.handle.busy);
  const bool none = buffer == NONE;
  if (none) grid_sync();
  if (thread_in_grid() == 0) {
    if (none) buffer = await_buffer(call);
    call.handle.buffer = buffer;
    if (buffer != NONE) call.moe.buffer = buffer;
  }
  if (!none) return buffer;
  grid_sync();
  return call.handle.buffer;
}

WV_DEVICE_ONCE void dispatch_send(const DispatchSendParams& p) {
  // The first warp begins the call at once.
  if (thread_in_grid() >= 32) {
    const Tokens tokens(p);
    for (uint32_t i = 0; i < AHEAD; ++i) tokens.prefetch(worker() + i * workers());
  }
  begin_phase(
      *p.moe, [&] { begin_dispatch(p); },
      [&] { begin_dispatch_send(Call(p.moe, p.handle, DISPATCH_SEND), p.active); });
  Call call(p.moe, p.handle, DISPATCH_SEND);
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
