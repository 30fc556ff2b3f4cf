// Many threads put 8-byte words on one shared QP; each waits for its own tickets.
#include <warpverbs/wait.cuh>

#include "abi.h"

extern "C" __global__ void wv_test_put_words(wv::PutWordsParams p) {
  const uint32_t thread = wv::thread_in_grid();
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  wv::Qp<wv::Sharing::shared> qp;
  wv::Status status = wv::open_qp(p.qp, &qp);
  const wv::PeerWindow peer = wv::load_peer(p.peer, p.window);
  uint32_t done = 0;
  for (; status == wv::Status::ok && done < p.count; ++done) {
    const uint64_t at = (uint64_t{thread} * p.count + done) * 8;
    wv::Put put{{}, {}, 8};
    if (!peer.at(p.dst_offset + at, 8, &put.dst) ||
        !wv::local_at(p.window, p.src_offset + at, 8, &put.src)) {
      status = wv::Status::invalid;
      break;
    }
    const bool last = done + 1 == p.count;
    const bool ask = last || (p.wait_every != 0 && (done + 1) % p.wait_every == 0);
    const wv::Posted posted = wv::put(wv::Thread{}, qp, put, {deadline, ask});
    status = posted.status;
    if (status == wv::Status::ok && ask) {
      status = wv::wait(wv::Thread{}, qp, posted.ticket, deadline);
    }
    if (status != wv::Status::ok) break;
  }
  p.status[thread] = status;
  p.done[thread] = done;
}
WV_EXPORT(wv_test_put_words)
