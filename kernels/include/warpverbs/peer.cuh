// Addresses: from (window, offset) to what a WQE needs, with the bounds checked.
#pragma once

#include "abi.h"
#include "platform.cuh"
#include "wqe.cuh"

namespace wv {

/// One window at one peer. Load it once per call or per guard, never keep it across calls: a rejoin
/// replaces the entry.
struct PeerWindow {
  uint64_t base;
  uint64_t bytes;
  uint32_t rkey_be;
  uint32_t rail_generation;

  /// Whether the peer has the window.
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

/// `window` at `peer`; not `present()` if one of them does not exist.
WV_DEVICE PeerWindow load_peer(const TeamContext& team, const Window& window, uint32_t peer) {
  if (peer >= team.ranks || window.id >= team.max_windows) return {0, 0, 0, 0};
  return load_peer(team.peers + uint64_t{window.id} * team.max_ranks + peer, window);
}

/// QP number `i` to `peer`; null if there is none.
WV_DEVICE QpContext* peer_qp(const TeamContext& team, uint32_t peer, uint32_t i) {
  if (peer >= team.ranks || i >= team.qps_per_peer) return nullptr;
  const uint64_t place = uint64_t{peer} * team.qps_per_peer + i;
  return reinterpret_cast<QpContext*>(
      platform::load_const(reinterpret_cast<const uint64_t*>(team.qps + place)));
}

}  // namespace wv
