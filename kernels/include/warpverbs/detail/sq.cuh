// Posting to one send queue from any number of threads: the parked-token protocol.
//
// - admit asks for ring space (`claim`). A post waits here alone, and holds nothing while it waits.
// - reserve takes indices (`resv`). They fit for certain: from here to publication no thread waits.
// - write fills the WQEs (wqe.cuh).
// - publish exchanges the flag word of the first index. A QP has one doorbell token. A thread holds
//   it, or it is parked in the flag word of the first index that is not published. The thread that
//   finds it in its flag word holds it now.
// - serve: the holder rings for itself and for all that was published after it, then parks it.
//
// The protocol has no lock and no head word, and no thread waits for a predecessor. The first two
// steps are in admit.cuh, the flag words and the last step in serve.cuh. What the NIC sees is in
// doorbell.cuh, the scopes of words and fences are in order.cuh.
//
// The model of the posting protocol checks it against non-FIFO store buffers. Its invariants have
// names here, too: I1 a reservation fits, I3 the NIC runs exactly the WQE due. I4 the doorbell
// record is monotone and never behind a doorbell, I5 no doorbell is lost.
#pragma once

#include "admit.cuh"
#include "serve.cuh"

namespace wv::sq {

/// Most WQEBBs of one batch: a quarter of the ring. Of any quarter one WQE is signalled, so that
/// space comes free.
template <class Q>
WV_DEVICE uint32_t max_batch(const Q& qp) {
  return qp.depth / 4;
}

/// Whether batch [index, index + n) passes a quarter of the ring. The last WQE of such a batch must
/// be signalled although no caller asked, and the batch is not held back.
template <class Q>
WV_DEVICE bool passes_quarter(const Q& qp, uint64_t index, uint32_t n) {
  const uint64_t quarter = max_batch(qp);  // a power of two
  return ((index ^ (index + n)) & ~(quarter - 1)) != 0;
}

/// Hands the written batch [index, index + n) to the NIC: rings, or leaves it to the thread that
/// holds the token.
///
/// @param more  the batch need not be rung for its own sake; not for one that passes a quarter.
/// @param rounds  how often this thread may ring for others before it leaves, at least 1.
template <class Q>
WV_DEVICE void publish(const Q& qp, uint64_t index, uint32_t n, bool more = false,
                       uint32_t rounds = SERVICE_ROUNDS) {
  if constexpr (Q::is_exclusive()) {
    if (more) return;
    const uint64_t doorbells = platform::load_relaxed(&qp.context->doorbells);
    // Release. The WQEs before the record: pairs with the NIC, which may read the record on behalf
    // of an older doorbell.
    if (qp.has_record()) order::fence_nic(qp);
    record(qp, index + n, doorbells + 1);
    ring(qp, index + n);
  } else {
    // Release. It orders the WQEs before R(index), and before this thread's own record, which the
    // NIC may read for an older doorbell (I3). Without a record, and in a block, the holder's fence
    // comes in time. It pairs with the holder's scan and, by its record, with the NIC.
    const bool fenced = !Q::is_cta() && qp.has_record();
    if (fenced) order::fence_publish(qp);
    uint64_t* const word = qp.flags + (index & qp.mask);
    // S(index) is stable once its owner has seen it, so the common case needs no exchange.
    uint64_t flag = order::load_flag(qp, word);
    if (!is_parked(flag, index)) {
      if (!fenced) order::fence_publish(qp);
      flag = order::exchange_flag(qp, word, ready(index, n, more));
      if (!is_parked(flag, index)) return;  // the holder is obliged to see it
    }
    serve(qp, index + n, !more || (flag & OWED) != 0, rounds);
  }
}

}  // namespace wv::sq
