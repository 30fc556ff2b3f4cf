// The send phases' common part: wait for a credit, put rows, put the data signal after them.
#pragma once

#include "begin.cuh"
#include "clock.cuh"
#include "pieces.cuh"

namespace wv::moe {

/// Sends `peer` what this rank has released, if it does not know. Whole warp.
WV_DEVICE void tell(const Call& call, uint32_t peer) {
  PeerQp qp;
  if (lane() != 0 || !call.is_member(peer)) return;
  const MoePeer& state = call.moe.peers[peer];
  if (state.told == own_credit(call.moe)) return;
  PostOptions options{for_own_hca(call)};
  // A ring whose work no HCA carries has no room, and the peer learns by a later word.
  options.try_only = state.suspect != 0 || state.late != 0;
  if (call.open(peer, &qp) == Status::ok) control(call, qp, peer, options);
}

/// Tells `peer` that this rank sends it nothing in this call. One thread calls this.
WV_DEVICE void tell_skipped(const Call& call, const PeerQp& qp, uint32_t peer) {
  mark_skipped(call, peer);
  PostOptions options{for_own_hca(call)};
  // The ring to a rank that is gone fills with such words, and its HCA takes long to report that.
  // No rank waits for one that is masked or a suspect. So these words may be left out: the next one
  // says all that this one does. With flush none is posted before the last has arrived.
  const MoePeer& state = call.moe.peers[peer];
  const bool awaited = call.is_active(peer) || call.handle.aborted != 0;
  const bool late = !awaited || state.suspect != 0;
  // Nor does this rank wait again for an HCA that does not carry what it has.
  options.try_only = (late && call.moe.order != MoeOrder::flush) || state.late != 0;
  // A QP that refuses it is in error: the peer then learns from its own deadline.
  control(call, qp, peer, options);
}

/// Sends nothing to `peer` in this call, and says so. Whole warp.
WV_DEVICE Outcome skip(const Call& call, const PeerQp& qp, uint32_t peer) {
  if (lane() == 0) tell_skipped(call, qp, peer);
  return Outcome::skipped;
}

/// Says again that nothing comes of the calls right before this one that ended `aborted`. Whole
/// warp.
///
/// Each of them has said so to the members of the view that it found when it gave up. The change
/// for which it was held may take a rank in, or unite one with this rank. That rank was no member
/// of the old view. It waits for that call, and would go on waiting while this rank waits for it in
/// a later one. Older calls than the two before this one are named with these, and those that sent
/// rows never.
WV_DEVICE_COLD void tell_aborted(const Call& call, uint32_t peer) {
  if (lane() != 0 || !call.is_member(peer)) return;
  for (uint32_t back = call.moe.untold; back > 0; --back) {
    for (uint32_t kind = 0; kind < SIGNALS_PER_PEER / SETS; ++kind) {
      const Call one = call.words_of(kind, call.call - back);
      PeerQp qp;
      if (one.open(peer, &qp) == Status::ok) tell_skipped(one, qp, peer);
    }
  }
}

/// A post to `peer` was refused. Whole warp.
WV_DEVICE_COLD Outcome fail(const Call& call, uint32_t peer, Status status) {
  if (lane() != 0) return Outcome::failed;
  suspect(call, peer);
  lose(call, peer, status);
  return Outcome::failed;
}

/// What one send phase knows of one peer.
struct Way {
  PeerQp qp;
  There there;
  Window staging;

  WV_DEVICE Way(const Call& call, const PeerQp& opened, uint32_t peer)
      : qp(opened),
        there(call, peer),
        staging(rail_window(call.team, call.moe.staging, there.slots)) {}

  /// `piece` as a put. False if it is not inside the windows.
  WV_DEVICE bool resolve(const Piece& piece, Put* put) const {
    put->bytes = piece.bytes;
    return there.slots.at(piece.to, piece.bytes, &put->dst) &&
           local_at(staging, piece.from, piece.bytes, &put->src);
  }
};

/// What one lane puts next, of pieces `base` to `base` + 31.
struct Turn {
  Put put;
  bool active;
  /// Some lane has something; all that they have is inside the windows.
  bool any, inside;

  WV_DEVICE Turn(const Call& call, const Way& way, uint32_t peer, const Pieces& pieces,
                 uint32_t base)
      : put{}, active(false) {
    constexpr Warp warp;
    Piece piece{};
    active = base + lane() < pieces.count && pieces.at(call, peer, base + lane(), &piece);
    any = warp.any(active);
    inside = !warp.any(active && !way.resolve(piece, &put));
  }
};

/// Posts the pieces, and after them the signal, as the layer's strategy has it. Whole warp.
WV_DEVICE Posted post_rows(const Call& call, const Way& way, uint32_t peer, const Pieces& pieces,
                           Tail* tail) {
  // The last pieces share their doorbell with the signal, so groups of 32 lanes are posted one step
  // late.
  Ticket last{0};
  for (uint32_t base = 0; base < pieces.count; base += 32) {
    const Turn turn(call, way, peer, pieces, base);
    if (!turn.any) continue;
    if (!turn.inside) return {Status::invalid, last};
    if (tail->any) {
      const PostOptions unsignalled{for_own_hca(call), false};
      const Posted posted = put_rows(way.qp, tail->rows, unsignalled, tail->active);
      if (posted.status != Status::ok) return {posted.status, last};
      last = posted.ticket;
    }
    tail->rows = turn.put;
    tail->active = turn.active;
    tail->any = true;
  }
  const Posted posted = post_tail(call, way.qp, *tail);
  return posted.ticket.index != 0 ? posted : Posted{posted.status, last};
}

/// Stores the pieces, and after them the signal. Whole warp.
WV_DEVICE_ONCE Posted store_rows(const Call& call, const Way& way, uint32_t peer,
                                 const Pieces& pieces, const Tail& tail) {
  constexpr Warp warp;
  for (uint32_t base = 0; base < pieces.count; base += 32) {
    const Turn turn(call, way, peer, pieces, base);
    if (!turn.any) continue;
    if (!turn.inside) return {Status::invalid, {0}};
    direct::transfer(warp, turn.put.dst.addr, turn.put.src.addr, turn.put.bytes, turn.active);
  }
  return direct::signal<false>(warp, tail.signal.addr, tail.words);
}

/// Sends `count` rows to `peer` as `pieces`, then the data signal after them. Whole warp.
///
/// The credit has come, and the phase holds a guard. A QP that refuses work ends in `failed`; the
/// call then counts as not sent, since its data word is missing.
WV_DEVICE_ONCE Outcome send(const Call& call, uint32_t peer, uint32_t count, const Pieces& pieces) {
  PeerQp qp;
  Status status = call.open(peer, &qp);
  if (status != Status::ok) return fail(call, peer, status);

  const Way way(call, qp, peer);
  const uint64_t credit = own_credit(call.moe);
  Tail tail{};
  tail.words = {pack(Data{call.handle.epoch, call.call, count}), credit};
  Posted posted{Status::invalid, {0}};
  if (way.there.signals.at(call.signal_offset(), sizeof tail.words, &tail.signal)) {
    posted = way.there.direct ? store_rows(call, way, peer, pieces, tail)
                              : post_rows(call, way, peer, pieces, &tail);
  }
  // What reads the staging rows may be under way also after a failure.
  if (lane() == 0 && posted.ticket.index != 0) {
    MoePeer& state = call.moe.peers[peer];
    state.ticket[call.index] = posted.ticket.is_done() ? 0 : posted.ticket.index;
    if (call.kind == KIND_DISPATCH) state.buffer[call.set()] = call.buffer;
    // A wait for it that has been in vain is not repeated by a later phase.
    const uint32_t bit = 1u << call.index;
    state.late = posted.status == Status::timeout ? state.late | bit : state.late & ~bit;
  }
  if (posted.status != Status::ok) {
    skip(call, qp, peer);
    return fail(call, peer, posted.status);
  }
  if (lane() == 0) mark_sent(call, peer, credit);
  return Outcome::sent;
}

/// Waits for the credits that are missing, for each peer once. The whole grid, between barriers.
WV_DEVICE_ONCE void await_credits(const Call& call) {
  const auto is_awaited = [&](uint32_t peer) {
    const uint32_t credit = call.moe.peers[peer].credit;
    return credit == AWAITED || credit == FLYING;
  };
  const auto look = [&](uint32_t peer) {
    const bool there = !is_awaited(peer) || look_for_credit(call, peer) == GIVEN;
    return there ? Status::ok : Status::would_block;
  };
  // No beat of a peer brings this rank's work to it.
  const auto heeds = [&](uint32_t peer) { return call.moe.peers[peer].credit != FLYING; };
  const auto settle = [&](uint32_t peer, Status status) {
    MoePeer& state = call.moe.peers[peer];
    if (!is_awaited(peer)) return;
    const bool flew = state.credit == FLYING;
    state.credit = status != Status::ok ? LATE : flew ? LANDED : CAME;
    if (status != Status::ok) {
      if (!is_done(call, peer, call.index)) state.late |= 1u << call.index;
      give_up(call, peer, status, false);
    } else if (flew) {
      platform::store_relaxed(&call.handle.landed, 1u);
    }
  };
  await_peers(call, look, settle, heeds);
  // Those that were only beaten.
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    if (call.moe.peers[peer].credit == GIVEN) leave_peer(call, peer);
  }
}

/// Sends `peer` a word that nothing comes, if its QPs may be used. Whole warp.
WV_DEVICE_ONCE Outcome skip(const Call& call, uint32_t peer) {
  PeerQp qp;
  if (call.open(peer, &qp) == Status::ok) return skip(call, qp, peer);
  if (lane() == 0 && may_note(call, peer)) mark_skipped(call, peer);
  return Outcome::skipped;
}

/// Sends every peer what it gets. A peer that takes part gets `rows(peer)`, by the whole warp. In
/// three cases a member gets a word that nothing comes. The caller has masked it, its credit does
/// not come in time, or the call is refused. Others get nothing. The whole grid calls `restage()`
/// after it has waited for credits, where some were missing. `keep(peer, outcome)` takes an outcome
/// down, by one thread. The whole grid; it drops the guards of the phase.
///
/// Every peer that gives credit has its rows before this rank waits for any.
template <class Rows, class Restage, class Keep>
WV_DEVICE void send_to_peers(Call& call, Rows rows, Restage restage, Keep keep) {
  constexpr Warp warp;
  const bool runs = warp.any(call.runs());
  const bool waits = (call.handle.tell & TELL) != 0;
  const auto one = [&](uint32_t peer, bool credit) {
    Outcome outcome = Outcome::skipped;
    if (peer == call.rank()) {
      outcome = runs ? Outcome::sent : Outcome::skipped;
    } else if (!call.is_member(peer)) {
      outcome = Outcome::none;
    } else if (runs && credit && call.is_active(peer)) {
      outcome = rows(peer);
    } else {
      outcome = skip(call, peer);
    }
    warp.sync();  // all lanes have looked at what the leader takes away now
    if (warp.leader()) {
      keep(peer, outcome);
      const bool tells = outcome != Outcome::none && peer != call.rank();
      if (call.phase == DISPATCH_SEND && renews(call.call) && tells) renew(call, peer);
      leave_peer(call, peer);
    }
    warp.sync();
  };
  for (uint32_t peer = worker(); peer < call.ranks(); peer += workers()) {
    uint32_t credit = warp.broadcast(call.moe.peers[peer].credit);
    if (runs && credit == AWAITED) {
      if (warp.any(lane() == 0 && look_for_credit(call, peer) == GIVEN)) credit = GIVEN;
    }
    if (waits && runs && (credit == AWAITED || credit == FLYING)) continue;
    one(peer, credit == GIVEN);
    if (warp.leader()) call.moe.peers[peer].credit = GIVEN;  // settled
  }
  if (!waits || !runs) return;
  grid_sync();
  await_credits(call);
  grid_sync();
  restage();
  // The deadline of the phase may have passed. What waits now has time of its own.
  call.deadline = for_own_hca(call);
  for (uint32_t peer = worker(); peer < call.ranks(); peer += workers()) {
    const uint32_t credit = warp.broadcast(call.moe.peers[peer].credit);
    if (credit >= CAME) one(peer, credit != LATE);
  }
}

}  // namespace wv::moe
