// Posting to one send queue from any number of threads: the parked-token protocol.
//
// - admit asks for ring space (`claim`). The only place where a post waits; it holds nothing there.
// - reserve takes indices (`resv`). They fit for certain: from here to publication nobody waits.
// - write fills the WQEs (wqe.cuh).
// - publish exchanges the flag word of the first index. There is one doorbell token per QP: a
//   thread holds it, or it is parked in the flag word of the first index that is not published. Who
//   finds it there holds it now.
// - serve: the holder rings for itself and for all that was published behind it, then parks it.
//
// There is no lock, no head word, and nobody waits for a predecessor. Flag words:
//
// - S(i, owed) = owed << 63 | i << 1 | 1: the token is parked at i; owed: not all below i is rung.
// - R(i, n) = n << 49 | i << 1: batch [i, i + n) is written (bit 48 is kept for hold-back).
//
// Checked against non-FIFO store buffers by the model of the posting protocol; its names: I1 a
// reservation fits, I3 the NIC runs exactly the WQE due, I4 the doorbell record is monotone and
// never behind a doorbell, I5 no doorbell is lost.
#pragma once

#include "cq.cuh"
#include "spin.cuh"

namespace wv::sq {

inline constexpr uint64_t OWED = uint64_t{1} << 63;
inline constexpr uint64_t INDEX_BITS = (uint64_t{1} << 48) - 1;  // index << 1 and the token bit
inline constexpr uint32_t COUNT_SHIFT = 49;
inline constexpr uint64_t COUNT_MAX = (uint64_t{1} << 14) - 1;
inline constexpr uint32_t DBREC_SEND = 1;  // u32 of the doorbell record

WV_DEVICE uint64_t parked(uint64_t index) { return index << 1 | 1; }
WV_DEVICE uint64_t ready(uint64_t index, uint32_t n) {
  return uint64_t{n} << COUNT_SHIFT | index << 1;
}
WV_DEVICE bool is_parked(uint64_t flag, uint64_t index) { return (flag & ~OWED) == parked(index); }

/// Most WQEBBs of one batch: a quarter of the ring. Of any quarter one WQE is signalled, so that
/// space comes free.
template <Sharing S>
WV_DEVICE uint32_t max_batch(const Qp<S>& qp) {
  return qp.depth / 4;
}

/// Whether the last WQE of batch [index, index + n) must be signalled although nobody asked: it
/// passes a quarter.
template <Sharing S>
WV_DEVICE bool passes_quarter(const Qp<S>& qp, uint64_t index, uint32_t n) {
  const uint64_t quarter = max_batch(qp);  // a power of two
  return ((index ^ (index + n)) & ~(quarter - 1)) != 0;
}

/// Gets leave to reserve `n` WQEBBs (1 to max_batch). After `ok` the caller reserves, writes and
/// publishes without waiting.
///
/// @param try_only  never waits; may then refuse within one batch per poster of a full ring.
/// @return `ok`; `would_block` (only with try_only); the QP's failure, `aborted` or `timeout`. All
/// but `ok` leave the QP as it was.
WV_DEVICE Status admit(const Qp<Sharing::shared>& qp, uint32_t n, Deadline deadline,
                       bool try_only) {
  QpContext* const context = qp.context;
  const Watch watch = qp.watch();
  if (const Status fault = watch.fault(); fault != Status::ok) return fault;
  bool refused = false;
  const auto attempt = [&] {
    if (refused) {  // test before add, so that waiters do not disturb each other
      cq::poll(qp);
      const uint64_t claimed = platform::load_relaxed(&context->claim);
      if (claimed + n > platform::load_relaxed(&context->cons) + qp.depth)
        return Status::would_block;
    }
    // A stale cons only refuses more. A sum can be taken back; an index could not.
    const uint64_t claimed = platform::add_relaxed(&context->claim, uint64_t{n});
    if (claimed + n <= platform::load_relaxed(&context->cons) + qp.depth) return Status::ok;
    platform::reduce_add(&context->claim, ~uint64_t{n} + 1);
    refused = true;
    return Status::would_block;
  };
  if (try_only) return attempt();
  return spin_until(watch, deadline, attempt);
}

/// The same for the only user of an exclusive QP.
WV_DEVICE Status admit(const Qp<Sharing::exclusive>& qp, uint32_t n, Deadline deadline,
                       bool try_only) {
  QpContext* const context = qp.context;
  const Watch watch = qp.watch();
  if (const Status fault = watch.fault(); fault != Status::ok) return fault;
  const uint64_t end = platform::load_relaxed(&context->resv) + n;
  if (end <= platform::load_relaxed(&context->cons) + qp.depth) return Status::ok;
  const auto attempt = [&] {
    cq::poll(qp);
    const bool fits = end <= platform::load_relaxed(&context->cons) + qp.depth;
    return fits ? Status::ok : Status::would_block;
  };
  if (try_only) return attempt();
  return spin_until(watch, deadline, attempt);
}

/// Takes indices [result, result + n). Admitted before.
WV_DEVICE uint64_t reserve(const Qp<Sharing::shared>& qp, uint32_t n) {
  return platform::add_relaxed(&qp.context->resv, uint64_t{n});
}
WV_DEVICE uint64_t reserve(const Qp<Sharing::exclusive>& qp, uint32_t n) {
  const uint64_t index = platform::load_relaxed(&qp.context->resv);
  platform::store_relaxed(&qp.context->resv, index + n);
  return index;
}

/// Writes the doorbell record (and what `doorbell_index` says) up to `end`, then fences.
template <Sharing S>
WV_DEVICE void record(const Qp<S>& qp, uint64_t end) {
  platform::store_relaxed(&qp.context->doorbell_index, end);
  platform::store_relaxed_sys(qp.dbrec + DBREC_SEND,
                              platform::byteswap(static_cast<uint32_t>(end) & 0xffff));
  // Release. Pairs with the NIC, which reads the record after the doorbell, and with the next
  // holder of the token, whose record must land behind this one (I4).
  platform::fence_release();
}

/// Rings: the NIC runs everything below `end`.
template <Sharing S>
WV_DEVICE void ring(const Qp<S>& qp, uint64_t end) {
  const uint32_t next = platform::byteswap((static_cast<uint32_t>(end) & 0xffff) << 8);
  platform::store_mmio(qp.doorbell, uint64_t{qp.qpn_be} << 32 | next);
}

/// Follows published batches from `*end`; returns the flag word that stopped it.
WV_DEVICE uint64_t scan(const Qp<Sharing::shared>& qp, uint64_t* end) {
  for (;;) {
    const uint64_t flag = platform::load_relaxed(qp.flags + (*end & qp.mask));
    const uint64_t n = flag >> COUNT_SHIFT & COUNT_MAX;
    if ((flag & INDEX_BITS) != *end << 1 || n == 0) return flag;
    *end += n;
  }
}

/// Parks the token at `end` unless a batch was published there since `flag` was read.
WV_DEVICE bool park(const Qp<Sharing::shared>& qp, uint64_t end, uint64_t flag, uint64_t owed) {
  uint64_t* const word = qp.flags + (end & qp.mask);
  return platform::compare_exchange_relaxed(word, flag, parked(end) | owed) == flag;
}

/// Rings and parks, up to `rounds` times. False: batches kept coming, the token is still held.
WV_DEVICE bool serve_rounds(const Qp<Sharing::shared>& qp, uint64_t* end, uint32_t rounds) {
  for (uint32_t round = 0; round < rounds; ++round) {
    const uint64_t flag = scan(qp, end);
    record(qp, *end);
    ring(qp, *end);
    if (park(qp, *end, flag, 0)) return true;
  }
  return false;
}

/// Gets rid of the token without ringing first. While no doorbell is sent the NIC completes nothing
/// beyond the last one, so admission grants at most `depth` more WQEBBs and one of as many tries
/// succeeds. False: the NIC ran ahead of its doorbell.
WV_DEVICE bool leave(const Qp<Sharing::shared>& qp, uint64_t* end) {
  for (uint32_t attempt = 0; attempt < qp.depth; ++attempt) {
    const uint64_t flag = scan(qp, end);
    if (platform::load_relaxed(&qp.context->resv) > *end) {
      // Somebody owns this index and has its ring space, so he will publish without waiting, meet
      // the token, and ring.
      if (park(qp, *end, flag, OWED)) return true;
    } else {
      record(qp, *end);
      if (park(qp, *end, flag, 0)) {
        ring(qp, *end);  // after parking: an older doorbell that lands late is ignored
        return true;
      }
    }
  }
  return false;
}

/// This thread holds the token and everything below `end` is published: rings, and parks the token.
/// Bounded.
WV_DEVICE void serve(const Qp<Sharing::shared>& qp, uint64_t end, uint32_t rounds) {
  while (!serve_rounds(qp, &end, rounds) && !leave(qp, &end)) {
  }
}

/// Hands the written batch [index, index + n) to the NIC: rings, or leaves it to the thread that
/// holds the token.
///
/// @param rounds  how often this thread may ring for others before it leaves, at least 1.
WV_DEVICE void publish(const Qp<Sharing::shared>& qp, uint64_t index, uint32_t n,
                       uint32_t rounds = SERVICE_ROUNDS) {
  // Release. The WQEs before R(index), pairs with the holder's scan and, through its record, with
  // the NIC; and before this thread's own record, which the NIC may read on behalf of an older
  // doorbell (I3).
  platform::fence_release();
  uint64_t* const word = qp.flags + (index & qp.mask);
  // S(index) is stable once its owner has seen it, so the common case needs no exchange.
  uint64_t flag = platform::load_relaxed(word);
  if (!is_parked(flag, index)) {
    flag = platform::exchange_relaxed(word, ready(index, n));
    if (!is_parked(flag, index)) return;  // the holder is obliged to see it
  }
  serve(qp, index + n, rounds);
}

WV_DEVICE void publish(const Qp<Sharing::exclusive>& qp, uint64_t index, uint32_t n) {
  // Release. The WQEs before the record, which the NIC may read on behalf of an older doorbell.
  platform::fence_release();
  record(qp, index + n);
  ring(qp, index + n);
}

}  // namespace wv::sq
