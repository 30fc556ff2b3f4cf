// Carries out lists of operations: every operation of the library, at any scope, by QP or directly.
// What is to be done is in memory, so that a test can write any program and compare with its own
// model.
#pragma once

#include <warpverbs/imm.cuh>
#include <warpverbs/path.cuh>
#include <warpverbs/quiet.cuh>

#include "abi.h"

namespace wv::testing {

template <uint32_t WORDS>
struct Words {
  uint32_t words[WORDS];
};

/// Everything that one scope needs to carry out its steps.
template <class Scope, class Q>
struct Program {
  Scope scope;
  const OpsParams& p;
  Path<Q> path;
  OpStep step;
  OpItem item;
  bool active;
  PostOptions options;

  WV_DEVICE Program(Scope scope, const OpsParams& params) : scope(scope), p(params) {}

  WV_DEVICE bool asks(uint32_t bit) const { return (step.options & bit) != 0; }
  WV_DEVICE RemoteAddr remote(uint64_t offset) const {
    return {path.peer.base + offset, path.peer.rkey_be};
  }
  WV_DEVICE LocalAddr local(uint64_t offset) const {
    return {path.local.base + offset, path.local.lkey_be};
  }
  WV_DEVICE Put what() const { return {remote(item.remote), local(item.local), item.bytes}; }

  template <uint32_t WORDS>
  WV_DEVICE Words<WORDS> words() const {
    Words<WORDS> out;
    for (uint32_t k = 0; k < WORDS; ++k) {
      out.words[k] = static_cast<uint32_t>(item.value) + k;
    }
    return out;
  }

  WV_DEVICE Posted value() const {
    const RemoteAddr dst = remote(item.remote);
    switch (step.bytes) {
      case 4:
        return put_value(scope, path, dst, words<1>(), options, active);
      case 8:
        return put_value(scope, path, dst, words<2>(), options, active);
      case 12:
        return put_value(scope, path, dst, words<3>(), options, active);
      case 16:
        return put_value(scope, path, dst, words<4>(), options, active);
      case 24:
        return put_value(scope, path, dst, words<6>(), options, active);
      case 28:
        return put_value(scope, path, dst, words<7>(), options, active);
      default:
        return {Status::invalid, {0}};
    }
  }

  template <SignalOp Op, class T>
  WV_DEVICE Posted signal_with(bool data) const {
    const RemoteAddr dst = remote(item.signal);
    T value;
    memcpy(&value, &item.value, sizeof value);
    if (data) return put_signal<Op>(scope, path, what(), dst, value, options, active);
    return wv::signal<Op>(scope, path, dst, value, options);
  }

  WV_DEVICE Posted any_signal(bool data) const {
    const bool add = asks(OPS_ADD), wide = step.bytes == 8;
    if (add && wide) return signal_with<SignalOp::add, uint64_t>(data);
    if (add) return signal_with<SignalOp::add, uint32_t>(data);
    if (wide) return signal_with<SignalOp::write, uint64_t>(data);
    return signal_with<SignalOp::write, uint32_t>(data);
  }

  template <AmoOp Op, class T>
  WV_DEVICE Posted amo_with() const {
    const LocalAddr result = item.local == ~uint64_t{0} ? LocalAddr{} : local(item.local);
    const Amo<T> what{remote(item.remote), static_cast<T>(item.value), static_cast<T>(item.compare),
                      result};
    return amo<Op>(scope, path, what, options, active);
  }

  template <class T>
  WV_DEVICE Posted any_amo() const {
    switch (step.amo) {
      case 0:
        return amo_with<AmoOp::fetch_add, T>();
      case 1:
        return amo_with<AmoOp::compare_swap, T>();
      case 2:
        return amo_with<AmoOp::swap, T>();
      case 3:
        return amo_with<AmoOp::fetch_and, T>();
      case 4:
        return amo_with<AmoOp::fetch_or, T>();
      case 5:
        return amo_with<AmoOp::fetch_xor, T>();
      default:
        return {Status::invalid, {0}};
    }
  }

  WV_DEVICE Posted two() const {
    const PutTwo two{remote(item.remote), local(item.local), static_cast<uint32_t>(item.bytes),
                     local(item.second), static_cast<uint32_t>(item.second_bytes)};
    return put_two(scope, path.qp, two, options, active);
  }

  WV_DEVICE Posted post(uint32_t* imm) {
    const auto only = [](Status status) { return Posted{status, Ticket::done()}; };
    switch (step.kind) {
      case OpKind::put:
        return put(scope, path, what(), options, active);
      case OpKind::put_two:
        return two();
      case OpKind::put_value:
        return value();
      case OpKind::signal:
        return any_signal(false);
      case OpKind::put_signal:
        return any_signal(true);
      case OpKind::get: {
        const Get get{local(item.local), remote(item.remote), item.bytes};
        return wv::get(scope, path, get, options, active);
      }
      case OpKind::put_imm:
        return put_imm(scope, path.qp, what(), static_cast<uint32_t>(item.value), options, active);
      case OpKind::amo:
        return step.bytes == 8 ? any_amo<uint64_t>() : any_amo<uint32_t>();
      case OpKind::flush:
        return flush(scope, path.qp, options.deadline);
      case OpKind::fence:
        return fence(scope, path.qp, options);
      case OpKind::quiet:
        return only(quiet(scope, path, options.deadline));
      case OpKind::wait_imm:
        if (options.try_only) return only(try_imm(scope, path.qp, imm));
        return only(wait_imm(scope, path.qp, options.deadline, imm));
      default:
        return only(Status::invalid);
    }
  }

  /// The steps of unit number `unit`, of which this is thread number `thread`.
  WV_DEVICE void run(uint64_t unit, uint32_t thread) {
    path.peer = load_peer(p.peer, p.window);
    path.local = p.window;
    path.direct = (path.peer.rail_life & PEER_DIRECT) != 0;
    const Status opened = open_qp(p.qp, &path.qp);
    for (uint64_t k = 0; k < p.steps_per_unit; ++k) {
      const uint64_t place = unit * p.steps_per_unit + k;
      step = p.steps[place];
      active = thread < step.count;
      item = active ? p.items[step.first + thread] : OpItem{};
      options = {Deadline::in(p.deadline_ns), asks(OPS_SIGNALLED), asks(OPS_TRY), asks(OPS_MORE),
                 asks(OPS_FENCE)};
      OpResult result{};
      Posted posted{opened, {0}};
      if (opened == Status::ok) posted = post(&result.imm);
      result.posted = posted.status;
      result.ticket = posted.ticket.index;
      result.waited = posted.status;
      if (posted.status == Status::ok && asks(OPS_WAIT)) {
        result.waited = wait(scope, path, posted.ticket, options.deadline);
      }
      if (posted.status == Status::ok && asks(OPS_WAIT_DATA)) {
        result.waited = wait_data(scope, path, posted.ticket, options.deadline);
        number(result.waited);
      }
      if (scope.leader()) p.results[place] = result;
    }
  }

  /// Brings the old value of an atomic into the byte order of numbers, in its place: tests read it
  /// from that place.
  WV_DEVICE void number(Status waited) const {
    if (waited != Status::ok || !active || item.local == ~uint64_t{0}) return;
    if (step.kind != OpKind::amo) return;
    const uint64_t addr = local(item.local).addr;
    if (step.bytes == 8) {
      auto* const word = reinterpret_cast<uint64_t*>(addr);
      *word = amo_result(path, word);
    } else {
      auto* const word = reinterpret_cast<uint32_t*>(addr);
      *word = amo_result(path, word);
    }
  }
};

}  // namespace wv::testing
