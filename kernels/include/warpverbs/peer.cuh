// Addresses: from (window, offset) to what a WQE needs, with the bounds checked.
#pragma once

#include "abi.h"
#include "detail/wqe.cuh"
#include "platform.cuh"

namespace wv {

/// One window at one peer. Load it once per call or per guard, never keep it across calls: a rejoin
/// replaces the entry.
struct PeerWindow {
  uint64_t base;
  uint64_t bytes;
  uint32_t rkey_be;
  uint32_t rail_life;

  /// Whether kernels of this rank may load from and store to the window: `load_direct` says where.
  WV_DEVICE bool direct() const { return (rail_life & PEER_DIRECT) != 0; }
  /// Recoveries that the peer's QPs have been through, 24 bits.
  WV_DEVICE uint32_t life() const { return rail_life & ((uint32_t{1} << RAIL_SHIFT) - 1); }
  /// The rail by which QPs of its row reach the window: that of their number, or another if the
  /// pair goes round that one.
  WV_DEVICE uint32_t rail() const { return (rail_life & ~PEER_DIRECT) >> RAIL_SHIFT; }
  /// Returns whether the peer has the window.
  WV_DEVICE bool present() const { return base != 0; }
  /// The `length` bytes at `offset`, as a WQE names them. False if they are not all inside the
  /// window.
  WV_DEVICE bool at(uint64_t offset, uint64_t length, RemoteAddr* out) const {
    *out = {base + offset, rkey_be};
    return present() && length <= bytes && offset <= bytes - length;
  }
};

/// The `length` bytes at `offset` of the local window. False if they are not all inside it.
WV_DEVICE bool local_at(const Window& window, uint64_t offset, uint64_t length, LocalAddr* out) {
  *out = {window.base + offset, window.lkey_be};
  return length <= window.bytes && offset <= window.bytes - length;
}

/// Reads a peer-table entry by one 16-byte load past L1. It changes only inside the peer's grace
/// period.
WV_DEVICE PeerWindow load_peer(const PeerEntry* entry, const Window& window) {
  const auto words = platform::load16_relaxed(entry);
  return {words.lo, window.bytes, static_cast<uint32_t>(words.hi),
          static_cast<uint32_t>(words.hi >> 32)};
}

/// `window` at `peer` for QPs of `rail`; not `present()` if one of them does not exist.
WV_DEVICE PeerWindow load_peer(const TeamContext& team, const Window& window, uint32_t peer,
                               uint32_t rail = 0) {
  if (peer >= team.ranks || window.id >= team.max_windows || rail >= team.rails) return {};
  const uint64_t row = uint64_t{window.id} * team.rails + rail;
  return load_peer(team.peers + row * team.max_ranks + peer, window);
}

/// `there`, which is `direct()`, as kernels of this rank address it: memory of another process has
/// an address of its own here. The look goes to a table of its own, so that posts to QPs pay
/// nothing.
WV_DEVICE PeerWindow load_direct(const TeamContext& team, const Window& window, uint32_t peer,
                                 PeerWindow there) {
  const uint64_t place = uint64_t{window.id} * team.max_ranks + peer;
  there.base = platform::load_relaxed(team.direct + place);
  return there;
}

/// The rail of QP number `i`, to any peer: the row of the peer table that names windows for it.
/// Posted WQEs go by this rail, or round it: `PeerWindow::rail` says by which.
WV_DEVICE uint32_t qp_rail(const TeamContext& team, uint32_t i) { return i % team.rails; }

/// `window` with the local key of the rail by which QPs reach `there`: what they take as a source.
/// That of rail 0 is in the window itself.
WV_DEVICE Window rail_window(const TeamContext& team, Window window, const PeerWindow& there) {
  const uint32_t rail = there.rail();
  if (rail == 0 || rail >= team.rails || window.id >= team.max_windows) return window;
  const uint64_t place = uint64_t{window.id} * team.rails + rail;
  window.lkey_be = platform::load_relaxed(team.lkeys + place);
  return window;
}

/// QP number `i` to `peer`, or null. It changes only inside the peer's grace period.
WV_DEVICE QpContext* peer_qp(const TeamContext& team, uint32_t peer, uint32_t i) {
  if (peer >= team.ranks || i >= team.qps_per_peer) return nullptr;
  const uint64_t place = uint64_t{peer} * team.qps_per_peer + i;
  return reinterpret_cast<QpContext*>(
      platform::load_relaxed(reinterpret_cast<const uint64_t*>(team.qps + place)));
}

}  // namespace wv
