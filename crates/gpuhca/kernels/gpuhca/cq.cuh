// Completion entries: PRM "CQE"; the same bytes as crates/softhca writes.
#pragma once

#include "words.cuh"

namespace gpuhca {

inline constexpr uint32_t CQE_REQ = 0;
inline constexpr uint32_t CQE_RESP_WR_IMM = 1;
inline constexpr uint32_t CQE_REQ_ERR = 13;
inline constexpr uint32_t CQE_RESP_ERR = 14;

inline constexpr uint32_t SYNDROME_LOCAL_LENGTH = 0x01;
inline constexpr uint32_t SYNDROME_LOCAL_OPERATION = 0x02;
inline constexpr uint32_t SYNDROME_LOCAL_PROTECTION = 0x04;
inline constexpr uint32_t SYNDROME_FLUSHED = 0x05;
inline constexpr uint32_t SYNDROME_REMOTE_INVALID_REQUEST = 0x12;
inline constexpr uint32_t SYNDROME_REMOTE_ACCESS = 0x13;
inline constexpr uint32_t SYNDROME_REMOTE_OPERATION = 0x14;
inline constexpr uint32_t SYNDROME_RETRY_EXCEEDED = 0x15;
inline constexpr uint32_t SYNDROME_RNR_RETRY_EXCEEDED = 0x16;

inline constexpr uint32_t VENDOR_FAILED = 0x77;
inline constexpr uint32_t VENDOR_FLUSHED = 0xf9;

/// An entry as 16 dwords, those that are not named 0.
struct Cqe {
  uint32_t dwords[16];
};

/// The entry of a send WQE that is over and well.
WV_DEVICE Cqe sent(const HcaQp& qp, uint32_t opcode, uint32_t index, uint32_t bytes,
                   uint64_t now_ns) {
  Cqe cqe{};
  cqe.dwords[8] = be32(qp.user_index);
  cqe.dwords[11] = be32(bytes);
  cqe.dwords[12] = be32(static_cast<uint32_t>(now_ns >> 32));
  cqe.dwords[13] = be32(static_cast<uint32_t>(now_ns));
  cqe.dwords[14] = be32(opcode << 24 | qp.qpn);
  cqe.dwords[15] = be32(index << 16 | CQE_REQ << 4);
  return cqe;
}

/// The entry of a WQE that failed or was flushed.
WV_DEVICE Cqe failed(const HcaQp& qp, uint32_t kind, uint32_t opcode, uint32_t index,
                     uint32_t syndrome) {
  const uint32_t vendor = syndrome == SYNDROME_FLUSHED ? VENDOR_FLUSHED : VENDOR_FAILED;
  Cqe cqe{};
  cqe.dwords[8] = be32(qp.user_index);
  cqe.dwords[13] = be32(vendor << 8 | syndrome);
  cqe.dwords[14] = be32(opcode << 24 | qp.qpn);
  cqe.dwords[15] = be32(index << 16 | kind << 4);
  return cqe;
}

/// The entry of a receive WQE that a write with immediate has taken.
WV_DEVICE Cqe received(const HcaQp& qp, uint32_t index, uint32_t bytes, uint32_t imm,
                       bool solicited, uint64_t now_ns) {
  Cqe cqe{};
  cqe.dwords[6] = be32(qp.remote_qpn);
  cqe.dwords[8] = be32(qp.user_index);
  cqe.dwords[9] = imm;
  cqe.dwords[11] = be32(bytes);
  cqe.dwords[12] = be32(static_cast<uint32_t>(now_ns >> 32));
  cqe.dwords[13] = be32(static_cast<uint32_t>(now_ns));
  cqe.dwords[14] = be32(qp.qpn);
  cqe.dwords[15] = be32(index << 16 | CQE_RESP_WR_IMM << 4 | (solicited ? 2 : 0));
  return cqe;
}

/// Writes an entry, whose last dword hands it over. One thread; no other writes to this CQ.
///
/// Everything that the entry says is done must be ordered before by the caller's release fence, or
/// by the one in here.
///
/// @return Whether it was written: a queue that has overrun takes none.
WV_DEVICE bool push(const GpuhcaParams& p, uint32_t place, Cqe cqe) {
  if (place >= CQS) return false;
  HcaCq* const cq = p.cqs + place;
  HcaCqProgress* const progress = p.cq_progress + place;
  const uint64_t life = platform::load_relaxed(&cq->head);
  if (life == 0) return false;
  uint32_t producer = 0;
  if (platform::load_relaxed(&progress->life) == life) {
    producer = platform::load_relaxed(&progress->producer);
    if (platform::load_relaxed(&progress->overrun) != 0) return false;
  } else {
    platform::store_relaxed(&progress->overrun, 0u);
    platform::store_relaxed(&progress->producer, 0u);
    // Release: the zeros before the life. Pairs with the host, which reads all three at once and
    // believes those of this life.
    platform::fence_acq_rel_sys();
    platform::store_relaxed(&progress->life, life);
  }
  const uint32_t entries = platform::load_relaxed(&cq->entries);
  const uint32_t flags = platform::load_relaxed(&cq->flags);
  if ((flags & CQ_IGNORES_OVERRUN) == 0) {
    const uint64_t record = platform::load_relaxed(&cq->record);
    const uint32_t consumer = be32(platform::load_relaxed_sys(at<uint32_t>(record))) & MASK24;
    if (((producer - consumer) & MASK24) >= entries) {
      platform::store_relaxed(&progress->overrun, 1u);
      return false;
    }
  }
  const bool collapsed = (flags & CQ_COLLAPSED) != 0;
  const uint32_t index = collapsed ? 0 : producer & (entries - 1);
  const bool odd_lap = !collapsed && (producer & entries) != 0;
  cqe.dwords[15] |= odd_lap ? 1u << 24 : 0;
  const uint32_t stride = platform::load_relaxed(&cq->stride);
  const uint64_t entry = platform::load_relaxed(&cq->ring) + uint64_t{index} * stride + stride - 64;
  for (uint32_t i = 0; i < 14; i += 2) {
    const uint64_t word = uint64_t{cqe.dwords[i + 1]} << 32 | cqe.dwords[i];
    platform::store_relaxed_sys(at<uint64_t>(entry + 4 * i), word);
  }
  platform::store_relaxed_sys(at<uint32_t>(entry + 56), cqe.dwords[14]);
  // Release: the body of the entry, and all that it reports, before the dword that hands it over.
  // Pairs with the acquire of the polling thread.
  platform::fence_acq_rel_sys();
  platform::store_relaxed_sys(at<uint32_t>(entry + 60), cqe.dwords[15]);
  platform::store_relaxed(&progress->producer, producer + 1);
  return true;
}

}  // namespace gpuhca
