// The ways in which the words of a signal get to a peer. Each puts them after the data that they
// stand for, and after earlier words on the same QP. The team has chosen one of three strategies
// for all ranks, by the promises of the devices (`MoeContext::order`). A peer whose memory can be
// reached gets stores instead.
//
// A peer sees the words of one QP in the order in which they were sent. A credit that an older one
// overtook would be lost.
//
// Every way of posting stands here once, as a function of its own, and so does every strategy: a
// kernel calls one of three.
#pragma once

#include <warpverbs/amo.cuh>
#include <warpverbs/detail/direct.cuh>

#include "call.cuh"

namespace wv::moe {

/// Slots and signals at a peer, as a phase reaches both: by the QP that carries its kind and set,
/// or by stores.
struct There {
  PeerWindow slots, signals;
  /// Whether this rank stores into the peer's memory itself. Never into one of the two only: words
  /// keep after data, and all words of a peer in their order.
  bool direct;

  WV_DEVICE There(const Call& call, uint32_t peer)
      : slots(load_peer(call.team, call.moe.slots, peer, call.rail())),
        signals(load_peer(call.team, call.moe.signals, peer, call.rail())),
        direct(slots.direct() && signals.direct()) {
    if (!direct) return;
    slots = load_direct(call.team, call.moe.slots, peer, slots);
    signals = load_direct(call.team, call.moe.signals, peer, signals);
  }
};

/// What goes to a peer after the rows that have been posted already: the last rows, then the data
/// signal. The same for all lanes, but for `rows` and `active`.
struct Tail {
  Put rows;
  /// This lane has rows.
  bool active;
  /// Some lane has.
  bool any;
  RemoteAddr signal;
  DataSignal words;
};

/// When a wait of a send phase for this rank's own HCA ends, for ring space or for rows that must
/// be there before their signal: the phase does not stand longer without a beat. What an HCA has
/// not carried for so long is for a peer that does not take it.
WV_DEVICE Deadline for_own_hca(const Call& call) {
  return Deadline::in(call.handle.deadline_ns / 4);
}

/// Puts one row for each active lane. Whole warp.
WV_DEVICE_ONCE Posted put_rows(const PeerQp& qp, const Put& rows, const PostOptions& options,
                               bool active) {
  return wv::put(Warp{}, qp, rows, options, active);
}

/// Writes the words of a data signal. Whole warp.
WV_DEVICE_ONCE Posted write_data(const PeerQp& qp, RemoteAddr to, const DataSignal& words,
                                 const PostOptions& options) {
  return signal(Warp{}, qp, to, words, options);
}

/// Writes the words of a control signal. One thread.
WV_DEVICE_ONCE Posted write_control(const PeerQp& qp, RemoteAddr to, const ControlSignal& words,
                                    const PostOptions& options) {
  return signal(Thread{}, qp, to, words, options);
}

/// The device places writes in the order of one QP: words are inline writes after the data.
///
/// Needs: RC in order (IBTA), the signals' keys strict, signals and rows in the same memory.
struct InlineWrite {
  /// Whole warp.
  WV_DEVICE_ONCE static Posted data(const Call& call, const PeerQp& qp, const Tail& tail) {
    const PostOptions options{for_own_hca(call)};
    if (!tail.any) return write_data(qp, tail.signal, tail.words, options);
    return put_signal(Warp{}, qp, tail.rows, tail.signal, tail.words, options, tail.active);
  }
  /// One thread.
  WV_DEVICE static Posted control(const Call&, const PeerQp& qp, RemoteAddr to,
                                  const ControlSignal& words, const PostOptions& options) {
    return write_control(qp, to, words, options);
  }
};

/// The device keeps atomics, but not writes, after everything that was posted before. So words are
/// unconditional swaps. Each is seen whole, and may be seen twice without harm.
///
/// Needs masked atomics of 8 bytes.
struct Swap {
  /// Whole warp: lane 0 the credit, lane 1 the data word after it.
  WV_DEVICE_ONCE static Posted data(const Call& call, const PeerQp& qp, const Tail& tail) {
    if (tail.any) {
      PostOptions held{for_own_hca(call), false};
      held.more = true;  // the words ring
      const Posted posted = put_rows(qp, tail.rows, held, tail.active);
      if (posted.status != Status::ok) return posted;
    }
    const bool first = lane() == 0;
    const Amo<uint64_t> word{word_at(tail.signal, first ? DataSignal::CREDIT : DataSignal::DATA),
                             first ? tail.words.credit : tail.words.data};
    return amo<AmoOp::swap>(Warp{}, qp, word, {for_own_hca(call)}, lane() < 2);
  }
  /// One thread.
  WV_DEVICE_ONCE static Posted control(const Call&, const PeerQp& qp, RemoteAddr to,
                                       const ControlSignal& words, const PostOptions& options) {
    PostOptions held = options;
    held.signalled = false;
    held.more = true;
    Posted posted = swap(qp, to, ControlSignal::CREDIT, words.credit, held);
    if (posted.status != Status::ok) return posted;
    posted = swap(qp, to, ControlSignal::NOT_SENT, words.not_sent, held);
    if (posted.status != Status::ok) return posted;
    return swap(qp, to, ControlSignal::ALIVE, words.alive, options);
  }

 private:
  WV_DEVICE static RemoteAddr word_at(RemoteAddr to, uint64_t offset) {
    return {to.addr + offset, to.rkey_be};
  }
  WV_DEVICE_ONCE static Posted swap(const PeerQp& qp, RemoteAddr to, uint64_t offset, uint64_t word,
                                    const PostOptions& options) {
    return amo<AmoOp::swap>(Thread{}, qp, Amo<uint64_t>{word_at(to, offset), word}, options);
  }
};

/// Data is in memory when its WQE has completed. So everything on the QP has completed before a
/// word is posted. A round trip for each signal.
struct Flush {
  /// Whole warp.
  WV_DEVICE_ONCE static Posted data(const Call& call, const PeerQp& qp, const Tail& tail) {
    constexpr Warp warp;
    const Posted rows = tail.any ? put_rows(qp, tail.rows, {for_own_hca(call)}, tail.active)
                                 : flush(warp, qp, for_own_hca(call));
    if (rows.status != Status::ok) return rows;
    // A timeout leaves the ticket: the rows may still arrive, so their staging is in use.
    const Status status = wait(warp, qp, rows.ticket, for_own_hca(call));
    if (status != Status::ok) return {status, rows.ticket};
    return write_data(qp, tail.signal, tail.words, {for_own_hca(call)});
  }
  /// One thread. It waits a little also at the end of a phase. A peer that is only slow has long
  /// taken the words that were sent to it.
  WV_DEVICE_ONCE static Posted control(const Call& call, const PeerQp& qp, RemoteAddr to,
                                       const ControlSignal& words, const PostOptions& options) {
    Deadline deadline = Deadline::in(call.handle.deadline_ns / 32);
    if (deadline.at_ns < call.deadline.at_ns) deadline = for_own_hca(call);
    if (options.try_only) deadline = {0};  // what can be left out is, rather than waited for
    const Status status = quiet(Thread{}, qp, deadline);
    if (status != Status::ok) return {status, {0}};
    return write_control(qp, to, words, {deadline});
  }
};

/// Posts the tail as the layer's strategy has it. Whole warp.
WV_DEVICE Posted post_tail(const Call& call, const PeerQp& qp, const Tail& tail) {
  switch (call.moe.order) {
    case MoeOrder::swap:
      return Swap::data(call, qp, tail);
    case MoeOrder::flush:
      return Flush::data(call, qp, tail);
    case MoeOrder::inline_write:
    default:
      return InlineWrite::data(call, qp, tail);
  }
}

/// Writes words 1 to 3 of the signal at `to` of a peer, or stores them. One thread.
WV_DEVICE Posted post_control(const Call& call, const PeerQp& qp, const There& there, RemoteAddr to,
                              const ControlSignal& words, const PostOptions& options) {
  if (there.direct) return direct::signal<false>(Thread{}, to.addr, words);
  switch (call.moe.order) {
    case MoeOrder::swap:
      return Swap::control(call, qp, to, words, options);
    case MoeOrder::flush:
      return Flush::control(call, qp, to, words, options);
    case MoeOrder::inline_write:
    default:
      return InlineWrite::control(call, qp, to, words, options);
  }
}

}  // namespace wv::moe
