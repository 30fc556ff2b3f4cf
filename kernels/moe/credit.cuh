// What the sender keeps of a peer: credits, suspicion, calls that were not sent, staging rows in
// flight.
//
// Slots are reused by credit: data goes into a set only when the peer has closed the last call
// whose data was sent there. Before a rank waits for a credit it tells its own to everybody, else
// two ranks that send the next dispatch before they receive this one wait for each other. Who gives
// no credit in time gets no data but a word that says so.
#pragma once

#include "order.cuh"

namespace wv::moe {

/// What this rank has released, as a credit word.
WV_DEVICE uint64_t own_credit(const MoeContext& moe) {
  return pack(moe.released[KIND_DISPATCH], moe.released[KIND_COMBINE]);
}

/// The newest call of this kind that `peer` has closed: the maximum over its signals, which may
/// arrive in any order.
WV_DEVICE uint32_t released_by(const Call& call, uint32_t peer) {
  uint32_t newest = 0;
  for (uint32_t i = 0; i < SIGNALS_PER_PEER; ++i) {
    const uint64_t credit = platform::load_relaxed_sys(&call.signal_from(peer, i)->credit);
    const uint32_t closed = released(credit, call.kind);
    if (newer(closed, newest)) newest = closed;
  }
  return newest;
}

/// Whether data of this call may go into the slots at `peer`.
WV_DEVICE bool has_credit(const Call& call, uint32_t peer) {
  const uint32_t last = call.moe.peers[peer].last[call.index];
  return last == 0 || !newer(last, released_by(call, peer));
}

/// All that a peer's signals have said so far, as one number that grows with every new word.
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

/// `peer` was waited for in vain: from now on it is looked at but not waited for, until it says
/// something new.
WV_DEVICE_COLD void suspect(const Call& call, uint32_t peer) {
  MoePeer& state = call.moe.peers[peer];
  state.seen = heard(call, peer);
  state.suspect = 1;
}

/// Whether `peer` is waited for; a new word from a suspect ends the suspicion.
WV_DEVICE bool trusted(const Call& call, uint32_t peer) {
  MoePeer& state = call.moe.peers[peer];
  if (state.suspect != 0 && heard(call, peer) != state.seen) state.suspect = 0;
  return state.suspect == 0;
}

/// When a wait for `peer` ends: at once for a suspect, which gets a look only.
WV_DEVICE Deadline patience(const Call& call, uint32_t peer) {
  return trusted(call, peer) ? call.deadline : Deadline{0};
}

/// Waits until the staging rows of this kind and set that go to `peer` may change: what reads them
/// is done, or their QP is in error.
WV_DEVICE Status settle_staging(const Call& call, uint32_t peer) {
  const Ticket ticket{call.moe.peers[peer].ticket[call.index]};
  PeerQp qp;
  if (ticket.index == 0) return Status::ok;
  if (const Status status = call.open(peer, &qp); status != Status::ok) return status;
  const Status status = wait(Thread{}, qp, ticket, call.deadline);
  return status == Status::timeout || status == Status::aborted ? status : Status::ok;
}

/// Writes what this rank has released, and which calls of this set it has not sent. Needs no order
/// with data. One thread.
WV_DEVICE_COLD Status control(const Call& call, const PeerQp& qp, uint32_t peer) {
  MoePeer& state = call.moe.peers[peer];
  const uint64_t credit = own_credit(call.moe);
  const ControlSignal words{credit,
                            pack(state.skip_first[call.index], state.skip_number[call.index]),
                            pack(call.call, 0)};
  RemoteAddr to;
  const PeerWindow window = load_peer(call.team, call.moe.signals, peer, call.rail());
  constexpr uint64_t AT = offsetof(MoeSignal, credit);
  if (!window.at(call.signal_offset() + AT, sizeof words, &to)) return Status::invalid;
  const Posted posted = write_control(call, qp, window, to, words);
  if (posted.status == Status::ok) state.told = credit;
  return posted.status;
}

/// Puts this call among those that `peer` is told were not sent, with all calls of the set since
/// the last one that it was told of.
WV_DEVICE_COLD void mark_skipped(const Call& call, uint32_t peer) {
  MoePeer& state = call.moe.peers[peer];
  const uint32_t i = call.index;
  const uint32_t skip_end =
      state.skip_first[i] + 2 * state.skip_number[i];  // first call behind the run
  const uint32_t last = state.last[i];
  const bool extends = state.skip_number[i] != 0 && newer(skip_end, last);
  if (!extends) {
    state.skip_first[i] = last != 0 ? last + 2 : 2 - set_of(call.call);
    state.skip_number[i] = 0;
  }
  state.skip_number[i] = (call.call - state.skip_first[i]) / 2 + 1;
}

}  // namespace wv::moe
