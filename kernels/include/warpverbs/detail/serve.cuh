// The holder of the doorbell token: it follows published batches, rings, and parks the token.
//
// Flag words:
// - S(i, owed) = owed << 63 | i << 1 | 1: the token is parked at i; owed: some batch below i is
//   not rung.
// - R(i, n, more) = n << 49 | more << 48 | i << 1: batch [i, i + n) is written; more: no thread
//   needs it to be rung yet.
// Indices in flag words are the low 47 bits.
#pragma once

#include "doorbell.cuh"

namespace wv::sq {

inline constexpr uint64_t OWED = uint64_t{1} << 63;
inline constexpr uint64_t MORE = uint64_t{1} << 48;
inline constexpr uint64_t INDEX_BITS = MORE - 1;  // index << 1 and the token bit
inline constexpr uint32_t COUNT_SHIFT = 49;
inline constexpr uint64_t COUNT_MAX = (uint64_t{1} << 14) - 1;

WV_DEVICE uint64_t parked(uint64_t index) { return (index << 1 | 1) & INDEX_BITS; }
WV_DEVICE uint64_t ready(uint64_t index, uint32_t n, bool more) {
  return uint64_t{n} << COUNT_SHIFT | (more ? MORE : 0) | (index << 1 & INDEX_BITS);
}
WV_DEVICE bool is_parked(uint64_t flag, uint64_t index) { return (flag & ~OWED) == parked(index); }

/// Returns whether `flag` is R(index, ..).
WV_DEVICE bool is_ready(uint64_t flag, uint64_t index) {
  return ((flag ^ index << 1) & INDEX_BITS) == 0;
}

/// What a holder of the token knows.
struct Hold {
  /// The end of the published batches: everything below this index is published.
  uint64_t end;
  /// True if something below `end` must be rung.
  bool must;
};

/// Follows published batches. Returns the flag word at which it stopped.
template <class Q>
WV_DEVICE uint64_t scan(const Q& qp, Hold* hold) {
  uint64_t flag;
  bool wanted = false;
  for (;;) {
    flag = order::load_flag(qp, qp.flags + (hold->end & qp.mask));
    if (!is_ready(flag, hold->end)) break;
    hold->end += flag >> COUNT_SHIFT & COUNT_MAX;
    wanted |= (flag & MORE) == 0;
  }
  hold->must = hold->must || wanted;
  // Pairs with the release of each publisher of the block. From here this thread hands their WQEs
  // on, to the NIC or to the next holder.
  if constexpr (Q::is_cta()) platform::fence_acq_rel_cta();
  return flag;
}

/// Parks the token at `end`. Returns false if a batch was published there since `flag` was read.
template <class Q>
WV_DEVICE bool park(const Q& qp, uint64_t end, uint64_t flag, uint64_t owed) {
  return order::swap_flag(qp, qp.flags + (end & qp.mask), flag, parked(end) | owed);
}

/// Parks the token at the end of batches that no thread needs to be rung yet.
template <class Q>
WV_DEVICE bool hold_back(const Q& qp, uint64_t end, uint64_t flag) {
  // Release. Orders this thread's WQEs before the token moves on. Pairs with the NIC, through the
  // doorbell of the next holder, which does not know of these WQEs otherwise. On a QP with a
  // record, or a cta QP, earlier fences have done it.
  if (!Q::is_cta() && !qp.has_record()) order::fence_nic(qp);
  return park(qp, end, flag, 0);
}

/// Makes the NIC run everything below `end`. On a cta QP this fence orders the WQEs of all threads.
template <class Q>
WV_DEVICE void announce(const Q& qp, uint64_t end, uint64_t doorbells) {
  // Release. Orders the WQEs before the record: pairs with the NIC, which may read the record on
  // behalf of an older doorbell (I3). On other QPs each publisher's own fence has done it.
  if (Q::is_cta() && qp.has_record()) order::fence_nic(qp);
  record(qp, end, doorbells);
}

/// Rings if something must be rung, and parks the token: one round. Returns false if a batch was
/// published meanwhile and the token is still held.
template <class Q>
WV_DEVICE bool serve_round(const Q& qp, Hold* hold) {
  const uint64_t doorbells = platform::load_relaxed(&qp.context->doorbells);
  const uint64_t flag = scan(qp, hold);
  if (!hold->must) return hold_back(qp, hold->end, flag);
  announce(qp, hold->end, doorbells + 1);
  ring(qp, hold->end);
  hold->must = false;
  return park(qp, hold->end, flag, 0);
}

/// Tries once to get rid of the token without ringing first. The NIC completes nothing beyond the
/// last doorbell while none is sent. So admission grants at most `depth` more WQEBBs, and after at
/// most `depth` tries one succeeds.
template <class Q>
WV_DEVICE bool leave(const Q& qp, Hold* hold) {
  const uint64_t flag = scan(qp, hold);
  const uint64_t end = hold->end;
  if (!hold->must) return hold_back(qp, end, flag);
  if (order::load_index(qp, &qp.context->resv) > end) {
    // Another thread owns this index and has its ring space. So that thread publishes without
    // waiting, finds the token, and rings.
    return park(qp, end, flag, OWED);
  }
  announce(qp, end, platform::load_relaxed(&qp.context->doorbells) + 1);
  if (!park(qp, end, flag, 0)) return false;
  ring(qp, end);  // after parking: the NIC ignores an older doorbell that lands late
  return true;
}

/// Serves other threads too: some rounds, then the end of service. Bounded by `rounds` and by
/// `depth` tries to leave.
template <class Q>
WV_DEVICE_COLD void serve_on(QpContext* context, uint64_t end, bool must, uint32_t rounds) {
  const Q qp = reopen<Q>(context);
  Hold hold{end, must};
  for (; rounds != 0; --rounds) {
    if (serve_round(qp, &hold)) return;
  }
  while (!leave(qp, &hold)) {
  }
}

/// Rings if it must, and parks the token. The caller holds the token, and everything below `end` is
/// published. Bounded.
template <class Q>
WV_DEVICE void serve(const Q& qp, uint64_t end, bool must, uint32_t rounds) {
  uint64_t* const word = qp.flags + (end & qp.mask);
  const uint64_t doorbells = platform::load_relaxed(&qp.context->doorbells);
  const uint64_t flag = order::load_flag(qp, word);
  if (!is_ready(flag, end)) {  // no batch is after this one: a round for this batch alone
    // Pairs with the release of each publisher of the block, as in scan.
    if constexpr (Q::is_cta()) platform::fence_acq_rel_cta();
    if (!must) {
      if (hold_back(qp, end, flag)) return;
    } else {
      announce(qp, end, doorbells + 1);
      ring(qp, end);
      if (park(qp, end, flag, 0)) return;
    }
    --rounds;
    must = false;
  }
  serve_on<Q>(qp.context, end, must, rounds);
}

}  // namespace wv::sq
