// Completions: one collapsed CQE that the NIC overwrites, turned into a 64-bit index by whoever
// looks.
#pragma once

#include "qp.cuh"

namespace wv::cq {

inline constexpr uint32_t SYNDROME_DWORD = 52;  // .. vendor_err_synd, syndrome
inline constexpr uint32_t LAST_DWORD = 60;      // wqe_counter (be16), signature, op_own
inline constexpr uint32_t OPCODE_REQ_ERR = 13;
inline constexpr uint32_t OPCODE_RESP_ERR = 14;
inline constexpr uint32_t OPCODE_INVALID = 15;  // what the host filled in
inline constexpr uint32_t SYNDROME_FLUSHED = 0x05;

/// Keeps `status` and `syndrome` as the QP's failure unless it already has one. Sticky until
/// recovery; nobody latches because of a deadline.
WV_DEVICE void latch(QpContext* context, Status status, uint32_t syndrome) {
  // err and syndrome are one 8-byte word, so that no reader sees one without the other.
  static_assert(offsetof(QpContext, err) % 8 == 0 &&
                offsetof(QpContext, syndrome) == offsetof(QpContext, err) + 4);
  platform::compare_exchange_relaxed(reinterpret_cast<uint64_t*>(&context->err), uint64_t{0},
                                     uint64_t{syndrome} << 32 | static_cast<uint32_t>(status));
}

/// Looks at the CQE once: advances `cons` or latches an error. Takes no fence: a completion of a
/// put says that the bytes are in the peer's memory, and nothing in this rank's memory is read
/// because of it.
///
/// The failure that it keeps is the first one seen. The NIC overwrites the CQE when it flushes the
/// WQEs behind the failed one, so the cause may be lost; then the status is `flushed`.
template <Sharing S>
WV_DEVICE void poll(const Qp<S>& qp) {
  QpContext* const context = qp.context;
  // cons before the CQE: the other way round, a thread that is stopped in between may take a
  // counter that is a whole lap old for a new one.
  const uint64_t cons = platform::load_relaxed(&context->cons);
  const uint32_t last =
      platform::load_relaxed_sys(reinterpret_cast<const uint32_t*>(qp.cqe + LAST_DWORD));
  const uint32_t opcode = last >> 28;
  if (opcode == OPCODE_REQ_ERR || opcode == OPCODE_RESP_ERR) {
    const uint32_t dword =
        platform::load_relaxed_sys(reinterpret_cast<const uint32_t*>(qp.cqe + SYNDROME_DWORD));
    const uint32_t syndrome = dword >> 24, vendor = dword >> 16 & 0xff;
    latch(context, syndrome == SYNDROME_FLUSHED ? Status::flushed : Status::cqe_error,
          vendor << 8 | syndrome);
    return;
  }
  const uint16_t counter = platform::byteswap(static_cast<uint16_t>(last));
  const auto ahead = static_cast<uint16_t>(counter + 1 - static_cast<uint16_t>(cons));
  if (opcode == OPCODE_INVALID || ahead == 0 || ahead > qp.depth) return;
  if constexpr (S == Sharing::exclusive) {
    platform::store_relaxed(&context->cons, cons + ahead);
  } else {
    platform::reduce_max(&context->cons, cons + ahead);
  }
}

}  // namespace wv::cq
