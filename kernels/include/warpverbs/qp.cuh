// A QP as one thread holds it: the constant line of its context in registers.
#pragma once

#include "abi.h"
#include "spin.cuh"

namespace wv {

/// How many threads may use a QP at the same time. Fixed when the host makes the QP; `open_qp`
/// checks it.
enum class Sharing {
  /// Any number, in any blocks: the parked-token protocol of sq.cuh.
  shared,
  /// One thread or one warp at a time, waits included: no atomics, no flags. Whoever hands it over
  /// orders memory (barrier,
  /// or release and acquire at gpu scope).
  exclusive,
};

/// Names a post: one past its last WQEBB. Grows over the life of the QP, never wraps.
struct Ticket {
  uint64_t index;
};

/// How a post ended, and its ticket if `status` is `ok`.
struct Posted {
  Status status;
  Ticket ticket;
};

/// One QP, opened by `open_qp`. Cheap to make: four loads of constants. Holds nothing that a
/// recovery changes.
template <Sharing S>
struct Qp {
  QpContext* context;
  uint8_t* sq;
  uint64_t* flags;
  uint32_t* dbrec;
  uint64_t* doorbell;
  const uint8_t* cqe;
  uint32_t qpn_be;
  uint32_t mask;
  uint32_t depth;

  /// What ends a wait on this QP.
  WV_DEVICE Watch watch() const { return {&context->err, &context->abort}; }
};

/// Opens the QP at `context` for the given kind of use.
///
/// @return `invalid` if there is no QP (null) or the host made it for the other kind of use; then
/// `*qp` must not be used.
template <Sharing S>
WV_DEVICE Status open_qp(QpContext* context, Qp<S>* qp) {
  if (context == nullptr) return Status::invalid;
  const auto rings = platform::load16_const(&context->sq);
  const auto bells = platform::load16_const(&context->dbrec);
  const auto shape = platform::load16_const(&context->qpn_be);
  qp->context = context;
  qp->sq = reinterpret_cast<uint8_t*>(rings.lo);
  qp->flags = reinterpret_cast<uint64_t*>(rings.hi);
  qp->dbrec = reinterpret_cast<uint32_t*>(bells.lo);
  qp->doorbell = reinterpret_cast<uint64_t*>(bells.hi);
  qp->cqe = context->cqe_line;
  qp->qpn_be = static_cast<uint32_t>(shape.lo);
  qp->mask = static_cast<uint32_t>(shape.lo >> 32);
  qp->depth = static_cast<uint32_t>(shape.hi);
  const bool exclusive = (shape.hi >> 32 & MODE_EXCLUSIVE) != 0;
  return exclusive == (S == Sharing::exclusive) ? Status::ok : Status::invalid;
}

}  // namespace wv
