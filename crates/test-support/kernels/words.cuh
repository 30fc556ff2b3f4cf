// What the kernels that put words have in common: which word, from where, to where.
#pragma once

#include <warpverbs/wait.cuh>

#include "abi.h"

namespace wv_test {

using wv::Deadline;
using wv::PeerWindow;
using wv::Put;
using wv::PutWordsParams;
using wv::Status;

/// Everything that one thread needs to put its words.
template <class Q>
struct Words {
  const PutWordsParams& p;
  Q qp{};
  PeerWindow peer;
  Deadline deadline;

  WV_DEVICE explicit Words(const PutWordsParams& params)
      : p(params), deadline(Deadline::in(p.deadline_ns)) {
    status = wv::open_qp(p.qp, &qp);
    peer = wv::load_peer(p.peer, p.window);
  }

  /// Word `k` of this thread. `invalid` if it is outside the window.
  WV_DEVICE Status item(uint32_t k, Put* put) const {
    const uint64_t at = (uint64_t{wv::thread_in_grid()} * p.count + k) * 8;
    put->bytes = 8;
    const bool inside = peer.at(p.dst_offset + at, 8, &put->dst) &&
                        wv::local_at(p.window, p.src_offset + at, 8, &put->src);
    return inside ? Status::ok : Status::invalid;
  }

  /// Returns whether word `k` asks for a ticket and waits for it.
  WV_DEVICE bool waits_after(uint32_t k) const {
    return k + 1 == p.count || (p.wait_every != 0 && (k + 1) % p.wait_every == 0);
  }

  /// Stores how this thread ended.
  WV_DEVICE void finish(uint32_t done) const {
    p.status[wv::thread_in_grid()] = status;
    p.done[wv::thread_in_grid()] = done;
  }

  Status status;
};

}  // namespace wv_test
