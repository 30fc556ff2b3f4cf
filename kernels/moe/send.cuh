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

/// Sends `count` rows to `peer` as the pieces [0, pieces) of `piece(i, &out)`, which says for one
/// lane whether i is a piece at all, then the data signal on the same QP. Whole warp.
///
/// Who gives no credit in time gets no data. A QP that refuses work ends in `failed`; the call then
/// counts as not sent, since its data word is not there.
template <Credits C, class PieceAt>
WV_DEVICE Outcome send(const Call& call, uint32_t peer, uint32_t count, uint32_t pieces,
                       PieceAt piece) {
  constexpr Warp warp;
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

  const PeerWindow slots = load_peer(call.team, call.moe.slots, peer, call.rail());
  const PeerWindow signals = load_peer(call.team, call.moe.signals, peer, call.rail());
  const Window staging = rail_window(call.team, call.moe.staging, call.rail());
  MoePeer& state = call.moe.peers[peer];
  const uint64_t credit = own_credit(call.moe);
  const DataSignal words{pack(Data{call.handle.epoch, call.call, count}), credit};
  RemoteAddr signal_at;
  bool inside = signals.at(call.signal_offset(), sizeof words, &signal_at);
  const PostOptions unsignalled{call.deadline, false}, signalled{call.deadline};

  // The last pieces share their doorbell with the signal, so groups of 32 lanes are posted one step
  // behind.
  Posted posted{Status::ok, {0}};
  Put held{};
  bool held_active = false;
  bool holds = false;
  for (uint32_t base = 0; base < pieces && posted.status == Status::ok; base += 32) {
    Piece next{};
    Put put{};
    bool active = base + lane() < pieces && piece(base + lane(), &next);
    if (active) {
      inside = inside && slots.at(next.to, next.bytes, &put.dst) &&
               local_at(staging, next.from, next.bytes, &put.src);
      put.bytes = next.bytes;
    }
    if (!warp.any(active)) continue;
    if (warp.any(!inside)) break;
    if (holds) posted = wv::put(warp, qp, held, unsignalled, held_active);
    held = put;
    held_active = active;
    holds = true;
  }
  if (warp.any(!inside)) posted.status = Status::invalid;
  if (posted.status == Status::ok) {
    posted = holds ? put_signal(warp, qp, held, signal_at, words, signalled, held_active)
                   : signal(warp, qp, signal_at, words, signalled);
  }
  call.report(posted.status);
  if (posted.status != Status::ok) {
    if (lane() == 0) suspect(call, peer);
    skip(call, qp, peer);
    return Outcome::failed;
  }
  if (lane() == 0) {
    state.last[call.index] = call.call;
    state.ticket[call.index] = posted.ticket.index;
    state.told = credit;
  }
  return Outcome::sent;
}

}  // namespace wv::moe
