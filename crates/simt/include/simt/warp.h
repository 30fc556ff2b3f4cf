// Warp operations. Each is a meeting of the lanes named by `mask`: the lanes of a warp are
// coroutines of their own and meet nowhere else. Rules that are stricter than CUDA's: a mask must
// not name a lane that has exited, and lanes that meet must call the same operation. Lanes beyond
// the end of the block may be named and are ignored.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "bits.h"
#include "runtime.h"

// Also orders memory among the lanes; free on the CPU, since the lanes of a warp share an OS
// thread.
inline void __syncwarp(unsigned mask = 0xffffffffu) { simt_warp_op(mask, simt::kSyncWarp, 0, 0); }

// Which lanes happen to run together has no meaning here, and on a GPU no code may rely on it.
unsigned __activemask()
    __attribute__((error("__activemask is refused: pass the mask that the code means")));

namespace simt {

// Reads `value` of lane `source`. A source outside the mask gives all ones (a NaN in every float
// format): on a GPU the result is undefined.
template <class T>
inline T shuffle(unsigned mask, WarpOp op, T value, unsigned source) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value,
                "a shuffle moves plain values of up to 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  bits = simt_warp_op(mask, op, bits, source);
  memcpy(&value, &bits, sizeof value);
  return value;
}

// `width` must be a power of two up to 32, as CUDA asks.
inline unsigned checked_width(int width) {
  if (width < 1 || width > 32 || (width & (width - 1)) != 0)
    simt_fail("the width of a shuffle must be 1, 2, 4, 8, 16 or 32");
  return static_cast<unsigned>(width);
}

}  // namespace simt

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const unsigned w = simt::checked_width(width), lane = simt_cur_tls->lane;
  return simt::shuffle(mask, simt::kShfl, value,
                       (lane & ~(w - 1)) | (static_cast<unsigned>(source) & (w - 1)));
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned w = simt::checked_width(width), lane = simt_cur_tls->lane;
  return simt::shuffle(mask, simt::kShflUp, value, (lane & (w - 1)) < delta ? lane : lane - delta);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const unsigned w = simt::checked_width(width), lane = simt_cur_tls->lane;
  return simt::shuffle(mask, simt::kShflDown, value,
                       delta >= w - (lane & (w - 1)) ? lane : lane + delta);
}

// With a width, a lane may read an earlier group but none after its own (PTX shfl.bfly).
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const unsigned w = simt::checked_width(width), lane = simt_cur_tls->lane;
  const unsigned source = lane ^ static_cast<unsigned>(lane_mask), last = lane | (w - 1);
  return simt::shuffle(mask, simt::kShflXor, value, source > last ? lane : source);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return static_cast<unsigned>(simt_warp_op(mask, simt::kBallot, predicate != 0, 0));
}
inline int __any_sync(unsigned mask, int predicate) {
  return static_cast<int>(simt_warp_op(mask, simt::kAny, predicate != 0, 0));
}
inline int __all_sync(unsigned mask, int predicate) {
  return static_cast<int>(simt_warp_op(mask, simt::kAll, predicate != 0, 0));
}

// The lanes whose value has the same bits as the caller's.
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return static_cast<unsigned>(simt_warp_op(mask, simt::kMatchAny, bits, 0));
}
// The mask if all lanes have the same bits, else 0; *predicate says which.
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  const unsigned same = static_cast<unsigned>(simt_warp_op(mask, simt::kMatchAll, bits, 0));
  *predicate = same != 0;
  return same;
}

#define SIMT_REDUCE(name, T, op)                                                    \
  inline T name(unsigned mask, T value) {                                           \
    return static_cast<T>(simt_warp_op(mask, op, static_cast<unsigned>(value), 0)); \
  }
SIMT_REDUCE(__reduce_add_sync, unsigned, simt::kReduceAdd)
SIMT_REDUCE(__reduce_add_sync, int, simt::kReduceAdd)
SIMT_REDUCE(__reduce_min_sync, unsigned, simt::kReduceMin)
SIMT_REDUCE(__reduce_min_sync, int, simt::kReduceMinSigned)
SIMT_REDUCE(__reduce_max_sync, unsigned, simt::kReduceMax)
SIMT_REDUCE(__reduce_max_sync, int, simt::kReduceMaxSigned)
SIMT_REDUCE(__reduce_and_sync, unsigned, simt::kReduceAnd)
SIMT_REDUCE(__reduce_or_sync, unsigned, simt::kReduceOr)
SIMT_REDUCE(__reduce_xor_sync, unsigned, simt::kReduceXor)
#undef SIMT_REDUCE
