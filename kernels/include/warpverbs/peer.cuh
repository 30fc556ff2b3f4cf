// Addresses: from (window, offset) to what a WQE needs, with the bounds checked.
#pragma once

#include "abi.h"
#include "detail/wqe.cuh"
#include "platform.cuh"

namespace wv {

/// One window at one peer. Load it once for each call or guard, and never keep it across calls: a
/// rejoin replaces the entry.
struct PeerWindow {
  uint64_t base;
  uint64_t bytes;
  uint32_t rkey_be;
  uint32_t rail_life;

  /// Returns whether kernels of this rank may load from and store to the window. `load_direct`
  /// returns the address.
  WV_DEVICE bool direct() const { return (rail_life & PEER_DIRECT) != 0; }
  /// Returns the number of recoveries of the peer's QPs, 24 bits.
  WV_DEVICE uint32_t life() const { return rail_life & ((uint32_t{1} << RAIL_SHIFT) - 1); }
  /// Returns the rail by which QPs of this row reach the window: the rail of the QPs' number, or
  /// another if this pair of ranks goes round that rail.
  WV_DEVICE uint32_t rail() const { return (rail_life & ~PEER_DIRECT) >> RAIL_SHIFT; }
  /// Returns whether the peer has the window.
  WV_DEVICE bool present() const { return base != 0; }
  /// Names the `length` bytes at `offset` for a WQE. Returns false if they are not all inside the
  /// window.
  WV_DEVICE bool at(uint64_t offset, uint64_t length, RemoteAddr* out) const {
    *out = {base + offset, rkey_be};
    return present() && length <= bytes && offset <= bytes - length;
  }
};

/// Names the `length` bytes at `offset` of the local window for a WQE. Returns false if they are
/// not all inside the window.
WV_DEVICE bool local_at(const Window& window, uint64_t offset, uint64_t length, LocalAddr* out) {
  *out = {window.base + offset, window.lkey_be};
  return length <= window.bytes && offset <= window.bytes - length;
}

/// Reads a peer-table entry by one 16-byte load past L1. The entry changes only in the peer's grace
/// period.
WV_DEVICE PeerWindow load_peer(const PeerEntry* entry, const Window& window) {
  const auto words = platform::load16_relaxed(entry);
  return {words.lo, window.bytes, static_cast<uint32_t>(words.hi),
          static_cast<uint32_t>(words.hi >> 32)};
}

/// Returns `window` at `peer` for QPs of `rail`. The result is not `present()` if the peer, window
/// or rail does not exist.
WV_DEVICE PeerWindow load_peer(const TeamContext& team, const Window& window, uint32_t peer,
                               uint32_t rail = 0) {
  if (peer >= team.ranks || window.id >= team.max_windows || rail >= team.rails) return {};
  const uint64_t row = uint64_t{window.id} * team.rails + rail;
  return load_peer(team.peers + row * team.max_ranks + peer, window);
}

/// Returns `there`, which is `direct()`, with the address at which kernels of this rank find it:
/// memory of another process is mapped at an address of its own here. The address lies in a
/// separate table, so that posts to QPs pay nothing for it.
WV_DEVICE PeerWindow load_direct(const TeamContext& team, const Window& window, uint32_t peer,
                                 PeerWindow there) {
  const uint64_t place = uint64_t{window.id} * team.max_ranks + peer;
  there.base = platform::load_relaxed(team.direct + place);
  return there;
}

/// Returns the rail of QP number `i` to any peer: the row of the peer table that names windows for
/// this QP. Posted WQEs use this rail, or go round it: `PeerWindow::rail` returns the rail that
/// they use.
WV_DEVICE uint32_t qp_rail(const TeamContext& team, uint32_t i) { return i % team.rails; }

/// Returns `window` with the local key of the rail by which QPs reach `there`, for use as a source.
/// The window itself holds the key of rail 0.
WV_DEVICE Window rail_window(const TeamContext& team, Window window, const PeerWindow& there) {
  const uint32_t rail = there.rail();
  if (rail == 0 || rail >= team.rails || window.id >= team.max_windows) return window;
  const uint64_t place = uint64_t{window.id} * team.rails + rail;
  window.lkey_be = platform::load_relaxed(team.lkeys + place);
  return window;
}

/// Returns QP number `i` to `peer`, or null. The answer changes only in the peer's grace period.
WV_DEVICE QpContext* peer_qp(const TeamContext& team, uint32_t peer, uint32_t i) {
  if (peer >= team.ranks || i >= team.qps_per_peer) return nullptr;
  const uint64_t place = uint64_t{peer} * team.qps_per_peer + i;
  return reinterpret_cast<QpContext*>(
      platform::load_relaxed(reinterpret_cast<const uint64_t*>(team.qps + place)));
}

}  // namespace wv
