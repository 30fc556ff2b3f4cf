// Ring space and indices: the first two steps of a post.
//
// Space is claimed before an index is reserved, because a claim can be taken back and an index
// cannot: who gives up here leaves the QP as it was.
#pragma once

#include "cq.cuh"
#include "order.cuh"

namespace wv::sq {

/// Waits for ring space that was not there at first sight; undoes the claim before.
template <class Q>
WV_DEVICE_COLD Status admit_late(QpContext* context, uint32_t n, Deadline deadline, bool try_only) {
  const Q qp = reopen<Q>(context);
  if constexpr (!Q::is_exclusive()) order::undo_index(qp, &context->claim, n);
  const Watch watch = qp.watch();
  if (const Status fault = watch.fault(); fault != Status::ok) return fault;
  const auto attempt = [&] {
    cq::poll(qp);
    const uint64_t end = platform::load_relaxed(&context->cons) + qp.depth;
    if constexpr (Q::is_exclusive()) {
      const bool fits = platform::load_relaxed(&context->resv) + n <= end;
      return fits ? Status::ok : Status::would_block;
    } else {
      // Test before add, so that waiters do not disturb each other.
      if (order::load_index(qp, &context->claim) + n > end) return Status::would_block;
      if (order::add_index(qp, &context->claim, n) + n <= end) return Status::ok;
      order::undo_index(qp, &context->claim, n);
      return Status::would_block;
    }
  };
  if (try_only) return attempt();
  const uint64_t since = platform::now_ns();
  const Status status = spin_until(watch, deadline, attempt);
  platform::reduce_add(&context->full_ring_ns, platform::now_ns() - since);
  return status;
}

/// Gets leave to reserve `n` WQEBBs (1 to max_batch). After `ok` the caller reserves, writes and
/// publishes without waiting.
///
/// @param try_only  never waits; may then refuse within one batch per poster of a full ring.
/// @return `ok`; `would_block` (only with try_only); the QP's failure, `aborted` or `timeout`. All
/// but `ok` leave the QP as it was.
template <class Q>
WV_DEVICE Status admit(const Q& qp, uint32_t n, Deadline deadline, bool try_only) {
  QpContext* const context = qp.context;
  // All four in flight together. A stale cons only refuses more; a claim that met a failure is
  // taken back like one that met a full ring.
  const uint64_t claimed = Q::is_exclusive() ? platform::load_relaxed(&context->resv)
                                             : order::add_index(qp, &context->claim, n);
  const uint64_t cons = platform::load_relaxed(&context->cons);
  const uint32_t err = platform::load_relaxed(reinterpret_cast<uint32_t*>(&context->err));
  const uint32_t abort = platform::load_relaxed_sys(&context->abort);
  if (claimed + n <= cons + qp.depth && (err | abort) == 0) return Status::ok;
  return admit_late<Q>(context, n, deadline, try_only);
}

/// Takes indices [result, result + n). Admitted before.
template <class Q>
WV_DEVICE uint64_t reserve(const Q& qp, uint32_t n) {
  if constexpr (Q::is_exclusive()) {
    const uint64_t index = platform::load_relaxed(&qp.context->resv);
    platform::store_relaxed(&qp.context->resv, index + n);
    return index;
  } else {
    return order::add_index(qp, &qp.context->resv, n);
  }
}

}  // namespace wv::sq
