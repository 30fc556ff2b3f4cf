// Writes with an immediate: put_imm sends, wait_imm and try_imm receive.
//
// Each put_imm takes one receive WQE of the peer's QP (QpConfig::log_recv_depth at the host) and
// leaves a CQE with the immediate in that QP's CQ. Receive WQEs are empty and all alike, so one
// step takes a CQE and gives its WQE back to the NIC. If no WQE is left, the NIC holds the sender
// back, and nothing is lost.
//
// Any number of threads may take. `recv_consumed` is the index of the next CQE; the thread that
// raises it owns that CQE. The receive counter of the doorbell record only grows, and has one
// writer at a time. A thread that takes a CQE adds its debt to `recv_owed`. The thread that raises
// `recv_owed` from 0 writes the record until nothing is owed.
#pragma once

#include "detail/cq.cuh"
#include "put.cuh"

namespace wv {

/// Puts `what` as `put` does and sends `imm` to the peer. With 0 bytes only the immediate travels.
/// In a warp or block each active thread sends its own `what` and `imm`, and takes one receive WQE.
///
/// The thread of the peer that takes `imm` may read the data, and whatever was posted before on
/// this QP. The ticket is done when the peer's NIC has taken a receive WQE. Until a receive WQE is
/// free, everything later on this QP waits. @return as put.
template <class Scope, class Q>
WV_DEVICE Posted put_imm(Scope scope, const Q& qp, const Put& what, uint32_t imm,
                         const PostOptions& options, bool active = true) {
  const detail::Transfer transfer{what.dst, what.src, what.bytes, imm};
  return detail::transfer<detail::Kind::put_imm>(scope, qp, transfer, options, active);
}

namespace imm {

inline constexpr uint32_t IMM_DWORD = 36;  // imm_inval_pkey of a CQE
inline constexpr uint32_t DBREC_RECEIVE = 0;

/// The receive queue's addresses, in registers.
struct Queue {
  const uint8_t* cqe;
  uint32_t mask;
};

template <class Q>
WV_DEVICE Queue queue(const Q& qp) {
  const auto words = platform::load16_const(&qp.context->recv_cqe);
  return {reinterpret_cast<const uint8_t*>(words.lo), static_cast<uint32_t>(words.hi)};
}

/// Gives `n` receive WQEs back. The record counts the WQEs posted since the QP left Reset.
template <class Q>
WV_DEVICE void repost(const Q& qp, const Queue& queue, uint64_t n) {
  QpContext* const context = qp.context;
  const uint64_t posted = platform::load_relaxed(&context->recv_posted) + n;
  platform::store_relaxed(&context->recv_posted, posted);
  const auto counter = static_cast<uint32_t>(posted + queue.mask + 1) & 0xffff;
  platform::store_relaxed_sys(qp.dbrec + DBREC_RECEIVE, platform::byteswap(counter));
}

/// Gives the WQE of a CQE back that was taken and read. Continues while other threads take CQEs
/// too.
template <class Q>
WV_DEVICE void give_back(const Q& qp, const Queue& queue) {
  // Release. Orders this thread's reads of the CQE before the record. Pairs with the NIC, which may
  // write the CQE again when it has read the record. If another thread writes the record, pairs
  // with that thread's fence below.
  platform::fence_acq_rel_sys();
  if constexpr (Q::is_exclusive()) {
    repost(qp, queue, 1);
  } else {
    uint64_t* const word = &qp.context->recv_owed;
    uint64_t owed = 1;
    if (platform::add_relaxed(word, owed) != 0) return;  // the record's writer will see this debt
    while (owed != 0) {
      // Acquire and release. Orders the last writer's words, and the reads of the threads whose
      // debt this is, before the record. Pairs with the fence above and with the next one, of the
      // thread that wrote the record last.
      platform::fence_acq_rel_sys();
      repost(qp, queue, owed);
      // Release. Orders the record and `recv_posted` before the debt is taken off: pairs with the
      // fence of the next writer.
      platform::fence_acq_rel_sys();
      owed = platform::add_relaxed(word, ~owed + 1) - owed;
    }
  }
}

/// Looks once: takes the next CQE, if one has come.
template <class Q>
WV_DEVICE Status take(const Q& qp, const Queue& queue, uint32_t* out) {
  QpContext* const context = qp.context;
  const uint64_t taken = platform::load_relaxed(&context->recv_consumed);
  const uint8_t* const cqe = queue.cqe + (taken & queue.mask) * cq::CQE_BYTES;
  const uint32_t last = cq::load_dword(cqe, cq::LAST_DWORD);
  const bool odd_lap = (taken & (uint64_t{queue.mask} + 1)) != 0;
  if (last >> 28 == cq::OPCODE_INVALID || ((last & cq::OWNER_BIT) != 0) != odd_lap) {
    return Status::would_block;
  }
  if (!cq::is_done(last)) {
    // A thread that was stopped may see a flush of two laps later here. That is not this CQE.
    if (platform::load_relaxed(&context->recv_consumed) != taken) return Status::would_block;
    cq::fail(context, cqe, last);
    return qp.watch().fault();
  }
  // Acquire. Orders the CQE's owner bit before its other words, and before the data of the
  // immediate. Pairs with the NIC, which writes data, CQE and owner bit in this order.
  platform::fence_acquire_sys();
  const uint32_t imm = cq::load_dword(cqe, IMM_DWORD);
  if constexpr (Q::is_exclusive()) {
    platform::store_relaxed(&context->recv_consumed, taken + 1);
  } else {
    // Another thread may have taken this CQE, and the NIC may have written a later one in its
    // place.
    if (platform::compare_exchange_relaxed(&context->recv_consumed, taken, taken + 1) != taken) {
      return Status::would_block;
    }
  }
  give_back(qp, queue);
  *out = platform::byteswap(imm);
  return Status::ok;
}

}  // namespace imm

/// Takes the next immediate that arrived on this QP, once per scope. Every thread of the scope gets
/// it in `*out` and may read the data that came with it. Any thread may call; on an exclusive QP,
/// only its owner.
/// @return `ok`; `invalid` for a QP without receive queue; the QP's failure, `aborted` or
/// `timeout`.
template <class Scope, class Q>
WV_DEVICE Status wait_imm(Scope scope, const Q& qp, Deadline deadline, uint32_t* out) {
  Status status = Status::invalid;
  uint32_t value = 0;
  if (scope.leader()) {
    const imm::Queue queue = imm::queue(qp);
    if (queue.cqe != nullptr) {
      status = spin_until(qp.watch(), deadline, [&] { return imm::take(qp, queue, &value); });
    }
  }
  status = scope.broadcast(status);
  *out = scope.broadcast(value);
  return status;
}

/// Looks once for an immediate; never waits. @return as wait_imm, but `would_block` instead of
/// `timeout`. `would_block` may also mean that another thread took the immediate.
template <class Scope, class Q>
WV_DEVICE Status try_imm(Scope scope, const Q& qp, uint32_t* out) {
  Status status = Status::invalid;
  uint32_t value = 0;
  if (scope.leader()) {
    const imm::Queue queue = imm::queue(qp);
    if (queue.cqe != nullptr) {
      status = imm::take(qp, queue, &value);
      if (status == Status::would_block) {
        const Status fault = qp.watch().fault();
        if (fault != Status::ok) status = fault;
      }
    }
  }
  status = scope.broadcast(status);
  *out = scope.broadcast(value);
  return status;
}

}  // namespace wv
