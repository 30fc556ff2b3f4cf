// Cost kernels: waits.
#include "cost.cuh"

namespace {

/// Waits for the word at the start of the window, then reads the data after it: plain loads, as a
/// user's kernel has them, which must not take the non-coherent path.
template <class Scope, class Q>
WV_DEVICE wv::Status wait_and_read(Scope scope, const Q& qp, const uint8_t* window,
                                   wv::Deadline deadline) {
  const auto* words = reinterpret_cast<const uint64_t*>(window);
  uint64_t seen;
  const wv::Status status =
      wv::wait_word(scope, words, qp.watch(), deadline, [](uint64_t v) { return v != 0; }, &seen);
  return status == wv::Status::ok && words[2] != 0 ? wv::Status::ok : wv::Status::invalid;
}

}  // namespace

WV_COST(wait_ticket_thread_shared, Shared, wait(Thread{}, qp, {a.ticket}, a.deadline))
WV_COST(wait_ticket_thread_exclusive, Exclusive, wait(Thread{}, qp, {a.ticket}, a.deadline))
WV_COST(wait_ticket_warp_shared, Shared, wait(Warp{}, qp, {a.ticket}, a.deadline))
WV_COST(wait_signal_thread, Shared, wait_and_read(Thread{}, qp, window, a.deadline))
WV_COST(wait_signal_warp, Shared, wait_and_read(Warp{}, qp, window, a.deadline))
