// The send phases' common part: wait for a credit, put rows, put the data signal behind them.
#pragma once

#include "credit.cuh"

namespace wv::moe {

/// Whether a sender waits for the slots at the peer to be free. `ignored` breaks the protocol: it
/// is what the tests must catch.
enum class Credits { required, ignored };

/// One put of a sender: where it lies in the staging window and in the peer's slot window.
struct Piece {
  uint64_t from;
  uint64_t to;
  uint32_t bytes;
};

/// Tells `peer` what this rank has released, if it does not know. Whole warp.
WV_DEVICE void tell(const Call& call, uint32_t peer) {
  PeerQp qp;
  if (lane() != 0 || call.moe.peers[peer].told == own_credit(call.moe)) return;
  if (call.open(peer, &qp) == Status::ok) control(call, qp, peer);
}

/// Sends nothing to `peer` in this call, and says so. Whole warp.
WV_DEVICE Outcome skip(const Call& call, const PeerQp& qp, uint32_t peer) {
  if (lane() == 0) {
    mark_skipped(call, peer);
    control(call, qp,
            peer);  // a QP that refuses it is in error: the peer then learns from its own deadline
  }
  return Outcome::skipped;
}

/// Waits until data may go to `peer`; `timeout` if the credit does not come. Whole warp.
template <Credits C>
WV_DEVICE Status wait_credit(const Call& call, const PeerQp& qp, uint32_t peer) {
  if constexpr (C == Credits::ignored) return Status::ok;
  Status status = Status::ok;
  if (lane() == 0 && !has_credit(call, peer)) {
    status = spin_until(call.watch(qp), patience(call, peer),
                        [&] { return has_credit(call, peer) ? Status::ok : Status::would_block; });
    if (status != Status::ok) suspect(call, peer);
  }
  return Warp{}.broadcast(status);
}

/// What one send phase knows of one peer.
struct Way {
  PeerQp qp;
  PeerWindow slots, signals;
  Window staging;

  WV_DEVICE Way(const Call& call, const PeerQp& opened, uint32_t peer)
      : qp(opened),
        slots(load_peer(call.team, call.moe.slots, peer, call.rail())),
        signals(load_peer(call.team, call.moe.signals, peer, call.rail())),
        staging(rail_window(call.team, call.moe.staging, call.rail())) {}

  /// Whether this rank stores into the peer's memory itself.
  WV_DEVICE bool direct() const { return slots.direct() && signals.direct(); }
  /// `piece` as a put. False if it is not inside the windows.
  WV_DEVICE bool resolve(const Piece& piece, Put* put) const {
    put->bytes = piece.bytes;
    return slots.at(piece.to, piece.bytes, &put->dst) &&
           local_at(staging, piece.from, piece.bytes, &put->src);
  }
};

/// Posts the pieces, and behind them the signal, as the layer's order has it. Whole warp.
template <class PieceAt>
WV_DEVICE Posted post_rows(const Call& call, const Way& way, uint32_t pieces, PieceAt piece,
                           Tail* tail) {
  constexpr Warp warp;
  const PostOptions unsignalled{call.deadline, false};
  // The last pieces share their doorbell with the signal, so groups of 32 lanes are posted one step
  // behind.
  bool inside = true;
  Ticket last{0};
  for (uint32_t base = 0; base < pieces; base += 32) {
    Piece next{};
    Put put{};
    const bool active = base + lane() < pieces && piece(base + lane(), &next);
    if (active) inside = inside && way.resolve(next, &put);
    if (!warp.any(active)) continue;
    if (warp.any(!inside)) return {Status::invalid, last};
    if (tail->any) {
      const Posted posted = wv::put(warp, way.qp, tail->rows, unsignalled, tail->active);
      if (posted.status != Status::ok) return {posted.status, last};
      last = posted.ticket;
    }
    tail->rows = put;
    tail->active = active;
    tail->any = true;
  }
  const Posted posted =
      with_order(call, [&](auto order) { return decltype(order)::data(call, way.qp, *tail); });
  return posted.ticket.index != 0 ? posted : Posted{posted.status, last};
}

/// Stores the pieces, and behind them the signal. Whole warp.
template <class PieceAt>
WV_DEVICE Posted store_rows(const Way& way, uint32_t pieces, PieceAt piece, const Tail& tail) {
  constexpr Warp warp;
  bool inside = true;
  for (uint32_t base = 0; base < pieces; base += 32) {
    Piece next{};
    Put put{};
    const bool active = base + lane() < pieces && piece(base + lane(), &next);
    if (active) inside = inside && way.resolve(next, &put);
    if (!warp.any(active)) continue;
    if (warp.any(!inside)) return {Status::invalid, {0}};
    direct::transfer(warp, put.dst.addr, put.src.addr, put.bytes, active);
  }
  return direct::signal<false>(warp, tail.signal.addr, tail.words);
}

/// Sends `count` rows to `peer` as the pieces [0, pieces) of `piece(i, &out)`, which says for one
/// lane whether i is a piece at all, then the data signal behind them. Whole warp.
///
/// Who gives no credit in time gets no data. A QP that refuses work ends in `failed`; the call then
/// counts as not sent, since its data word is not there.
template <Credits C, class PieceAt>
WV_DEVICE Outcome send(const Call& call, uint32_t peer, uint32_t count, uint32_t pieces,
                       PieceAt piece) {
  PeerQp qp;
  Status status = call.open(peer, &qp);
  if (status != Status::ok) {
    call.report(status);
    return Outcome::failed;
  }
  if (!call.runs()) return skip(call, qp, peer);
  if (status = wait_credit<C>(call, qp, peer); status != Status::ok) {
    call.report(status);
    return skip(call, qp, peer);
  }

  const Way way(call, qp, peer);
  MoePeer& state = call.moe.peers[peer];
  const uint64_t credit = own_credit(call.moe);
  Tail tail{};
  tail.words = {pack(Data{call.handle.epoch, call.call, count}), credit};
  Posted posted{Status::invalid, {0}};
  if (way.signals.at(call.signal_offset(), sizeof tail.words, &tail.signal)) {
    posted = way.direct() ? store_rows(way, pieces, piece, tail)
                          : post_rows(call, way, pieces, piece, &tail);
  }
  call.report(posted.status);
  // What reads the staging rows may be under way also after a failure.
  if (lane() == 0 && posted.ticket.index != 0) {
    state.ticket[call.index] = posted.ticket.is_done() ? 0 : posted.ticket.index;
  }
  if (posted.status != Status::ok) {
    if (lane() == 0) suspect(call, peer);
    skip(call, qp, peer);
    return Outcome::failed;
  }
  if (lane() == 0) {
    state.last[call.index] = call.call;
    state.told = credit;
  }
  return Outcome::sent;
}

}  // namespace wv::moe
