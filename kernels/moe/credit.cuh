// What a sender keeps for each peer: a guard, credits, suspicion, calls that it did not send, and
// work in flight.
//
// Slots are reused by credit. A rank sends data into a set only when the peer has closed the set's
// last call with data and the HCA has carried it. Work in flight to a peer counts as a missing
// credit of that peer. So what an HCA still reads for one peer delays no other. Before a rank waits
// for a credit it sends its own credit to all peers. Otherwise two ranks that both send the next
// dispatch before they receive this one would wait for each other. A peer whose credit does not
// come in time gets no data, only a word that says so.
#pragma once

#include "fault.cuh"
#include "order.cuh"

namespace wv::moe {

/// Takes a guard of `peer` for the phase, so that its QPs may be used until `leave_peer`. Returns
/// false while the host resets the QPs. One thread.
WV_DEVICE bool enter_peer(const Call& call, uint32_t peer) {
  Guard<Thread> guard;
  const bool open = guard_enter(Thread{}, call.team, peer, &guard) == Status::ok;
  call.layer.peers[peer].open = open;
  return open;
}

/// Drops the guard of `peer`, if the phase has one. After that nothing is posted to the peer. One
/// thread, after all threads that post have done so.
WV_DEVICE void leave_peer(const Call& call, uint32_t peer) {
  MoePeer& state = call.layer.peers[peer];
  if (state.open == 0) return;
  state.open = 0;
  guard_drop(Thread{}, Guard<Thread>{Thread{}, &call.team, call.team.guards + peer,
                                     call.team.closed + peer, peer, 0});
}

/// Returns what this rank has released, as a credit word. The word is never 0, since 0 means that
/// no word was written: if both numbers are 0, the number for combine is one less.
WV_DEVICE uint64_t own_credit(const LayerContext& layer) {
  const uint64_t credit = pack(layer.released[KIND_DISPATCH], layer.released[KIND_COMBINE]);
  return credit != 0 ? credit : pack(0u, ~0u);
}

/// Returns whether `peer` has closed call `last` of this kind. Any signal of the peer may say so,
/// since signals arrive in any order.
WV_DEVICE bool has_released(const Call& call, uint32_t peer, uint32_t last) {
  uint64_t credits[SIGNALS_PER_PEER];  // all loads in flight together
  for (uint32_t i = 0; i < SIGNALS_PER_PEER; ++i) {
    credits[i] = platform::load_relaxed_sys(&call.signal_from(peer, i)->credit);
  }
  bool found = false;
  for (const uint64_t credit : credits) {
    found = found || (credit != 0 && !newer(last, released(credit, call.kind)));
  }
  return found;
}

/// Returns whether data of this kind and set was ever sent to `peer`.
WV_DEVICE bool has_sent(const Call& call, const MoePeer& state) {
  return (state.sent >> call.index & 1) != 0;
}

/// Notes that data of this call, with this credit, is on its way to `peer`.
WV_DEVICE void mark_sent(const Call& call, uint32_t peer, uint64_t credit) {
  MoePeer& state = call.layer.peers[peer];
  state.last[call.index] = call.call;
  state.sent |= 1u << call.index;
  state.told = credit;
}

/// Returns all that a peer's signals have said so far, as one number that changes with every new
/// word.
WV_DEVICE uint64_t heard(const Call& call, uint32_t peer) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < SIGNALS_PER_PEER; ++i) {
    const MoeSignal* const signal = call.signal_from(peer, i);
    const uint64_t data = platform::load_relaxed_sys(&signal->data);
    const uint64_t credit = platform::load_relaxed_sys(&signal->credit);
    const uint64_t not_sent = platform::load_relaxed_sys(&signal->not_sent);
    const uint64_t alive = platform::load_relaxed_sys(&signal->alive);
    const uint32_t end = first(not_sent) + 2 * second(not_sent);
    sum += uint64_t{unpack_data(data).call} + first(credit) + second(credit) + end + first(alive) +
           second(alive);
  }
  return sum;
}

/// Makes `peer` a suspect after a wait in vain. From now on this rank looks at the peer's words,
/// but does not wait for the peer until it says something new. One thread.
WV_DEVICE_COLD void suspect(const Call& call, uint32_t peer) {
  MoePeer& state = call.layer.peers[peer];
  state.seen = heard(call, peer);
  if (state.suspect == 0) platform::store_relaxed(&call.layer.changed, 1u);
  state.suspect = 1;
  platform::or_relaxed_sys(&call.handle.fault.suspects[peer / 32], 1u << peer % 32);
}

/// Ends the suspicion of `peer`, after a word of this call. One thread.
WV_DEVICE void trust(const Call& call, uint32_t peer) {
  MoePeer& state = call.layer.peers[peer];
  if (state.suspect == 0) return;
  state.suspect = 0;
  platform::store_relaxed(&call.layer.changed, 1u);
}

/// Returns whether `peer` is waited for. Any new word from a suspect ends the suspicion. One
/// thread.
WV_DEVICE bool trusted(const Call& call, uint32_t peer) {
  const MoePeer& state = call.layer.peers[peer];
  if (state.suspect != 0 && heard(call, peer) != state.seen) trust(call, peer);
  return state.suspect == 0;
}

/// Returns whether the HCA reads nothing for `peer` any more: it has carried the last data of this
/// kind and set, or the QP is in error. Never waits. One thread.
///
/// The host raises the error word of a QP only after its move to Err has ended. So the HCA has
/// stopped when the word is set.
WV_DEVICE_ONCE bool is_done(const Call& call, uint32_t peer, uint32_t index) {
  const Ticket ticket{call.layer.peers[peer].ticket[index]};
  if (ticket.index == 0) return true;
  QpContext* const context = peer_qp(call.team, peer, index % call.team.qps_per_peer);
  if (context == nullptr) return true;
  uint64_t cons;
  Status status = wv::detail::seen(context, ticket, &cons);
  if (status != Status::would_block) return true;
  // While the host resets the QP, this thread gets no guard and looks only at the words of the QP.
  const bool entered = !call.is_open(peer) && enter_peer(call, peer);
  PeerQp qp;
  if (call.is_open(peer) && open_qp(context, &qp) == Status::ok) {
    status = wv::detail::look_at(qp, ticket);
  }
  if (entered) leave_peer(call, peer);
  return status != Status::would_block || Watch{&context->err, nullptr}.fault() != Status::ok;
}

/// State of a peer's credit in a send phase (`MoePeer::credit`). With GIVEN and AWAITED the peer's
/// rows of this set may be staged.
enum Credit : uint32_t {
  GIVEN,
  /// The peer has not closed the last call of the set.
  AWAITED,
  /// The HCA has not carried the last call of the set.
  FLYING,
  /// The credit was AWAITED, and came.
  CAME,
  /// The credit was FLYING, and came: the peer's rows are not staged yet.
  LANDED,
  /// The peer is not waited for, or was waited for in vain.
  LATE,
};

/// Returns the state of the credit of `peer` for this kind and set, after one look. One thread.
///
/// A suspect gets nothing while any work for it is in flight. So it binds no more send buffers than
/// it did when it fell silent.
WV_DEVICE Credit look_for_credit(const Call& call, uint32_t peer) {
  MoePeer& state = call.layer.peers[peer];
  if (!is_done(call, peer, call.index)) return FLYING;
  if (has_sent(call, state) && !has_released(call, peer, state.last[call.index])) return AWAITED;
  if (state.suspect == 0) return GIVEN;
  for (uint32_t i = 0; i < SIGNALS_PER_PEER; ++i) {
    if (!is_done(call, peer, i)) return AWAITED;
  }
  return GIVEN;
}

/// Returns whether work to `peer` for which a send phase waited in vain is still in flight. One
/// thread.
WV_DEVICE bool is_stuck(const Call& call, uint32_t peer) {
  MoePeer& state = call.layer.peers[peer];
  for (uint32_t i = 0; state.late != 0 && i < SIGNALS_PER_PEER; ++i) {
    if ((state.late >> i & 1) != 0 && is_done(call, peer, i)) state.late &= ~(1u << i);
  }
  return state.late != 0;
}

/// Returns the state of the credit of `peer` at the begin of a send phase. A missing credit is LATE
/// if the peer is a suspect that has said nothing new. It is LATE, too, if an earlier wait for the
/// HCA was in vain.
WV_DEVICE Credit first_look(const Call& call, uint32_t peer) {
  const bool waits = trusted(call, peer);
  const Credit found = look_for_credit(call, peer);
  return found == GIVEN || (waits && !is_stuck(call, peer)) ? found : LATE;
}

/// Returns why `peer` is not waited for: its QP has failed, the host has ended all waits, or an
/// earlier wait was in vain. One thread.
WV_DEVICE Status why_late(const Call& call, uint32_t peer) {
  const QpContext* const qp = call.qp_to(peer);
  const Watch watch{qp == nullptr ? nullptr : &qp->err, &call.team.config->abort};
  const Status fault = watch.fault();
  return fault != Status::ok ? fault : Status::timeout;
}

/// Records that an exchange with `peer` has failed; `status` says why. One thread.
WV_DEVICE_COLD void lose(const Call& call, uint32_t peer, Status status) {
  call.report(status == Status::closed ? Status::aborted : status);
  record_failure(call, peer, status);
}

/// Writes to `peer` what this rank has released, which calls of this set it has not sent, and how
/// often it has beaten. These words need no order with data. One thread.
WV_DEVICE_COLD Status control(const Call& call, const PeerQp& qp, uint32_t peer,
                              const PostOptions& options) {
  MoePeer& state = call.layer.peers[peer];
  const uint64_t credit = own_credit(call.layer);
  const ControlSignal words{credit,
                            pack(state.skip_first[call.index], state.skip_number[call.index]),
                            pack(call.call, state.beat)};
  RemoteAddr to;
  const There there(call, peer);
  constexpr uint64_t AT = offsetof(MoeSignal, credit);
  if (!there.signals.at(call.signal_offset() + AT, sizeof words, &to)) return Status::invalid;
  const Posted posted = post_control(call, qp, there, to, words, options);
  if (posted.status == Status::ok) state.told = credit;
  return posted.status;
}

/// Returns whether this call may change the state of `peer` beyond the words of the phase that runs
/// (`open`, `credit`, which stay 0 without a guard).
///
/// The host clears all state of `peer` (`Board::clear_peer`) under three conditions: the peer is in
/// no view that a call needs, it is closed, and no kernel holds a guard of it. A call that runs
/// uses the view of its number, so the host waits for the calls whose views have the peer. A call
/// that ends `aborted` may have a number after the change for which it was held, but it uses the
/// view before that change. The host does not wait for the end of such a call, which comes when the
/// program calls its combine. So the call needs a guard. It gets none from before the clearing
/// until a later view opens the peer.
WV_DEVICE bool may_note(const Call& call, uint32_t peer) {
  return call.handle.aborted == 0 || call.is_open(peer);
}

/// Records that this call was not sent to `peer`, for a later word to it. The record covers all
/// calls of the set since the last one of which the peer has learned.
WV_DEVICE_COLD void mark_skipped(const Call& call, uint32_t peer) {
  MoePeer& state = call.layer.peers[peer];
  const uint32_t i = call.index;
  const uint32_t skip_end =
      state.skip_first[i] + SETS * state.skip_number[i];  // first call after the run
  const uint32_t last = state.last[i];
  const bool sent = has_sent(call, state);
  const bool extends = state.skip_number[i] != 0 && (!sent || newer(skip_end, last));
  if (!extends) {
    const uint32_t joined = call.layer.joined;
    state.skip_first[i] = sent ? last + SETS : joined + (set_of(joined) == call.set() ? 0 : 1);
    state.skip_number[i] = 0;
  }
  uint32_t number = (call.call - state.skip_first[i]) / SETS + 1;
  if (number > RENEWAL / SETS) {
    state.skip_first[i] += SETS * (number - RENEWAL / SETS);
    number = RENEWAL / SETS;
  }
  state.skip_number[i] = number;
  // The last data that was sent needs no credit any more, so this rank forgets it. Otherwise its
  // number would look new if nothing were sent to the peer for very long.
  if (sent && has_released(call, peer, last)) state.sent &= ~(1u << i);
}

/// Writes words 1 to 3 of both signals of this set to `peer` again. One thread.
WV_DEVICE_COLD void renew(const Call& call, uint32_t peer) {
  if (!may_note(call, peer)) return;
  MoePeer& state = call.layer.peers[peer];
  for (uint32_t kind = 0; kind < SIGNALS_PER_PEER / SETS; ++kind) {
    const Call one = call.words_of(kind, call.call);
    const uint32_t skip_end = state.skip_first[one.index] + SETS * state.skip_number[one.index];
    // If data was sent after the run of skipped calls, the data word says all that the run does.
    if (has_sent(one, state) && !newer(skip_end, state.last[one.index])) {
      state.skip_number[one.index] = 0;
    }
    PeerQp qp;
    if (one.open(peer, &qp) == Status::ok) control(one, qp, peer, PostOptions{for_own_hca(call)});
  }
}

}  // namespace wv::moe
