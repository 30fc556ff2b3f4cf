// Words of rings, records and tables, as an HCA reads and writes them: by system scope, past L1.
#pragma once

#include <warpverbs/coop.cuh>
#include <warpverbs/platform.cuh>

#include "abi.h"

namespace gpuhca {

namespace platform = wv::platform;

inline constexpr uint32_t NONE = 0xffffffff;

WV_DEVICE uint32_t be32(uint32_t v) { return platform::byteswap(v); }
WV_DEVICE uint64_t be64(uint64_t v) { return platform::byteswap(v); }

/// Sequence numbers and QP numbers have 24 bits.
inline constexpr uint32_t MASK24 = 0x00ffffff;

template <class T>
WV_DEVICE T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

/// A counter of a doorbell record.
WV_DEVICE uint32_t load_counter(uint64_t record, uint32_t offset) {
  return be32(platform::load_relaxed_sys(at<uint32_t>(record + offset))) & 0xffff;
}

/// Adds to a counter. The owner of a QP and the block of its peer may count at the same time.
WV_DEVICE void count(uint64_t* counter, uint64_t n) { platform::reduce_add(counter, n); }

}  // namespace gpuhca
