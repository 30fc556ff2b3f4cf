// The common part of the send phases: wait for a credit, put rows, put the data signal after the
// rows.
#pragma once

#include "begin.cuh"
#include "clock.cuh"
#include "pieces.cuh"

namespace wv::moe {

/// Sends `peer` what this rank has released, unless the peer was told before. Whole warp.
WV_DEVICE void tell(const Call& call, uint32_t peer) {
  PeerQp qp;
  if (lane() != 0 || !call.is_member(peer)) return;
  const MoePeer& state = call.layer.peers[peer];
  if (state.told == own_credit(call.layer)) return;
  PostOptions options{for_own_hca(call)};
  // If no HCA carries the ring's work, the ring has no room. Then a later word tells the peer.
  options.try_only = state.suspect != 0 || state.late != 0;
  if (call.open(peer, &qp) == Status::ok) control(call, qp, peer, options);
}

/// Tells `peer` that this rank sends it nothing in this call. One thread.
WV_DEVICE void tell_skipped(const Call& call, const PeerQp& qp, uint32_t peer) {
  mark_skipped(call, peer);
  PostOptions options{for_own_hca(call)};
  // The ring to a rank that is gone fills with such words, and the HCA takes long to report that
  // rank. So a word to a peer that is masked or a suspect does not wait for ring space and may be
  // left out: the next word says all that this one does. With flush no word is posted before the
  // last one has arrived, so words cannot fill the ring.
  const MoePeer& state = call.layer.peers[peer];
  const bool awaited = call.is_active(peer) || call.handle.aborted != 0;
  const bool late = !awaited || state.suspect != 0;
  // This rank also does not wait again for an HCA that does not carry its work.
  options.try_only = (late && call.layer.order != MoeOrder::flush) || state.late != 0;
  // A QP that refuses the word is in error: then the peer's own deadline ends its wait.
  control(call, qp, peer, options);
}

/// Sends nothing to `peer` in this call, and tells the peer so. Whole warp.
WV_DEVICE Outcome skip(const Call& call, const PeerQp& qp, uint32_t peer) {
  if (lane() == 0) tell_skipped(call, qp, peer);
  return Outcome::skipped;
}

/// Tells `peer` again that this rank sends nothing in the calls right before this one that ended
/// `aborted`. Whole warp.
///
/// Each of these calls has told the members of the view that it found when it gave up. The change
/// for which the call was held may take in a rank, or unite this rank with one, that was no member
/// of that view. That rank waits for the call, and would go on waiting while this rank waits for it
/// in a later call. The same words also name older calls than the two before this one, and never
/// calls that sent rows.
WV_DEVICE_COLD void tell_aborted(const Call& call, uint32_t peer) {
  if (lane() != 0 || !call.is_member(peer)) return;
  for (uint32_t back = call.layer.untold; back > 0; --back) {
    for (uint32_t kind = 0; kind < SIGNALS_PER_PEER / SETS; ++kind) {
      const Call one = call.words_of(kind, call.call - back);
      PeerQp qp;
      if (one.open(peer, &qp) == Status::ok) tell_skipped(one, qp, peer);
    }
  }
}

/// Records that a post to `peer` was refused. Whole warp.
WV_DEVICE_COLD Outcome fail(const Call& call, uint32_t peer, Status status) {
  if (lane() != 0) return Outcome::failed;
  suspect(call, peer);
  lose(call, peer, status);
  return Outcome::failed;
}

/// What a send phase needs to reach one peer.
struct Way {
  PeerQp qp;
  There there;
  Window staging;

  WV_DEVICE Way(const SlotCall& call, const PeerQp& opened, uint32_t peer)
      : qp(opened),
        there(call, peer),
        staging(rail_window(call.team, call.moe().staging, there.data)) {}

  /// Makes `piece` a put. Returns false if the piece is not inside the windows.
  WV_DEVICE bool resolve(const Piece& piece, Put* put) const {
    put->bytes = piece.bytes;
    return there.data.at(piece.to, piece.bytes, &put->dst) &&
           local_at(staging, piece.from, piece.bytes, &put->src);
  }
};

/// The put of this lane, among pieces `base` to `base` + 31.
struct Turn {
  Put put;
  bool active;
  /// `any`: some lane has a put. `inside`: all puts are inside the windows.
  bool any, inside;

  WV_DEVICE Turn(const SlotCall& call, const Way& way, uint32_t peer, const Pieces& pieces,
                 uint32_t base)
      : put{}, active(false) {
    constexpr Warp warp;
    Piece piece{};
    active = base + lane() < pieces.count && pieces.at(call, peer, base + lane(), &piece);
    any = warp.any(active);
    inside = !warp.any(active && !way.resolve(piece, &put));
  }
};

/// Posts the pieces, and then the signal by the strategy of the layer. Whole warp.
WV_DEVICE Posted post_rows(const SlotCall& call, const Way& way, uint32_t peer,
                           const Pieces& pieces, Tail* tail) {
  // The last pieces share their doorbell with the signal. So each group of 32 pieces is posted only
  // when the next group is known.
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

/// Stores the pieces, and then the signal. Whole warp.
WV_DEVICE_ONCE Posted store_rows(const SlotCall& call, const Way& way, uint32_t peer,
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

/// Sends `count` rows to `peer` as `pieces`, then the data signal. Whole warp.
///
/// The caller has the credit, and the phase holds a guard. If the QP refuses work, the outcome is
/// `failed`. Then the call counts as not sent, since its data word is missing.
WV_DEVICE_ONCE Outcome send(const SlotCall& call, uint32_t peer, uint32_t count,
                            const Pieces& pieces) {
  PeerQp qp;
  Status status = call.open(peer, &qp);
  if (status != Status::ok) return fail(call, peer, status);

  const Way way(call, qp, peer);
  const uint64_t credit = own_credit(call.layer);
  Tail tail{};
  tail.words = {pack(Data{call.handle.epoch, call.call, count}), credit};
  Posted posted{Status::invalid, {0}};
  if (way.there.signals.at(call.signal_offset(), sizeof tail.words, &tail.signal)) {
    posted = way.there.direct ? store_rows(call, way, peer, pieces, tail)
                              : post_rows(call, way, peer, pieces, &tail);
  }
  // Also after a failure, posted work may still read the staging rows.
  if (lane() == 0 && posted.ticket.index != 0) {
    MoePeer& state = call.layer.peers[peer];
    state.ticket[call.index] = posted.ticket.is_done() ? 0 : posted.ticket.index;
    if (call.kind == KIND_DISPATCH) state.buffer[call.set()] = call.buffer;
    // Later phases do not repeat a wait for this work that was in vain.
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

/// Waits once for each peer whose credit is missing. The whole grid, between barriers.
WV_DEVICE_ONCE void await_credits(const Call& call) {
  const auto is_awaited = [&](uint32_t peer) {
    const uint32_t credit = call.layer.peers[peer].credit;
    return credit == AWAITED || credit == FLYING;
  };
  const auto look = [&](uint32_t peer) {
    const bool there = !is_awaited(peer) || look_for_credit(call, peer) == GIVEN;
    return there ? Status::ok : Status::would_block;
  };
  // A beat of the peer says nothing about whether this rank's HCA carries its work.
  const auto heeds = [&](uint32_t peer) { return call.layer.peers[peer].credit != FLYING; };
  const auto settle = [&](uint32_t peer, Status status) {
    MoePeer& state = call.layer.peers[peer];
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
  // Drops the guards of peers that this phase only sent beats.
  for (uint32_t peer = thread_in_grid(); peer < call.ranks(); peer += grid_threads()) {
    if (call.layer.peers[peer].credit == GIVEN) leave_peer(call, peer);
  }
}

/// Tells `peer`, if its QPs may be used, that nothing comes. Whole warp.
WV_DEVICE_ONCE Outcome skip(const Call& call, uint32_t peer) {
  PeerQp qp;
  if (call.open(peer, &qp) == Status::ok) return skip(call, qp, peer);
  if (lane() == 0 && may_note(call, peer)) mark_skipped(call, peer);
  return Outcome::skipped;
}

/// Sends each peer its rows or a word. The whole grid. `rows(peer)` sends rows to a peer that takes
/// part; a whole warp calls it. A member gets a word that nothing comes in three cases: the caller
/// has masked it, its credit does not come in time, or the call is refused. Ranks that are no
/// members get nothing. If credits were missing, the whole grid calls `restage()` after the wait
/// for them. One thread calls `keep(peer, outcome)` to record an outcome. The guards of the phase
/// are dropped.
///
/// Every peer whose credit is there gets its rows before this rank waits for any peer.
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
    warp.sync();  // all lanes have read what the leader now takes away
    if (warp.leader()) {
      keep(peer, outcome);
      const bool tells = outcome != Outcome::none && peer != call.rank();
      if (call.phase == DISPATCH_SEND && renews(call.call) && tells) renew(call, peer);
      leave_peer(call, peer);
    }
    warp.sync();
  };
  for (uint32_t peer = worker(); peer < call.ranks(); peer += workers()) {
    uint32_t credit = warp.broadcast(call.layer.peers[peer].credit);
    if (runs && credit == AWAITED) {
      if (warp.any(lane() == 0 && look_for_credit(call, peer) == GIVEN)) credit = GIVEN;
    }
    if (waits && runs && (credit == AWAITED || credit == FLYING)) continue;
    one(peer, credit == GIVEN);
    if (warp.leader()) call.layer.peers[peer].credit = GIVEN;  // settled
  }
  if (!waits || !runs) return;
  grid_sync();
  await_credits(call);
  grid_sync();
  restage();
  // The deadline of the phase may have passed, so the posts that follow have a deadline of their
  // own.
  call.deadline = for_own_hca(call);
  for (uint32_t peer = worker(); peer < call.ranks(); peer += workers()) {
    const uint32_t credit = warp.broadcast(call.layer.peers[peer].credit);
    if (credit >= CAME) one(peer, credit != LATE);
  }
}

}  // namespace wv::moe
