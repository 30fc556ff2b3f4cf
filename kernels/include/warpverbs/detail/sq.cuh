// Posting to one send queue from any number of threads: the parked-token protocol.
//
// - admit asks for ring space (`claim`). A post waits only here, and holds nothing while it waits.
// - reserve takes indices (`resv`). They certainly fit: no thread waits until it has published.
// - write fills the WQEs (wqe.cuh).
// - publish exchanges the flag word of the first index. A QP has one doorbell token. Either a
//   thread holds the token, or it is parked in the flag word of the first index that is not
//   published. A thread that finds the token in its flag word becomes the holder.
// - serve: the holder rings for itself and for all that was published after it, then parks the
//   token.
//
// The protocol has no lock and no head word, and no thread waits for a predecessor. The first two
// steps are in admit.cuh, the flag words and the last step in serve.cuh. What the NIC sees is in
// doorbell.cuh, the scopes of words and fences are in order.cuh.
//
// A model checks the posting protocol against store buffers that are not FIFO. Its invariants have
// the same names in these files. I1: a reservation fits. I3: the NIC runs exactly the WQE that is
// due. I4: the doorbell record is monotone and never behind a doorbell. I5: no doorbell is lost.
#pragma once

#include "admit.cuh"
#include "serve.cuh"

namespace wv::sq {

/// Returns the largest number of WQEBBs of one batch: a quarter of the ring. Each quarter has at
/// least one signalled WQE, so that its space becomes free.
template <class Q>
WV_DEVICE uint32_t max_batch(const Q& qp) {
  return qp.depth / 4;
}

/// Returns whether batch [index, index + n) passes a quarter of the ring. The last WQE of such a
/// batch must be signalled even if no caller asked for that, and the batch is not held back.
template <class Q>
WV_DEVICE bool passes_quarter(const Q& qp, uint64_t index, uint32_t n) {
  const uint64_t quarter = max_batch(qp);  // a power of two
  return ((index ^ (index + n)) & ~(quarter - 1)) != 0;
}

/// Hands the written batch [index, index + n) to the NIC: rings, or leaves that to the holder of
/// the token.
///
/// @param more  the batch need not be rung for its own sake; false if it passes a quarter.
/// @param rounds  how often this thread may ring for others before it leaves, at least 1.
template <class Q>
WV_DEVICE void publish(const Q& qp, uint64_t index, uint32_t n, bool more = false,
                       uint32_t rounds = SERVICE_ROUNDS) {
  if constexpr (Q::is_exclusive()) {
    if (more) return;
    const uint64_t doorbells = platform::load_relaxed(&qp.context->doorbells);
    // Release. Orders the WQEs before the record: pairs with the NIC, which may read the record on
    // behalf of an older doorbell.
    if (qp.has_record()) order::fence_nic(qp);
    record(qp, index + n, doorbells + 1);
    ring(qp, index + n);
  } else {
    // Release. Orders the WQEs before R(index), and before this thread's own record, which the NIC
    // may read for an older doorbell (I3). Without a record, or on a cta QP, the fence before the
    // exchange or the holder's fence is early enough. Pairs with the holder's scan and, by its
    // record, with the NIC.
    const bool fenced = !Q::is_cta() && qp.has_record();
    if (fenced) order::fence_publish(qp);
    uint64_t* const word = qp.flags + (index & qp.mask);
    // A parked token stays until the owner of the index has seen it, so the common case needs no
    // exchange.
    uint64_t flag = order::load_flag(qp, word);
    if (!is_parked(flag, index)) {
      if (!fenced) order::fence_publish(qp);
      flag = order::exchange_flag(qp, word, ready(index, n, more));
      if (!is_parked(flag, index)) return;  // the holder must see this batch
    }
    serve(qp, index + n, !more || (flag & OWED) != 0, rounds);
  }
}

}  // namespace wv::sq
