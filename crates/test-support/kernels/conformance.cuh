// One scope carries out one operation a number of times on a QP of any kind. The table of the
// conformance and failure tests names operation and kind. A QP with one collapsed CQE runs the code
// of its exact kind. With a wide CQ one way to ring per sharing has exact code. The other kinds run
// the code that looks at the mode bits (`AnyQp`). All atomics, immediates and `wait_any` run
// `AnyQp`, too: they build on the same posting and polling, and every instance costs build time.
#pragma once

#include <warpverbs/amo.cuh>
#include <warpverbs/get.cuh>
#include <warpverbs/imm.cuh>
#include <warpverbs/quiet.cuh>

#include "abi.h"

namespace wv_test {

using wv::ConformanceEnd;
using wv::ConformanceParams;
using wv::Posted;
using wv::PutItem;
using wv::Status;

template <uint32_t N>
struct Words {
  uint32_t word[N];
};

/// The value of `N` words that item `k` puts from registers: word i is k << 8 | i + 1.
template <uint32_t N>
WV_DEVICE Words<N> words_of(uint64_t k) {
  Words<N> value;
  for (uint32_t i = 0; i < N; ++i) value.word[i] = static_cast<uint32_t>(k) << 8 | (i + 1);
  return value;
}

/// Where a thread is among the scopes of a kind.
struct Seat {
  uint32_t scope;    // of the grid
  uint32_t thread;   // of the scope
  uint32_t threads;  // of a scope
  uint32_t scopes;   // of the grid
};

/// Word `k` of 8 bytes of a source.
WV_DEVICE uint64_t source_word(uint64_t k) { return (k + 1) * 0x9e3779b97f4a7c15; }

template <class Q>
inline constexpr bool IS_ANY = false;
template <wv::Sharing S>
inline constexpr bool IS_ANY<wv::AnyQp<S>> = true;

template <class Q, class Scope>
struct Conformance {
  const ConformanceParams& p;
  Scope scope;
  Seat seat;
  Q qp;
  wv::PeerWindow peer;
  // Of this round:
  uint64_t number;
  bool active;
  PutItem item;
  wv::Put what;
  wv::RemoteAddr signal_word;
  wv::PostOptions options;

  WV_DEVICE bool asks(uint32_t bit) const { return (p.options & bit) != 0; }

  // False: an item is outside the window.
  WV_DEVICE bool aim(uint32_t round) {
    number = (uint64_t{round} * seat.scopes + seat.scope) * seat.threads + seat.thread;
    active = number < p.count;
    item = active ? p.items[number] : PutItem{};
    what = {{}, {}, item.bytes};
    options = {wv::Deadline::in(p.deadline_ns), !asks(wv::CONFORMANCE_UNSIGNALLED),
               asks(wv::CONFORMANCE_TRY), asks(wv::CONFORMANCE_MORE)};
    const bool inside = peer.at(item.dst_offset, item.bytes, &what.dst) &&
                        wv::local_at(p.window, item.src_offset, item.bytes, &what.src) &&
                        peer.at(p.signal_offset + uint64_t{seat.scope} * 8, 8, &signal_word);
    return !scope.any(!inside);
  }

  WV_DEVICE Posted put_value() const {
    // All items of a list have the same length.
    switch (scope.broadcast(static_cast<uint32_t>(item.bytes))) {
      case 4:
        return wv::put_value(scope, qp, what.dst, words_of<1>(number), options, active);
      case 12:
        return wv::put_value(scope, qp, what.dst, words_of<3>(number), options, active);
      case 28:
        return wv::put_value(scope, qp, what.dst, words_of<7>(number), options, active);
      default:
        return {Status::invalid, {0}};
    }
  }

  WV_DEVICE Posted put_two() const {
    const auto half = static_cast<uint32_t>(item.bytes / 2);
    const wv::LocalAddr second{what.src.addr + half, what.src.lkey_be};
    const auto rest = static_cast<uint32_t>(item.bytes) - half;
    return wv::put_two(scope, qp, {what.dst, what.src, half, second, rest}, options, active);
  }

  WV_DEVICE Posted batch() const {
    return wv::detail::post(scope, qp, p.batch, options, [&](uint64_t index, bool last) {
      for (uint32_t k = seat.thread; k < p.batch; k += seat.threads) {
        const bool ce = last && k + 1 == p.batch;
        wv::wqe::write_nop(qp, index + k, wv::wqe::control(ce, false));
      }
    });
  }

  WV_DEVICE Posted post(uint32_t round) const {
    const uint64_t value = uint64_t{round} + 1;
    switch (p.operation) {
      case wv::CONFORMANCE_PUT:
        return wv::put(scope, qp, what, options, active);
      case wv::CONFORMANCE_NOBODY:
        return wv::put(scope, qp, what, options, false);
      case wv::CONFORMANCE_PUT_VALUE:
        return put_value();
      case wv::CONFORMANCE_PUT_SIGNAL:
        return wv::put_signal(scope, qp, what, signal_word, value, options, active);
      case wv::CONFORMANCE_GET:
        return wv::get(scope, qp, {what.src, what.dst, what.bytes}, options, active);
      case wv::CONFORMANCE_PUT_TWO:
        return put_two();
      case wv::CONFORMANCE_ADD: {
        const wv::Amo<uint64_t> add{what.dst, number + 1, 0, what.src};
        return wv::amo<wv::AmoOp::fetch_add>(scope, qp, add, options, active);
      }
      case wv::CONFORMANCE_SIGNAL_ADD:
        return wv::signal<wv::SignalOp::add>(scope, qp, signal_word, uint64_t{1}, options);
      case wv::CONFORMANCE_SIGNAL:
        return wv::signal(scope, qp, signal_word, value, options);
      case wv::CONFORMANCE_FLUSH:
        return wv::flush(scope, qp, options.deadline);
      case wv::CONFORMANCE_FENCE:
        return wv::fence(scope, qp, options);
      case wv::CONFORMANCE_BATCH:
        return batch();
      default:
        if constexpr (IS_ANY<Q>) return post_more();
        return nothing();
    }
  }

  WV_DEVICE Posted nothing() const { return {Status::ok, {p.ticket, asks(wv::CONFORMANCE_MORE)}}; }

  WV_DEVICE Posted post_more() const {
    switch (p.operation) {
      case wv::CONFORMANCE_AMO:
        return scope.broadcast(static_cast<uint32_t>(item.bytes)) == 8 ? amo_of<uint64_t>()
                                                                       : amo_of<uint32_t>();
      case wv::CONFORMANCE_PUT_IMM:
        return wv::put_imm(scope, qp, what, static_cast<uint32_t>(number), options, active);
      case wv::CONFORMANCE_TAKE_IMM:
        return take();
      default:
        return nothing();
    }
  }

  template <class T>
  WV_DEVICE Posted amo_of() const {
    switch (p.batch) {
      case 0:
        return amo_with<wv::AmoOp::fetch_add, T>();
      case 1:
        return amo_with<wv::AmoOp::compare_swap, T>();
      case 2:
        return amo_with<wv::AmoOp::swap, T>();
      case 3:
        return amo_with<wv::AmoOp::fetch_and, T>();
      case 4:
        return amo_with<wv::AmoOp::fetch_or, T>();
      case 5:
        return amo_with<wv::AmoOp::fetch_xor, T>();
      default:
        return {Status::invalid, {0}};
    }
  }

  // Every other compare_swap finds what it expects: each word at the peer holds the value of its
  // own offset.
  template <wv::AmoOp Op, class T>
  WV_DEVICE Posted amo_with() const {
    const uint64_t there = source_word(item.dst_offset / 8);
    const uint64_t expected = number % 2 == 0 ? there : ~there;
    const wv::Amo<T> word{what.dst, static_cast<T>(~number), static_cast<T>(expected), what.src};
    return wv::amo<Op>(scope, qp, word, options, active);
  }

  // Takes an immediate, the number of an item whose bytes must have arrived. Counts it in word
  // `imm` of the window.
  WV_DEVICE Posted take() const {
    uint32_t imm = 0;
    const Status status = options.try_only ? wv::try_imm(scope, qp, &imm)
                                           : wv::wait_imm(scope, qp, options.deadline, &imm);
    if (status != Status::ok) return {status, {0}};
    bool wrong = false;
    if (scope.leader()) {
      const PutItem told = p.items[imm];
      const auto* const words = reinterpret_cast<const uint64_t*>(p.window.base + told.dst_offset);
      for (uint64_t k = 0; k < told.bytes / 8; ++k) {
        wrong |= words[k] != source_word(told.src_offset / 8 + k);
      }
      wv::platform::add_relaxed(reinterpret_cast<uint64_t*>(p.window.base) + imm, uint64_t{1});
    }
    return {scope.any(wrong) ? Status::invalid : Status::ok, wv::Ticket::done()};
  }

  // Each of the last two tickets once, in whichever order. They may be the same.
  WV_DEVICE Status wait_both(wv::Ticket before, wv::Ticket last, wv::Deadline deadline) const {
    wv::Pending<Q> pending[2] = {{&qp, before}, {&qp, last}};
    for (uint32_t count = 2; count != 0; --count) {
      uint32_t which = count;
      const Status status = wv::wait_any(scope, pending, count, deadline, &which);
      if (status != Status::ok) return status;
      if (which >= count) return Status::invalid;
      pending[which] = pending[count - 1];
    }
    return Status::ok;
  }

  WV_DEVICE Status end(wv::Ticket before, wv::Ticket ticket) const {
    const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
    if constexpr (IS_ANY<Q>) {
      if (p.end == wv::CONFORMANCE_END_WAIT_ANY) return wait_both(before, ticket, deadline);
    }
    switch (p.end) {
      case wv::CONFORMANCE_END_FLUSH: {
        const Posted nop = wv::flush(scope, qp, deadline);
        if (nop.status != Status::ok) return nop.status;
        return wv::wait(scope, qp, nop.ticket, deadline);
      }
      case wv::CONFORMANCE_END_WAIT:
        return wv::wait(scope, qp, ticket, deadline);
      case wv::CONFORMANCE_END_WAIT_DATA:
        return wv::wait_data(scope, qp, ticket, deadline);
      case wv::CONFORMANCE_END_WAIT_SIGNAL: {
        uint64_t seen;
        const auto* const word = reinterpret_cast<const uint64_t*>(p.window.base + p.signal_offset);
        return wv::wait_word(
            scope, word, qp.watch(), deadline, [](uint64_t value) { return value != 0; }, &seen);
      }
      case wv::CONFORMANCE_END_QUIET:
        return wv::quiet(scope, qp, deadline);
      case wv::CONFORMANCE_END_TEST:
      case wv::CONFORMANCE_END_TEST_ONCE:
        for (;;) {
          const Status status = wv::test(scope, qp, ticket);
          if (status != Status::would_block || p.end == wv::CONFORMANCE_END_TEST_ONCE) {
            return status;
          }
          if (scope.any(deadline.passed())) return Status::timeout;
          wv::platform::pause();
        }
      default:
        return Status::ok;
    }
  }

  WV_DEVICE void run() {
    ConformanceEnd out{};
    wv::Ticket ticket{p.ticket, asks(wv::CONFORMANCE_MORE)};
    wv::Ticket before = ticket;
    out.posted = wv::open_qp(p.qp, &qp);
    peer = wv::load_peer(p.peer, p.window);
    for (uint32_t round = 0; out.posted == Status::ok && round < p.rounds; ++round) {
      if (!aim(round)) out.posted = Status::invalid;
      // The list has ended for this scope.
      if (out.posted != Status::ok || (p.count != 0 && !scope.any(active))) break;
      const uint64_t begin = wv::platform::now_ns();
      const Posted posted = post(round);
      out.post_ns = wv::platform::now_ns() - begin;
      out.posted = posted.status;
      if (posted.status != Status::ok) break;
      before = out.done == 0 ? posted.ticket : ticket;
      ticket = posted.ticket;
      ++out.done;
    }
    out.status = out.posted;
    if (out.posted == Status::ok || asks(wv::CONFORMANCE_END_ALWAYS)) {
      const uint64_t begin = wv::platform::now_ns();
      out.status = end(before, ticket);
      out.end_ns = wv::platform::now_ns() - begin;
    }
    out.ticket = ticket.index;
    out.held = ticket.held ? 1 : 0;
    if (scope.leader()) p.ends[seat.scope] = out;
  }
};

template <class Q, class Scope>
WV_DEVICE_COLD void conform(const ConformanceParams& p, Scope scope, Seat seat) {
  Conformance<Q, Scope> run{p, scope, seat, {}, {}, 0, false, {}, {}, {}, {}};
  run.run();
}

template <wv::Sharing S, wv::Doorbell D, class Scope>
WV_DEVICE void by_queues(const ConformanceParams& p, Scope scope, Seat seat) {
  if ((p.mode & wv::MODE_HOST_QUEUES) != 0) {
    conform<wv::Qp<S, D, wv::Queues::host>>(p, scope, seat);
  } else {
    conform<wv::Qp<S, D, wv::Queues::device>>(p, scope, seat);
  }
}

/// The QP with a wide CQ that has code of its own.
template <wv::Sharing S>
using WideQp = wv::Qp<S,
                      S == wv::Sharing::shared      ? wv::Doorbell::record
                      : S == wv::Sharing::exclusive ? wv::Doorbell::no_record
                                                    : wv::Doorbell::mailbox,
                      wv::Queues::device, wv::CqKind::wide>;

/// Runs the code for a QP of `p.mode`; `open_qp` checks that the QP is one.
template <wv::Sharing S, class Scope>
WV_DEVICE void by_mode(const ConformanceParams& p, Scope scope, Seat seat) {
  if (p.operation >= wv::CONFORMANCE_AMO || p.end == wv::CONFORMANCE_END_WAIT_ANY) {
    conform<wv::AnyQp<S>>(p, scope, seat);
  } else if (WideQp<S>::accepts(p.mode)) {
    conform<WideQp<S>>(p, scope, seat);
  } else if ((p.mode & wv::MODE_WIDE_CQ) != 0) {
    conform<wv::AnyQp<S>>(p, scope, seat);
  } else if ((p.mode & wv::MODE_NO_RECORD) != 0) {
    by_queues<S, wv::Doorbell::no_record>(p, scope, seat);
  } else if ((p.mode & wv::MODE_MAILBOX) != 0) {
    by_queues<S, wv::Doorbell::mailbox>(p, scope, seat);
  } else {
    by_queues<S, wv::Doorbell::record>(p, scope, seat);
  }
}

WV_DEVICE Seat thread_seat() { return {wv::thread_in_grid(), 0, 1, wv::grid_threads()}; }
WV_DEVICE Seat warp_seat() { return {wv::warp_in_grid(), wv::lane(), 32, wv::grid_warps()}; }
WV_DEVICE Seat block_seat() {
  return {wv::block_in_grid(), wv::thread_in_block(), wv::block_threads(), wv::grid_blocks()};
}

}  // namespace wv_test
