// Combining: lanes whose inline bytes follow each other at the peer share a WQE.
#pragma once

#include "../coop.cuh"
#include "wqe.cuh"

namespace wv::detail {

/// The inline write of a lane. If the lane is `head` of its piece, it writes `payload` to its own
/// target.
struct Piece {
  wqe::Payload payload;
  bool head;
};

/// Joins the values of the active lanes of a whole warp, in the order of the lanes: values whose
/// targets follow each other share a WQE, as many as fit. All 32 lanes call.
template <class T>
WV_DEVICE Piece combine(RemoteAddr dst, const T& value, bool active) {
  constexpr uint32_t WORDS = sizeof(T) / 4, MOST = MAX_INLINE_BYTES / sizeof(T);
  constexpr Warp warp{};
  const wqe::Payload own = wqe::payload(value);
  const uint32_t below = (1u << lane()) - 1, self = 1u << lane();
  const uint32_t votes = warp.ballot(active);
  // Finds the active lane before this one, and whether this lane's bytes follow that lane's.
  const uint32_t earlier = votes & below;
  const uint32_t previous = earlier != 0 ? 31 - __clz(earlier) : lane();
  const uint64_t addr = warp.shuffle(dst.addr, previous);
  const uint32_t key = warp.shuffle(dst.rkey_be, previous);
  const bool follows = earlier != 0 && addr + sizeof(T) == dst.addr && key == dst.rkey_be;
  // A run begins at each lane that does not follow. Every MOST lanes of a run are one piece.
  const uint32_t starts = warp.ballot(active && !follows);
  const uint32_t own_starts = starts & (below | self), later_starts = starts & ~(below | self);
  const uint32_t start = own_starts != 0 ? 31 - __clz(own_starts) : 0;
  const uint32_t place = __popc(earlier & ~((1u << start) - 1));
  const uint32_t run = later_starts != 0 ? (later_starts & (~later_starts + 1)) - 1 : Warp::ALL;
  const uint32_t left = __popc(votes & run & ~below);
  Piece piece{own, active && place % MOST == 0};
  const uint32_t lanes = left < MOST ? left : MOST;
  piece.payload.bytes = lanes * sizeof(T);
  uint32_t rest = votes & ~(below | self);
  for (uint32_t k = 1; k < MOST; ++k) {
    const uint32_t from = rest != 0 ? __ffs(rest) - 1 : lane();
    rest &= rest - 1;
    for (uint32_t word = 0; word < WORDS; ++word) {
      const uint32_t taken = warp.shuffle(own.words[word], from);
      if (k < lanes) piece.payload.words[k * WORDS + word] = taken;
    }
  }
  return piece;
}

/// Joins values at any scope. It combines nothing for a Thread and for a block that does not
/// consist of whole warps. Nor does it combine values of which a WQE holds fewer than two.
template <class Scope, class T>
WV_DEVICE Piece combine(Scope scope, RemoteAddr dst, const T& value, bool active) {
  if constexpr (2 * sizeof(T) <= MAX_INLINE_BYTES) {
    if (scope.whole_warps()) return combine(dst, value, active);
  }
  return {wqe::payload(value), active};
}

}  // namespace wv::detail
