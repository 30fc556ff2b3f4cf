// How the NIC learns how far to run: by the doorbell record, the register, or a host thread's
// mailbox.
//
// Only the holder of the doorbell token, or the user of an exclusive QP, calls these functions.
#pragma once

#include "order.cuh"

namespace wv::sq {

inline constexpr uint32_t DBREC_SEND = 1;  // u32 of the doorbell record

/// Writes the doorbell record for everything below `end`, and `doorbell_index` and `doorbells`,
/// then fences. `doorbells` is the number of this doorbell, from 1.
///
/// On a QP without a record, this fence alone stands between the WQEs and the doorbell.
template <class Q>
WV_DEVICE void record(const Q& qp, uint64_t end, uint64_t doorbells) {
  platform::store_relaxed(&qp.context->doorbell_index, end);
  platform::store_relaxed(&qp.context->doorbells, doorbells);
  if (qp.has_record()) {
    // Big-endian: the low half of `end`, swapped, in the last two bytes.
    platform::store_relaxed_sys(qp.dbrec + DBREC_SEND,
                                platform::permute(static_cast<uint32_t>(end), 0, 0x0144));
  }
  // Release. Pairs with the NIC, which reads the record after the doorbell. Pairs with the next
  // holder of the token, whose record must land after this one (I4). On a QP with a mailbox it
  // pairs with the acquire of the host thread that rings.
  if (qp.has_mailbox()) {
    platform::fence_release_sys();
  } else {
    order::fence_nic(qp);
  }
}

/// Writes the record as above, if the caller has not read the number of doorbells.
template <class Q>
WV_DEVICE void record(const Q& qp, uint64_t end) {
  record(qp, end, platform::load_relaxed(&qp.context->doorbells) + 1);
}

/// Rings: the NIC runs everything below `end`. Two doorbells may land in either order: the NIC
/// ignores the older one.
template <class Q>
WV_DEVICE void ring(const Q& qp, uint64_t end) {
  if (qp.has_mailbox()) {
    platform::reduce_max_sys(qp.doorbell, end);
    return;
  }
  // Big-endian: the low half of `end`, swapped, in the middle bytes.
  const uint32_t next = platform::permute(static_cast<uint32_t>(end), 0, 0x4014);
  platform::store_mmio(qp.doorbell, uint64_t{qp.qpn_be} << 32 | next);
}

}  // namespace wv::sq
