// The ways in which the words of a signal get to a peer. Each way puts the words after their data
// and after earlier words on the same QP. The team has chosen one of three strategies for all
// ranks, by what the devices guarantee (`LayerContext::order`). If this rank can reach the peer's
// memory, it stores the words instead.
//
// A peer must see the words of one QP in the order in which they were sent: an older credit that
// lands later would overwrite a newer one.
//
// Each strategy and each way of posting is one function, which a kernel contains once.
#pragma once

#include <warpverbs/amo.cuh>
#include <warpverbs/detail/direct.cuh>

#include "call.cuh"

namespace wv::moe {

/// Data and signals at a peer as a phase reaches them: either both by the QP that carries its kind
/// and set, or both by stores.
struct There {
  PeerWindow data, signals;
  /// True if this rank stores into the peer's memory itself. It stores into both windows or into
  /// neither: words must stay after their data, and all words to a peer in their order.
  bool direct;

  WV_DEVICE There(const Call& call, uint32_t peer)
      : data(load_peer(call.team, call.layer.data, peer, call.rail())),
        signals(load_peer(call.team, call.layer.signals, peer, call.rail())),
        direct(data.direct() && signals.direct()) {
    if (!direct) return;
    data = load_direct(call.team, call.layer.data, peer, data);
    signals = load_direct(call.team, call.layer.signals, peer, signals);
  }
};

/// What goes to a peer after the rows that have been posted already: the last rows, then the data
/// signal. All lanes hold equal values, except for `rows` and `active`.
struct Tail {
  Put rows;
  /// This lane has rows.
  bool active;
  /// At least one lane has rows.
  bool any;
  RemoteAddr signal;
  DataSignal words;
};

/// Returns when a send phase stops waiting for this rank's own HCA, either for ring space or for
/// rows that must arrive before their signal. A longer wait would delay the beats of this rank.
/// Work that an HCA has not carried by then goes to a peer that does not take it.
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

/// The strategy for a device that places the writes of one QP in order: the words are inline writes
/// after the data.
///
/// Needs RC in order (IBTA), strict keys for the signals, and signals and rows in the same memory.
struct InlineWrite {
  /// Posts the tail of a data signal. Whole warp.
  WV_DEVICE_ONCE static Posted data(const Call& call, const PeerQp& qp, const Tail& tail) {
    const PostOptions options{for_own_hca(call)};
    if (!tail.any) return write_data(qp, tail.signal, tail.words, options);
    return put_signal(Warp{}, qp, tail.rows, tail.signal, tail.words, options, tail.active);
  }
  /// Posts the words of a control signal. One thread.
  WV_DEVICE static Posted control(const Call&, const PeerQp& qp, RemoteAddr to,
                                  const ControlSignal& words, const PostOptions& options) {
    return write_control(qp, to, words, options);
  }
};

/// The strategy for a device that keeps atomics, but not writes, after everything that was posted
/// before. The words are unconditional swaps. The peer sees each word whole; if it sees a word
/// twice, that does no harm.
///
/// Needs masked atomics of 8 bytes.
struct Swap {
  /// Posts the tail of a data signal: lane 0 the credit, lane 1 the data word after it. Whole warp.
  WV_DEVICE_ONCE static Posted data(const Call& call, const PeerQp& qp, const Tail& tail) {
    if (tail.any) {
      PostOptions held{for_own_hca(call), false};
      held.more = true;  // the doorbell of the words covers the rows
      const Posted posted = put_rows(qp, tail.rows, held, tail.active);
      if (posted.status != Status::ok) return posted;
    }
    const bool first = lane() == 0;
    const Amo<uint64_t> word{word_at(tail.signal, first ? DataSignal::CREDIT : DataSignal::DATA),
                             first ? tail.words.credit : tail.words.data};
    return amo<AmoOp::swap>(Warp{}, qp, word, {for_own_hca(call)}, lane() < 2);
  }
  /// Posts the words of a control signal. One thread.
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

/// The strategy for any device. Data is in memory when its WQE has completed, so everything on the
/// QP completes before a word is posted. Each signal costs a round trip.
struct Flush {
  /// Posts the tail of a data signal. Whole warp.
  WV_DEVICE_ONCE static Posted data(const Call& call, const PeerQp& qp, const Tail& tail) {
    constexpr Warp warp;
    const Posted rows = tail.any ? put_rows(qp, tail.rows, {for_own_hca(call)}, tail.active)
                                 : flush(warp, qp, for_own_hca(call));
    if (rows.status != Status::ok) return rows;
    // After a timeout the ticket is kept: the rows may still arrive, so their staging memory is in
    // use.
    const Status status = wait(warp, qp, rows.ticket, for_own_hca(call));
    if (status != Status::ok) return {status, rows.ticket};
    return write_data(qp, tail.signal, tail.words, {for_own_hca(call)});
  }
  /// Posts the words of a control signal. One thread. At the end of a phase, too, it waits for a
  /// short time. A peer that is only slow has long taken the words that were sent to it.
  WV_DEVICE_ONCE static Posted control(const Call& call, const PeerQp& qp, RemoteAddr to,
                                       const ControlSignal& words, const PostOptions& options) {
    Deadline deadline = Deadline::in(call.handle.deadline_ns / 32);
    if (deadline.at_ns < call.deadline.at_ns) deadline = for_own_hca(call);
    if (options.try_only) deadline = {0};  // words that may be left out are not waited for
    const Status status = quiet(Thread{}, qp, deadline);
    if (status != Status::ok) return {status, {0}};
    return write_control(qp, to, words, {deadline});
  }
};

/// Posts the tail by the strategy of the layer. Whole warp.
WV_DEVICE Posted post_tail(const Call& call, const PeerQp& qp, const Tail& tail) {
  switch (call.layer.order) {
    case MoeOrder::swap:
      return Swap::data(call, qp, tail);
    case MoeOrder::flush:
      return Flush::data(call, qp, tail);
    case MoeOrder::inline_write:
    default:
      return InlineWrite::data(call, qp, tail);
  }
}

/// Posts or stores words 1 to 3 of the signal at `to` of a peer. One thread.
WV_DEVICE Posted post_control(const Call& call, const PeerQp& qp, const There& there, RemoteAddr to,
                              const ControlSignal& words, const PostOptions& options) {
  if (there.direct) return direct::signal<false>(Thread{}, to.addr, words);
  switch (call.layer.order) {
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
