// A path: how this rank reaches one window at one peer, decided once. A path uses a QP, or is
// direct if this rank can load from and store to the peer's memory.
//
// The operations are those of put.cuh, get.cuh, amo.cuh and wait.cuh, with a Path in place of the
// QP. On a direct path the calling threads move the bytes themselves. Nothing is posted, deadline
// and ring options have no effect, and the ticket is `Ticket::done()`. The guarantees are those of
// a QP:
//
// - a signal is seen after the data that its path carried before it, since it is stored after a
//   release fence of system scope;
// - after `wait` the bytes are at the peer, after `wait_data` fetched bytes may be read;
// - an atomic is atomic against atomics of direct paths, but against the NIC's only as far as PCIe
//   allows. All ranks that share a word should reach it in the same way.
#pragma once

#include "amo.cuh"
#include "detail/direct.cuh"
#include "get.cuh"
#include "put.cuh"
#include "wait.cuh"

namespace wv {

/// A way to one window at one peer. Do not keep a path across calls or guards: a rejoin changes it.
template <class Q = AnyQp<Sharing::shared>>
struct Path {
  /// The window at the peer. On a direct path its base is an address for this rank's kernels.
  PeerWindow peer;
  /// The window at this rank, with the key of the path's rail.
  Window local;
  /// The QP; not opened on a direct path.
  Q qp;
  bool direct;

  /// Names the `length` bytes at `offset` of the window at the peer, or at this rank. Returns false
  /// if they are not all inside the window.
  WV_DEVICE bool at(uint64_t offset, uint64_t length, RemoteAddr* out) const {
    return peer.at(offset, length, out);
  }
  WV_DEVICE bool at(uint64_t offset, uint64_t length, LocalAddr* out) const {
    return local_at(local, offset, length, out);
  }
};

/// Opens the path of QP number `i` to `window` at `peer`, with one look at the peer's entry.
///
/// @return `invalid` if the team has no such peer, window or QP, or the QP is of another kind than
/// Q.
template <class Q>
WV_DEVICE Status open_path(const TeamContext& team, uint32_t peer, uint32_t i, const Window& window,
                           Path<Q>* out) {
  out->peer = load_peer(team, window, peer, qp_rail(team, i));
  out->direct = out->peer.direct();
  out->local = window;
  if (!out->peer.present()) return Status::invalid;
  if (out->direct) {
    out->peer = load_direct(team, window, peer, out->peer);
    return out->peer.present() ? Status::ok : Status::invalid;
  }
  out->local = rail_window(team, window, out->peer);
  return open_qp(peer_qp(team, peer, i), &out->qp);
}

namespace detail {

/// Moves the bytes of a Put or a Get on a direct path.
template <class Scope, class What>
WV_DEVICE Posted move(Scope scope, const What& what, bool active) {
  return direct::transfer(scope, what.dst.addr, what.src.addr, what.bytes, active);
}

}  // namespace detail

/// As `put` of a QP.
template <class Scope, class Q>
WV_DEVICE Posted put(Scope scope, const Path<Q>& path, const Put& what, const PostOptions& options,
                     bool active = true) {
  return path.direct ? detail::move(scope, what, active)
                     : put(scope, path.qp, what, options, active);
}

/// As `get` of a QP.
template <class Scope, class Q>
WV_DEVICE Posted get(Scope scope, const Path<Q>& path, const Get& what, const PostOptions& options,
                     bool active = true) {
  return path.direct ? detail::move(scope, what, active)
                     : get(scope, path.qp, what, options, active);
}

/// As `put_value` of a QP. A word of 4 bytes, or of 8 at a boundary of 8, is stored whole.
template <class Scope, class Q, class T>
WV_DEVICE Posted put_value(Scope scope, const Path<Q>& path, RemoteAddr dst, const T& value,
                           const PostOptions& options, bool active = true) {
  if (!path.direct) return put_value(scope, path.qp, dst, value, options, active);
  if (!scope.any(active)) return {Status::invalid, {0}};
  if (active) direct::store(dst.addr, wqe::payload(value));
  scope.sync();
  return {Status::ok, Ticket::done()};
}

/// As `signal` of a QP.
template <SignalOp Op = SignalOp::write, class Scope, class Q, class T>
WV_DEVICE Posted signal(Scope scope, const Path<Q>& path, RemoteAddr dst, const T& value,
                        const PostOptions& options) {
  if (!path.direct) return signal<Op>(scope, path.qp, dst, value, options);
  return direct::signal<Op == SignalOp::add>(scope, dst.addr, value);
}

/// As `put_signal` of a QP.
template <SignalOp Op = SignalOp::write, class Scope, class Q, class T>
WV_DEVICE Posted put_signal(Scope scope, const Path<Q>& path, const Put& what,
                            RemoteAddr signal_dst, const T& value, const PostOptions& options,
                            bool active = true) {
  if (!path.direct) {
    return put_signal<Op>(scope, path.qp, what, signal_dst, value, options, active);
  }
  const bool bad = Op == SignalOp::add && scope.leader() && signal_dst.addr % sizeof(T) != 0;
  if (scope.any(bad)) return {Status::invalid, {0}};
  const Posted put = detail::move(scope, what, active);
  if (put.status != Status::ok) return put;
  return direct::signal<Op == SignalOp::add>(scope, signal_dst.addr, value);
}

/// As `amo` of a QP. A direct path has all operations on 4 and 8 bytes.
template <AmoOp Op, class Scope, class Q, class T>
WV_DEVICE Posted amo(Scope scope, const Path<Q>& path, const Amo<T>& what,
                     const PostOptions& options, bool active = true) {
  if (!path.direct) return amo<Op>(scope, path.qp, what, options, active);
  const bool bad = what.dst.addr % sizeof(T) != 0 || what.result.addr % sizeof(T) != 0;
  if (scope.any(active && bad) || !scope.any(active)) return {Status::invalid, {0}};
  if (active) {
    const T old = direct::amo<Op>(what.dst.addr, what.value, what.compare);
    if (what.result.addr != 0) memcpy(reinterpret_cast<void*>(what.result.addr), &old, sizeof old);
  }
  scope.sync();
  return {Status::ok, Ticket::done()};
}

/// Returns the old value that an atomic on `path` left at `result`. Call this after `wait_data`.
template <class T, class Q>
WV_DEVICE T amo_result(const Path<Q>& path, const T* result) {
  return path.direct ? *result : amo_result(path.qp, result);
}

/// As `wait` of a QP.
template <class Scope, class Q>
WV_DEVICE Status wait(Scope scope, const Path<Q>& path, Ticket ticket, Deadline deadline) {
  if (!path.direct) return wait(scope, path.qp, ticket, deadline);
  direct::settle(scope);
  return Status::ok;
}

/// As `wait_data` of a QP.
template <class Scope, class Q>
WV_DEVICE Status wait_data(Scope scope, const Path<Q>& path, Ticket ticket, Deadline deadline) {
  if (!path.direct) return wait_data(scope, path.qp, ticket, deadline);
  direct::settle(scope);
  return Status::ok;
}

/// As `quiet` of a QP.
template <class Scope, class Q>
WV_DEVICE Status quiet(Scope scope, const Path<Q>& path, Deadline deadline) {
  if (!path.direct) return quiet(scope, path.qp, deadline);
  direct::settle(scope);
  return Status::ok;
}

}  // namespace wv
