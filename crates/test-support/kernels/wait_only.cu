// Waits for a ticket or a signal word, posts nothing.
#include <warpverbs/wait.cuh>

#include "abi.h"

extern "C" __global__ void wv_test_wait(wv::WaitParams p) {
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  wv::Qp<wv::Sharing::shared> qp;
  wv::Status status = wv::open_qp(p.qp, &qp);
  if (status == wv::Status::ok && p.word == nullptr) {
    status = wv::wait(wv::Thread{}, qp, {p.ticket}, deadline);
  } else if (status == wv::Status::ok) {
    uint64_t seen;
    status = wv::wait_word(
        wv::Thread{}, p.word, qp.watch(), deadline, [](uint64_t word) { return word != 0; }, &seen);
  }
  p.status[wv::thread_in_grid()] = status;
}
WV_EXPORT(wv_test_wait)
