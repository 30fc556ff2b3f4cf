// One device call per kernel, for counting instructions in the compiler's output. Never launched.
#include <warpverbs/wait.cuh>

#include "abi.h"

using wv::Sharing;
using wv::Thread;
using wv::Warp;

namespace {

/// Calls `post(qp, put, options)` for word 0 of the window.
template <Sharing S, class Post>
WV_DEVICE void once(const wv::PutWordsParams& p, Post post) {
  wv::Qp<S> qp;
  if (wv::open_qp(p.qp, &qp) != wv::Status::ok) return;
  const wv::Put put{{p.dst_offset, 0}, {p.src_offset, p.window.lkey_be}, p.count};
  *p.status = post(qp, put, wv::PostOptions{{p.deadline_ns}});
}

struct Pair {
  uint64_t first;
  uint64_t second;
};

}  // namespace

extern "C" __global__ void wv_cost_put_thread(wv::PutWordsParams p) {
  once<Sharing::shared>(p, [](const auto& qp, const auto& put, const auto& options) {
    return wv::put(Thread{}, qp, put, options).status;
  });
}

extern "C" __global__ void wv_cost_put_warp(wv::PutWordsParams p) {
  once<Sharing::shared>(p, [](const auto& qp, const auto& put, const auto& options) {
    return wv::put(Warp{}, qp, put, options).status;
  });
}

extern "C" __global__ void wv_cost_put_exclusive(wv::PutWordsParams p) {
  once<Sharing::exclusive>(p, [](const auto& qp, const auto& put, const auto& options) {
    return wv::put(Thread{}, qp, put, options).status;
  });
}

extern "C" __global__ void wv_cost_put_signal(wv::PutWordsParams p) {
  once<Sharing::shared>(p, [&](const auto& qp, const auto& put, const auto& options) {
    return wv::put_signal(Thread{}, qp, put, put.dst, Pair{p.count, 1}, options).status;
  });
}

extern "C" __global__ void wv_cost_wait_ticket(wv::PutWordsParams p) {
  once<Sharing::shared>(p, [&](const auto& qp, const auto&, const auto& options) {
    return wv::wait(Thread{}, qp, {p.count}, options.deadline);
  });
}

extern "C" __global__ void wv_cost_wait_signal(wv::PutWordsParams p) {
  once<Sharing::shared>(p, [&](const auto& qp, const auto& put, const auto& options) {
    const auto* word = reinterpret_cast<const uint64_t*>(put.src.addr);
    uint64_t seen;
    return wv::wait_word(
        Thread{}, word, qp.watch(), options.deadline, [](uint64_t v) { return v != 0; }, &seen);
  });
}
