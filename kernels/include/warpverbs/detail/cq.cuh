// Completions. The NIC writes CQEs, and the thread that polls turns them into a 64-bit index.
//
// A collapsed CQ has one CQE, which the NIC overwrites at every completion. A wide CQ is as long as
// the ring and is taken CQE by CQE. In a wide CQ an error stays where it is, so its cause survives
// the flush after it.
#pragma once

#include "../qp.cuh"

namespace wv::cq {

inline constexpr uint32_t CQE_BYTES = 64;
inline constexpr uint32_t SYNDROME_DWORD = 52;  // .. vendor_err_synd, syndrome
inline constexpr uint32_t LAST_DWORD = 60;      // wqe_counter (be16), signature, op_own
inline constexpr uint32_t OPCODE_REQ_ERR = 13;
inline constexpr uint32_t OPCODE_RESP_ERR = 14;
inline constexpr uint32_t OPCODE_INVALID = 15;  // what the host filled in
inline constexpr uint32_t OWNER_BIT = 1u << 24;
inline constexpr uint32_t SYNDROME_FLUSHED = 0x05;

WV_DEVICE uint32_t load_dword(const uint8_t* cqe, uint32_t at) {
  return platform::load_relaxed_sys(reinterpret_cast<const uint32_t*>(cqe + at));
}
/// Returns whether a CQE with this last dword reports success. Otherwise it is an error or was
/// never written.
WV_DEVICE bool is_done(uint32_t last) { return last >> 28 < OPCODE_REQ_ERR; }

/// Keeps `status` and `syndrome` as the QP's failure, unless it already has one. A failure stays
/// until recovery. A passed deadline is no failure.
WV_DEVICE void latch(QpContext* context, Status status, uint32_t syndrome) {
  // err and syndrome are one 8-byte word, so that no reader sees one without the other.
  static_assert(offsetof(QpContext, err) % 8 == 0 &&
                offsetof(QpContext, syndrome) == offsetof(QpContext, err) + 4);
  const uint64_t failure = uint64_t{syndrome} << 32 | static_cast<uint32_t>(status);
  const uint64_t old = platform::compare_exchange_relaxed(
      reinterpret_cast<uint64_t*>(&context->err), uint64_t{0}, failure);
  if (old != 0) return;
  platform::reduce_add(&context->errors, uint64_t{1});
  if (context->failed == nullptr) return;
  // Pairs with the exchange of `Failures::take`: the host thread that takes the word sees the
  // failure.
  platform::fence_release_sys();
  platform::store_relaxed_sys(context->failed, 1u);
}

/// Latches the failure of the CQE at `cqe`, which reports no success, if the NIC has written it.
WV_DEVICE_COLD void fail(QpContext* context, const uint8_t* cqe, uint32_t last) {
  if (last >> 28 == OPCODE_INVALID) return;
  const uint32_t dword = load_dword(cqe, SYNDROME_DWORD);
  const uint32_t syndrome = dword >> 24, vendor = dword >> 16 & 0xff;
  latch(context, syndrome == SYNDROME_FLUSHED ? Status::flushed : Status::cqe_error,
        vendor << 8 | syndrome);
}

/// Raises `cons` to the index of a CQE with this last dword. The argument `cons` was read before
/// the CQE. Returns false if that index is out of reach: more than a ring away.
template <class Q>
WV_DEVICE bool advance(const Q& qp, uint64_t cons, uint32_t last) {
  const uint16_t counter = platform::byteswap(static_cast<uint16_t>(last));
  const auto ahead = static_cast<uint16_t>(counter + 1 - static_cast<uint16_t>(cons));
  if (ahead > qp.depth) return false;
  if (ahead == 0) return true;
  if constexpr (Q::is_exclusive()) {
    platform::store_relaxed(&qp.context->cons, cons + ahead);
  } else {
    platform::reduce_max(&qp.context->cons, cons + ahead);
  }
  return true;
}

/// Looks at the one CQE. The caller has read `cons` before. In the other order, a thread that stops
/// in between could take a counter that is a whole lap old for a new one.
template <class Q>
WV_DEVICE void poll_collapsed(const Q& qp, uint64_t cons) {
  const uint32_t last = load_dword(qp.cqe, LAST_DWORD);
  if (!is_done(last)) return fail(qp.context, qp.cqe, last);
  advance(qp, cons, last);
}

/// Takes at most one CQE. Returns true if it was there, so that another may be.
template <class Q>
WV_DEVICE bool poll_wide(const Q& qp) {
  QpContext* const context = qp.context;
  // The thread reads the place, `cons`, the CQE, and the place again, so that the CQE was the first
  // not taken all the while. A CQE of a later lap has the other owner bit. The second read of the
  // place is for a thread that was stopped after the first. Without it the thread may find a CQE
  // that was taken long ago next to a new `cons`. If few WQEs are signalled, such a CQE stays for
  // many lengths of the ring, and a difference of 16 bits then says nothing (I7). Two laps later
  // the thread may find a flush instead of the cause.
  const uint64_t taken = platform::load_relaxed(&context->cq_consumed);
  const uint64_t cons = platform::load_relaxed(&context->cons);
  const uint8_t* const cqe = qp.cqe + (taken & qp.mask) * CQE_BYTES;
  const uint32_t last = load_dword(cqe, LAST_DWORD);
  const bool odd_lap = (taken & qp.depth) != 0;
  if (((last & OWNER_BIT) != 0) != odd_lap) return false;
  if constexpr (!Q::is_exclusive()) {
    if (platform::load_relaxed(&context->cq_consumed) != taken) return true;
  }
  if (!is_done(last)) {
    fail(context, cqe, last);
    return false;
  }
  // Another poller has yet to raise `cons`. A thread that looks again finds it raised.
  if (!advance(qp, cons, last)) return false;
  // The place is raised after `cons`: a thread that finds the CQE taken finds `cons` raised, or a
  // CQE that raises it further.
  if constexpr (Q::is_exclusive()) {
    platform::store_relaxed(&context->cq_consumed, taken + 1);
  } else {
    platform::compare_exchange_relaxed(&context->cq_consumed, taken, taken + 1);
  }
  return true;
}

/// Looks at the CQ once, and advances `cons` or latches an error. Takes no fence: the completion of
/// a put says that the bytes are in the peer's memory, and lets no thread read this rank's memory.
///
/// The latched failure is the first one seen. The NIC overwrites a collapsed CQE when it flushes
/// the WQEs after the failed one, so the cause may be lost; then the status is `flushed`. A wide CQ
/// keeps the cause.
///
/// @param cons  `QpContext::cons`, read before the call.
/// @return true if there may be more CQEs: of a wide CQ this takes at most one.
template <class Q>
WV_DEVICE bool poll(const Q& qp, uint64_t cons) {
  if (qp.has_wide_cq()) return poll_wide(qp);
  poll_collapsed(qp, cons);
  return false;
}
template <class Q>
WV_DEVICE bool poll(const Q& qp) {
  return poll(qp, platform::load_relaxed(&qp.context->cons));
}

}  // namespace wv::cq
