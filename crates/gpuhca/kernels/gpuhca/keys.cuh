// Which memory a key gives.
#pragma once

#include "words.cuh"

namespace gpuhca {

inline constexpr uint32_t ACCESS_LOCAL_WRITE = 1;
inline constexpr uint32_t ACCESS_REMOTE_WRITE = 2;
inline constexpr uint32_t ACCESS_REMOTE_READ = 4;
inline constexpr uint32_t ACCESS_REMOTE_ATOMIC = 8;
inline constexpr uint32_t ACCESS_LOCAL_READ = 1u << 31;

/// The address of `bytes` bytes at `va` of `key`, if `qp` may access them so; else 0.
///
/// The key is one of the HCA of `qp`: a local key of its own WQE, or the one that its peer names.
WV_DEVICE uint64_t resolve(const GpuhcaParams& p, const HcaQp& qp, uint32_t key, uint64_t va,
                           uint64_t bytes, uint32_t need) {
  const uint32_t number = (key >> 8) - qp.first_key;
  if (number >= KEYS) return 0;
  const HcaKey* const entry = p.keys + qp.keys + number;
  if (platform::load_relaxed(&entry->head) != (uint64_t{1} << 32 | key)) return 0;
  const uint64_t iova = platform::load_relaxed(&entry->iova);
  const uint64_t length = platform::load_relaxed(&entry->bytes);
  const uint64_t address = platform::load_relaxed(&entry->address);
  const uint32_t access = platform::load_relaxed(&entry->access);
  const uint32_t pdn = platform::load_relaxed(&entry->pdn);
  const uint32_t only = platform::load_relaxed(&entry->qpn);
  if (pdn != qp.pdn || (only != 0 && only != qp.qpn) || (access & need) != need) return 0;
  if (va < iova || bytes > length || va - iova > length - bytes) return 0;
  return address + (va - iova);
}

}  // namespace gpuhca
