// A QP as one thread holds it: the constant line of its context in registers. Its type says what
// kind of QP it is.
#pragma once

#include "abi.h"
#include "spin.cuh"

namespace wv {

/// The threads that may use a QP at the same time. Fixed when the host makes the QP; `open_qp`
/// verifies it.
enum class Sharing {
  /// Any number of threads in any blocks: the parked-token protocol of sq.cuh.
  shared,
  /// One thread, warp or block at a time, waits included: no atomics, no flags. A scope that hands
  /// the QP to another orders memory (barrier, or release and acquire at gpu scope).
  exclusive,
  /// Any number of threads of one block: the parked-token protocol with atomics and flags of block
  /// scope. The end of a kernel hands the QP over.
  cta,
};

/// How the NIC learns of new work. PRM "send_dbr_mode".
enum class Doorbell {
  /// By the doorbell record, then the register.
  record,
  /// By the register alone: one fence less.
  no_record,
  /// The record is written; a host thread rings for the kernel. For a UAR that the GPU cannot map.
  mailbox,
  /// As `QpContext::mode` says.
  any,
};

/// The place of ring, doorbell record and CQEs. Indices and flags are always in device memory.
enum class Queues {
  /// In device memory: fences of gpu scope.
  device,
  /// In host memory: fences of system scope.
  host,
  /// As `QpContext::mode` says.
  any,
};

/// The CQ that the NIC writes.
enum class CqKind {
  /// One CQE, which the NIC overwrites at each completion.
  collapsed,
  /// `depth` CQEs: the cause of a failure survives the flush after it.
  wide,
  /// As `QpContext::mode` says.
  any,
};

/// The name of a post: the index after its last WQEBB. Indices grow over the life of the QP and
/// never wrap.
struct Ticket {
  uint64_t index;
  /// The post was held back: it is rung only by a flush, a wait or a later post.
  bool held = false;

  /// Returns the ticket of something that is complete already: every wait for it is `ok`.
  WV_DEVICE static Ticket done() { return {~uint64_t{0}}; }
  WV_DEVICE bool is_done() const { return index == ~uint64_t{0}; }
};

/// How a post ended, and its ticket if `status` is `ok`.
struct Posted {
  Status status;
  Ticket ticket;
};

/// One QP, opened by `open_qp`. It is cheap to make: four loads of constants. It holds nothing that
/// a recovery changes.
///
/// The parameters fix the kind of QP at compile time. Each `any` costs a branch where the kind
/// matters. Functions take the whole type: `template <class Scope, class Q> f(Scope, const Q& qp)`.
template <Sharing S, Doorbell D = Doorbell::record, Queues Q = Queues::device,
          CqKind C = CqKind::collapsed>
struct Qp {
  static constexpr Sharing SHARING = S;

  QpContext* context;
  uint8_t* sq;
  uint64_t* flags;
  uint32_t* dbrec;
  uint64_t* doorbell;
  const uint8_t* cqe;
  uint32_t qpn_be;
  uint32_t mask;
  uint32_t depth;
  uint32_t mode;

  WV_DEVICE static constexpr bool is_exclusive() { return S == Sharing::exclusive; }
  WV_DEVICE static constexpr bool is_cta() { return S == Sharing::cta; }
  /// Returns whether the QP has a doorbell record.
  WV_DEVICE bool has_record() const {
    if constexpr (D == Doorbell::any) return (mode & MODE_NO_RECORD) == 0;
    return D != Doorbell::no_record;
  }
  /// Returns whether a host thread rings for the kernel.
  WV_DEVICE bool has_mailbox() const {
    if constexpr (D == Doorbell::any) return (mode & MODE_MAILBOX) != 0;
    return D == Doorbell::mailbox;
  }
  /// Returns whether ring, record and CQEs lie in host memory.
  WV_DEVICE bool in_host_memory() const {
    if constexpr (Q == Queues::any) return (mode & MODE_HOST_QUEUES) != 0;
    return Q == Queues::host;
  }
  /// Returns whether the CQ has a CQE per WQE.
  WV_DEVICE bool has_wide_cq() const {
    if constexpr (C == CqKind::any) return (mode & MODE_WIDE_CQ) != 0;
    return C == CqKind::wide;
  }

  /// Returns the words that end a wait on this QP.
  WV_DEVICE Watch watch() const { return {&context->err, &context->abort}; }

  /// Returns whether this type fits a QP of this `mode`.
  WV_DEVICE static constexpr bool accepts(uint32_t mode) {
    const bool both = (mode & MODE_NO_RECORD) != 0 && (mode & MODE_MAILBOX) != 0;
    return !both && (mode & FIXED) == BITS;
  }

 private:
  // The mode bits that the parameters fix, and their values.
  static constexpr uint32_t FIXED =
      MODE_EXCLUSIVE | MODE_CTA | (D == Doorbell::any ? 0 : MODE_NO_RECORD | MODE_MAILBOX) |
      (Q == Queues::any ? 0 : MODE_HOST_QUEUES) | (C == CqKind::any ? 0 : MODE_WIDE_CQ);
  static constexpr uint32_t BITS =
      (S == Sharing::exclusive ? MODE_EXCLUSIVE : 0) | (S == Sharing::cta ? MODE_CTA : 0) |
      (D == Doorbell::no_record ? MODE_NO_RECORD : 0) |
      (D == Doorbell::mailbox ? MODE_MAILBOX : 0) | (Q == Queues::host ? MODE_HOST_QUEUES : 0) |
      (C == CqKind::wide ? MODE_WIDE_CQ : 0);
};

/// A QP type that fixes only the sharing.
template <Sharing S>
using AnyQp = Qp<S, Doorbell::any, Queues::any, CqKind::any>;

/// Returns the QP at `context`, which was opened as a `Q` before.
template <class Q>
WV_DEVICE Q reopen(QpContext* context) {
  const auto rings = platform::load16_const(&context->sq);
  const auto bells = platform::load16_const(&context->dbrec);
  const auto cqes = platform::load16_const(&context->cqe);
  const auto shape = platform::load16_const(&context->qpn_be);
  Q qp{};
  qp.context = context;
  qp.sq = reinterpret_cast<uint8_t*>(rings.lo);
  qp.flags = reinterpret_cast<uint64_t*>(rings.hi);
  qp.dbrec = reinterpret_cast<uint32_t*>(bells.lo);
  qp.doorbell = reinterpret_cast<uint64_t*>(bells.hi);
  qp.cqe = reinterpret_cast<const uint8_t*>(cqes.lo);
  qp.qpn_be = static_cast<uint32_t>(shape.lo);
  qp.mask = static_cast<uint32_t>(shape.lo >> 32);
  qp.depth = static_cast<uint32_t>(shape.hi);
  qp.mode = static_cast<uint32_t>(shape.hi >> 32);
  return qp;
}

/// Opens the QP at `context` as a `Q`.
///
/// @return `invalid` if `context` is null or the host made another kind of QP; then `*qp` must not
/// be used.
template <class Q>
WV_DEVICE Status open_qp(QpContext* context, Q* qp) {
  if (context == nullptr) return Status::invalid;
  *qp = reopen<Q>(context);
  return Q::accepts(qp->mode) ? Status::ok : Status::invalid;
}

}  // namespace wv
