// The begin of a phase. A dispatch takes the number of the call, its view and its deadline. Every
// phase takes a guard of each peer.
//
// A change of membership closes `limit` on the host. A call whose number is above it waits until
// the host has decided, and ends `aborted` if that takes too long. Aborted or not, the call has
// used its number up, so the calls of all ranks stay in step. Further calls are then held as long,
// or until another rank has begun them: a rank that used up numbers without waiting would run ahead
// of all others. The later parts of a call read the handle only.
#pragma once

#include "clock.cuh"
#include "slots.cuh"

namespace wv::moe {

/// Returns whether a word of `peer` says that the peer has begun `call` or a later call.
WV_DEVICE bool has_begun(const LayerContext& layer, uint32_t peer, uint32_t call) {
  for (uint32_t i = 0; i < SIGNALS_PER_PEER; ++i) {
    const MoeSignal* const signal = signal_of(layer, peer, i);
    const uint64_t data = platform::load_relaxed_sys(&signal->data);
    const uint64_t alive = platform::load_relaxed_sys(&signal->alive);
    if (data != 0 && !newer(call, unpack_data(data).call)) return true;
    if (alive != 0 && !newer(call, first(alive))) return true;
  }
  return false;
}

/// Beats to all peers if it is time, while `call` is held. The words are those of the call before.
/// One thread.
WV_DEVICE_COLD void beat_while_held(LayerContext* layer, MoeHandle* handle, uint32_t call,
                                    HeldBeats* beats) {
  if (!beats->are_due()) return;
  Call before(layer, handle, DISPATCH_SEND);
  before.call = call - 1;
  before.index = signal_index(KIND_DISPATCH, before.call);
  for (uint32_t peer = 0; peer < before.ranks(); ++peer) {
    beat(before, peer);
    leave_peer(before, peer);
  }
}

/// Waits until `call` may start, while the host limits calls. Returns `ok`; `closed` if the call
/// may not start, in time or at all; `aborted` if the host ends all calls. `started` has the number
/// of the call already. One thread.
WV_DEVICE_COLD Status hold(LayerContext& layer, MoeHandle* handle, uint32_t call,
                           uint64_t deadline_ns) {
  MoeBoard& board = *layer.board;
  const uint64_t usual = platform::load_relaxed(&layer.clock->steady_ns);
  HeldBeats beats(deadline_ns != 0 ? deadline_ns : usual);
  const Deadline change = Deadline::in(platform::load_relaxed(&layer.clock->change_ns));
  const uint32_t ranks = layer.team->ranks;
  uint32_t limit = 0, peer = 0;
  const Watch watch{nullptr, &layer.team->config->abort};
  const Status status = spin_until(watch, change, [&] {
    if (platform::load_relaxed_sys(&board.limited) == 0) return Status::ok;
    // Acquire. Orders the load of `limit` after that of `limited`: the host stores `limit` before
    // `limited`. Pairs with its release store.
    platform::fence_acquire_sys();
    limit = platform::load_relaxed_sys(&board.limit);
    if (!newer(call, limit)) return Status::ok;
    if (platform::load_relaxed_sys(&board.refuse) != 0) return Status::closed;
    peer = peer + 1 < ranks ? peer + 1 : 0;
    const bool again = layer.refusing != 0 && layer.refused_limit == limit;
    if (!again) beat_while_held(&layer, handle, call, &beats);
    return again && has_begun(layer, peer, call) ? Status::closed : Status::would_block;
  });
  layer.refusing = status == Status::timeout || status == Status::closed;
  layer.refused_limit = limit;
  return status == Status::timeout ? Status::closed : status;
}

/// Returns the newest view that covers `call`, or MOE_VIEWS if none does. `newest`: the serial of
/// the newest view in which calls have run.
///
/// A view in which calls have run covers all later calls, however long it stands. Its `first` may
/// be so old that it looks new, so it is not read. An older view covers none of these calls.
WV_DEVICE uint32_t pick_view(const MoeView* views, uint32_t newest, uint32_t call) {
  uint32_t serials[MOE_VIEWS];  // all in flight together
  for (uint32_t i = 0; i < MOE_VIEWS; ++i) {
    serials[i] = platform::load_relaxed_sys(&views[i].serial);
  }
  uint32_t best = MOE_VIEWS, best_serial = 0;
  for (uint32_t i = 0; i < MOE_VIEWS; ++i) {
    const MoeView& view = views[i];
    const uint32_t serial = serials[i];
    if (serial == 0 || newer(newest, serial)) continue;
    if (serial != newest) {
      // Acquire. Orders the loads of the view after that of its serial: pairs with the order of the
      // host's writes. Calls of the older view may run while the host writes the newer one.
      platform::fence_acquire_sys();
      if (ahead(platform::load_relaxed(&view.first), call)) continue;
    }
    if (best == MOE_VIEWS || newer(serial, best_serial)) {
      best = i;
      best_serial = serial;
    }
  }
  return best;
}

/// How far, in calls, the first call of the view in force may lie behind. Then a kernel writes a
/// first call that is half as far behind, because the host compares the first call with calls.
inline constexpr uint32_t VIEW_AGE = 1u << 30;

/// Enters view `place`, in which `call` runs. The call is not aborted. One thread.
WV_DEVICE void enter_view(LayerContext& layer, uint32_t place, uint32_t call) {
  const MoeView& view = layer.views[place];
  if (view.serial != layer.serial) {
    layer.view = place;
    layer.serial = view.serial;
    layer.first = view.first;
    layer.changed = 1;
  } else if (call - layer.first >= VIEW_AGE) {
    layer.first = call - VIEW_AGE / 2;
  } else {
    return;
  }
  platform::store_relaxed_sys(&layer.board->in_force, pack(layer.serial, layer.first));
}

/// Returns the last call up to which all calls have ended. `newest` is the newest call that has
/// begun. A call has ended when all of its phases have, or when it is closed. A call is also closed
/// when a later one has been combined: it takes part in nothing any more.
WV_DEVICE uint32_t finished_of(const LayerContext& layer, uint32_t newest) {
  const uint32_t combined = layer.released[KIND_COMBINE];
  uint32_t finished = newest - SETS;
  while (finished != newest) {
    const uint32_t call = finished + 1;
    if (layer.ended[set_of(call)] != call && newer(call, combined)) break;
    finished = call;
  }
  return finished;
}

/// Writes to the board which calls have ended. One thread, after a release fence of system scope:
/// what the phases of these calls did before the word pairs with the acquire load of the host,
/// which then writes views and resets QPs.
WV_DEVICE void publish_finished(const LayerContext& layer) {
  platform::store_relaxed_sys(&layer.board->finished, finished_of(layer, layer.call));
}

/// The words of the host that every dispatch reads.
struct Rein {
  bool limited, alone;

  /// Reads both words in one load, because a load of host memory takes as long as a thousand
  /// instructions.
  WV_DEVICE static Rein of(const MoeBoard& board) {
    const auto* const both = reinterpret_cast<const uint64_t*>(&board.limited);
    const uint64_t words = platform::load_relaxed_sys(both);
    return {static_cast<uint32_t>(words) != 0, words >> 32 != 0};
  }
};

/// Returns whether no view is newer than the view in `place`.
WV_DEVICE bool is_newest(const LayerContext& layer, uint32_t place) {
  const uint32_t serial = layer.views[place].serial;
  for (uint32_t i = 0; i < MOE_VIEWS; ++i) {
    const uint32_t other = platform::load_relaxed_sys(&layer.views[i].serial);
    if (other != 0 && newer(other, serial)) return false;
  }
  return true;
}

/// The peers that a call exchanges with.
struct Wanted {
  const MoeView& view;
  uint32_t rank, ranks;
  /// The parameter `active` of `DispatchSendParams`.
  const uint32_t* active;

  /// Returns whether `peer` is a member that the caller has not masked.
  WV_DEVICE bool has(uint32_t peer) const {
    if (peer == rank || (active != nullptr && active[peer] == 0)) return false;
    return has_bit(view.members, peer);
  }
  /// Returns whether the call exchanges with some peer, and all such peers are suspects of this
  /// rank's kernels. Ends at the first peer that is no suspect, which is as a rule the first of
  /// all. One thread.
  WV_DEVICE bool are_suspects(const MoePeer* peers) const {
    bool any = false;
    for (uint32_t peer = 0; peer < ranks; ++peer) {
      if (!has(peer)) continue;
      if (peers[peer].suspect == 0) return false;
      any = true;
    }
    return any;
  }
};

/// Waits while this rank exchanges with no other rank. The wait ends at the deadline, when a
/// suspect sends a word, or when the host finds another rank or prepares a change. `alone` is what
/// the host said at the begin of the call. Calls of such a rank are of no use to any rank, and a
/// view that takes the rank back begins after all of them. Ranks that have made fewer calls would
/// have to catch up before anything else changes. So this rank makes few calls. In calls before the
/// newest view the rank is itself behind, and does not wait. One thread.
WV_DEVICE_COLD void keep_pace(const Call& call, const Wanted& wanted, bool alone) {
  if (!is_newest(call.layer, call.handle.view)) return;
  const MoeBoard& board = *call.layer.board;
  const Watch watch{nullptr, &call.team.config->abort};
  uint32_t peer = 0;
  (void)spin_until(watch, Deadline::in(call.handle.deadline_ns), [&] {
    const bool was_alone = alone;
    alone = platform::load_relaxed_sys(&board.alone) != 0;
    const bool found = was_alone && !alone;
    if (found || platform::load_relaxed_sys(&board.limited) != 0) return Status::ok;
    peer = peer + 1 < call.ranks() ? peer + 1 : 0;
    const MoePeer& state = call.layer.peers[peer];
    const bool asks = state.suspect != 0 && !has_bit(board.suspects, peer) && wanted.has(peer);
    return asks && heard(call, peer) != state.seen ? Status::ok : Status::would_block;
  });
}

/// Begins a phase: thread 0 does `begin`, then one thread for each peer does `peers`. A barrier of
/// the grid follows both. If one block has enough threads for all peers, the first block does both,
/// with a barrier of the block between `begin` and `peers`. Otherwise a barrier of the grid stands
/// between them.
template <class Begin, class Peers>
WV_DEVICE void begin_phase(LayerContext& layer, Begin begin, Peers peers) {
  if (thread_in_grid() == 0) {
    begin();
    layer.began_ns = platform::now_ns();
  }
  const bool one_block = layer.team->ranks <= block_threads();
  if (one_block) {
    block_sync();
  } else {
    grid_sync();
  }
  if (!one_block || block_in_grid() == 0) peers();
  grid_sync();
}

/// Returns a tag of 16 bits for a shape that is not the layer's; never 0. Shapes with another
/// format or kind of scales never share a tag. Of two shapes that differ only in lengths, one pair
/// in 2,048 shares one.
WV_DEVICE uint32_t tag_of(const MoeShape& shape) {
  const uint32_t format = static_cast<uint32_t>(shape.format);
  const uint32_t kind = format << 2 | static_cast<uint32_t>(shape.scales);
  const auto mix = [](uint32_t sum, uint32_t length) {
    const uint32_t product = (sum ^ length) * 0x9e3779b1u;
    return product ^ product >> 15;
  };
  const uint32_t lengths = mix(mix(mix(0, shape.max_tokens), shape.row_bytes), shape.scale_bytes);
  return (kind + 1) << 11 | lengths >> 21;
}

/// Writes the shape of a call to `shape`: the layer's, unless the parameters say another one.
WV_DEVICE void take_shape(const MoeContext& moe, const DispatchSendParams& p, MoeShape& shape) {
  const bool own = p.max_tokens != 0;
  shape.max_tokens = own ? p.max_tokens : moe.max_tokens;
  shape.format = own ? p.format : moe.format;
  shape.scales = own ? p.scales : moe.scales;
  shape.row_bytes = own ? p.row_bytes : static_cast<uint32_t>(moe.row_bytes);
  shape.scale_bytes = own ? p.scale_bytes : moe.scale_bytes;
  shape.scales_at = moe.header_bytes + (shape.row_bytes + 15) / 16 * 16;
  shape.tag = own ? tag_of(shape) : 0;
}

/// Returns whether the slots and tables of the layer hold a call of this shape.
WV_DEVICE bool holds(const MoeContext& moe, const MoeShape& shape) {
  return shape.max_tokens <= moe.max_tokens &&
         uint64_t{shape.scales_at} + shape.scale_bytes <= moe.slot_bytes;
}

/// Begins a call: takes its number, waits until it may start, and stores in the handle what all its
/// phases read. Closes the call two before it, whose slots may be used again. One thread.
///
/// A load takes as long as a hundred instructions, and a load of host memory as long as a thousand.
/// Nothing passes a fence. So loads that need not wait for each other are issued together.
WV_DEVICE void begin_dispatch(const DispatchSendParams& p) {
  MoeContext& moe = *p.moe;
  LayerContext& layer = moe.layer;
  MoeHandle& handle = *p.handle;
  MoeBoard& board = *layer.board;
  const MoeView* views = layer.views;
  const MoeClock* clock = layer.clock;
  const uint32_t call = layer.call + 1;
  uint32_t joined = layer.joined, serial = layer.serial;
  const uint32_t rank = layer.team->rank, ranks = layer.team->ranks;
  const uint32_t finished = finished_of(layer, call);
  MoeShape shape;
  take_shape(moe, p, shape);
  for (uint32_t& closed : layer.released) {
    if (call - joined >= SETS && newer(call - SETS, closed)) closed = call - SETS;
  }
  layer.call = call;
  platform::store_relaxed_sys(&board.started, call);
  // Sequentially consistent. Pairs with the fence between the host's store of the limit and its
  // look at `started`: either the host sees this call, or this thread sees the limit. Also a
  // release of what earlier calls did: pairs with the acquire load of the host of `finished`.
  platform::fence_sc_sys();
  platform::store_relaxed_sys(&board.finished, finished);
  Rein rein = Rein::of(board);
  Status held = Status::ok;
  if (rein.limited) {
    held = hold(layer, &handle, call, p.deadline_ns);
    rein = Rein::of(board);
    // These values are read again, so that no register keeps them during the wait.
    views = layer.views;
    clock = layer.clock;
    joined = layer.joined;
    serial = layer.serial;
    take_shape(moe, p, shape);
  }
  const bool fits = p.tokens <= shape.max_tokens && holds(moe, shape);
  // Acquire. Orders the loads of the views after that of the limit: the host writes a view before
  // it lets calls start in it. Pairs with its release store.
  platform::fence_acquire_sys();
  const uint32_t warm_calls = platform::load_relaxed(&clock->warm_calls);
  const uint64_t warm_ns = platform::load_relaxed(&clock->warm_ns);
  const uint64_t steady_ns = platform::load_relaxed(&clock->steady_ns);
  const uint32_t found = pick_view(views, serial, call);
  const bool aborted = held != Status::ok || found == MOE_VIEWS;
  const uint32_t view = found == MOE_VIEWS ? 0 : found;
  const uint64_t usual = call - joined < warm_calls ? warm_ns : steady_ns;
  handle.shape = shape;
  handle.call = call;
  handle.view = view;
  handle.epoch = views[view].epoch & 0xffff;
  handle.aborted = aborted;
  layer.untold = aborted ? 0 : layer.aborted;
  layer.aborted = !aborted ? 0 : layer.aborted < SETS ? layer.aborted + 1 : SETS;
  if (!aborted) enter_view(layer, view, call);
  handle.deadline_ns = p.deadline_ns != 0 ? p.deadline_ns : usual;
  handle.tokens = fits ? p.tokens : 0;
  handle.stage = CallStage::dispatch_sent;
  handle.combine_flags = (p.flags & DISPATCH_ONLY) != 0 ? COMBINE_NONE : 0;
  for (Status& phase : handle.phase) phase = Status::ok;
  handle.in_turn = 1;
  handle.stopped = !fits || aborted;
  handle.tell = 0;
  handle.busy = 0;
  handle.recent = moe.buffer;
  handle.unbuffered = moe.unbuffered;
  handle.refused = ~uint64_t{0};
  clear_fault(handle.fault, ranks);
  layer.waiting = ranks;
  // The mark of the last passed call moves along, so that no call gets the number of a call that
  // was passed a lap ago.
  if (call - layer.passed > 2) layer.passed = call - 3;
  if (aborted) {
    handle.phase[DISPATCH_SEND] = Status::aborted;
    record_fault(layer, handle, DISPATCH_SEND, MoeCause::aborted, NONE, 0, NONE);
    return;
  }
  if (!fits) {
    handle.phase[DISPATCH_SEND] = Status::invalid;
    record_fault(layer, handle, DISPATCH_SEND, MoeCause::refused, NONE, 0, NONE);
  }
  const Wanted wanted{views[view], rank, ranks, p.active};
  if (rein.alone || wanted.are_suspects(layer.peers)) {
    keep_pace(Call(&layer, p.handle, DISPATCH_SEND), wanted, rein.alone);
  }
}

/// Starts a phase that follows another. The handle must be at stage `after`, else the phase does
/// nothing and ends `invalid`. The call must not be closed, else it ends `closed`. One thread; a
/// barrier follows.
WV_DEVICE void begin(LayerContext* layer, MoeHandle* handle, Phase phase, CallStage after) {
  const uint32_t kind = phase < COMBINE_SEND ? KIND_DISPATCH : KIND_COMBINE;
  const bool closed = !newer(handle->call, layer->released[kind]);
  const bool in_turn = handle->stage == after && !closed;
  const bool aborted = in_turn && handle->aborted != 0;
  handle->phase[phase] = aborted                  ? Status::aborted
                         : in_turn                ? Status::ok
                         : handle->stage == after ? Status::closed
                                                  : Status::invalid;
  handle->in_turn = in_turn;
  handle->stopped = aborted;
  handle->tell = 0;
  layer->left = 0;
  layer->waiting = layer->team->ranks;
  if (in_turn) {
    handle->stage = static_cast<CallStage>(static_cast<uint32_t>(after) + 1);
  }
}

/// Takes back a phase that has begun after stage `after`, because this layer cannot do the phase.
/// The phase does nothing, ends `invalid`, and may be called again. One thread; a barrier follows.
WV_DEVICE_COLD void refuse(const Call& call, CallStage after) {
  call.handle.phase[call.phase] = Status::invalid;
  call.handle.in_turn = 0;
  call.handle.stage = after;
}

/// Stores what the call knows of `peer` at its begin: whether it is a member, and takes part.
///
/// In an aborted call no peer takes part, but both send phases tell the members so at once. A rank
/// that told it only with its next call would wait in that call for a rank that waits for it in
/// this one.
WV_DEVICE void join_peer(const Call& call, const uint32_t* active, uint32_t peer) {
  const bool aborted = call.handle.aborted != 0;
  const bool wanted = active == nullptr || peer == call.rank() || active[peer] != 0;
  MoeHandlePeer state{};
  state.member = call.view.homes != nullptr && has_bit(call.view.members, peer);
  state.active = state.member && wanted && !aborted;
  call.handle.peers[peer] = state;
}

/// The bits of `MoeHandle::tell`.
enum Tell : uint32_t { TELL = 1, UNSTAGED = 2 };

/// Begins a send phase for all peers: takes guards, and finds out which credits are missing.
/// Threads share the peers; a barrier follows.
WV_DEVICE void begin_send(const Call& call) {
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    MoePeer& state = call.layer.peers[peer];
    state.credit = GIVEN;
    if (peer == call.rank()) continue;
    enter_peer(call, peer);
    if (!call.is_active(peer)) continue;
    const Credit credit = first_look(call, peer);
    if (credit == GIVEN) continue;
    state.credit = credit;
    if (credit == LATE) lose(call, peer, why_late(call, peer));
    const uint32_t awaited = credit == LATE ? 0 : TELL, unstaged = credit == AWAITED ? 0 : UNSTAGED;
    platform::or_relaxed_sys(&call.handle.tell, awaited | unstaged);
  }
}

/// Finds out which send buffers an HCA still reads for `peer`. The buffer of the call before is
/// left out, because this call does not take it anyway. After `begin_send`. One thread.
WV_DEVICE void find_busy(const SlotCall& call, uint32_t peer) {
  const MoePeer& state = call.layer.peers[peer];
  // If the credit is given or awaited, the look for it has found that the HCA has carried this set.
  const bool carried = call.is_active(peer) && state.credit <= AWAITED;
  for (uint32_t set = 0; set < SETS; ++set) {
    const uint32_t buffer = state.buffer[set];
    if (buffer == call.handle.recent || (carried && set == call.set())) continue;
    if (is_done(call, peer, signal_index(KIND_DISPATCH, set))) continue;
    platform::or_relaxed_sys(&call.handle.busy, 1u << buffer);
  }
}

/// Begins the send phase of dispatch for all peers: notes which of them take part, does
/// `begin_send`, and then `find_busy` for each other rank. `active`: that of `DispatchSendParams`.
WV_DEVICE void begin_dispatch_send(const SlotCall& call, const uint32_t* active) {
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    join_peer(call, active, peer);
  }
  begin_send(call);
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    if (peer != call.rank()) find_busy(call, peer);
  }
}

}  // namespace wv::moe
