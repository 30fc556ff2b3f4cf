// Posts without ever looking at completions: what the host's proof of ring space is about.
#include <warpverbs/put.cuh>
#include <warpverbs/wait.cuh>

#include "abi.h"

using wv::Status;

namespace {

template <class Scope>
WV_DEVICE void post(const wv::NoPollParams& p, Scope scope, uint32_t place) {
  const wv::TeamContext& team = *p.team;
  const wv::PeerWindow there = wv::load_peer(team, p.window, p.peer, wv::qp_rail(team, p.qp));
  const uint64_t at = uint64_t{wv::thread_in_grid()} * 8;
  const wv::Deadline deadline = wv::Deadline::in(40'000'000'000);
  const bool active = place < p.active;
  wv::AnyQp<wv::Sharing::shared> qp;
  Status status = wv::open_qp(wv::peer_qp(team, p.peer, p.qp), &qp);
  wv::Put what{{}, {}, 8};
  const bool inside = there.at(p.dst_offset + at, 8, &what.dst) &&
                      wv::local_at(wv::rail_window(team, p.window, there), at, 8, &what.src);
  if (status == Status::ok && !inside) status = Status::invalid;
  // Unsignalled, and refused rather than made to wait: nothing here polls.
  const wv::PostOptions options{deadline, false, true};
  const uint64_t value = at;
  if (scope.any(status != Status::ok)) status = Status::invalid;
  for (uint32_t call = 0; call < p.calls && status == Status::ok; ++call) {
    switch (p.op) {
      case 0:
        status = wv::put(scope, qp, what, options, active).status;
        break;
      case 1:
        status = wv::put_signal(scope, qp, what, what.dst, value, options, active).status;
        break;
      case 2:
        status = wv::signal(scope, qp, what.dst, value, options).status;
        break;
      case 3:
        status = wv::fence(scope, qp, options).status;
        break;
      default:
        status = wv::quiet(scope, qp, deadline);
    }
  }
  p.status[wv::thread_in_grid()] = status;
}

}  // namespace

extern "C" __global__ void wv_test_no_poll_thread(wv::NoPollParams p) { post(p, wv::Thread{}, 0); }
WV_EXPORT(wv_test_no_poll_thread)

extern "C" __global__ void wv_test_no_poll_warp(wv::NoPollParams p) {
  post(p, wv::Warp{}, wv::lane());
}
WV_EXPORT(wv_test_no_poll_warp)

extern "C" __global__ void wv_test_no_poll_block(wv::NoPollParams p) {
  post(p, wv::Block{}, wv::thread_in_block());
}
WV_EXPORT(wv_test_no_poll_block)
