// Several QPs at once: quiet of the team and of a peer, and wait_any. One warp.
#include <warpverbs/path.cuh>
#include <warpverbs/quiet.cuh>

#include "abi.h"

namespace {

using wv::Deadline;
using wv::Status;
using Q = wv::AnyQp<wv::Sharing::shared>;

constexpr uint32_t MOST = 8;

// Each lane puts `count` words by each QP, unsignalled, whose doorbells may be held back.
WV_DEVICE Status put_all(const wv::OpsSeveralParams& p, const wv::TeamContext& team,
                         Deadline deadline) {
  for (uint32_t i = 0; i < team.qps_per_peer; ++i) {
    wv::Path<Q> path;
    Status status = wv::open_path(team, p.peer, i, p.window, &path);
    for (uint32_t k = 0; status == Status::ok && k < p.count; ++k) {
      const uint64_t word = (uint64_t{i} * p.count + k) * 32 + wv::lane();
      wv::Put put{{}, {}, 8};
      if (!path.at(p.dst_offset + 8 * word, 8, &put.dst) || !path.at(8 * word, 8, &put.src)) {
        return Status::invalid;
      }
      status = wv::put(wv::Warp{}, path, put, {deadline, false, false, true}).status;
    }
    if (status != Status::ok) return status;
  }
  return Status::ok;
}

// One word by each QP, then one wait for whichever is done, until all are. `ended[i]` is how QP i
// ended, `order[i]` when.
WV_DEVICE void one_by_one(const wv::OpsSeveralParams& p, const wv::TeamContext& team,
                          Deadline deadline) {
  wv::Path<Q> paths[MOST];
  wv::Pending<Q> pending[MOST];
  uint32_t number[MOST];
  uint32_t count = 0;
  for (uint32_t i = 0; i < team.qps_per_peer && i < MOST; ++i) {
    Status status = wv::open_path(team, p.peer, i, p.window, &paths[i]);
    wv::Put put{{}, {}, 8};
    const bool inside =
        paths[i].at(p.dst_offset + 8 * i, 8, &put.dst) && paths[i].at(8 * i, 8, &put.src);
    if (status == Status::ok && !inside) status = Status::invalid;
    if (status == Status::ok) {
      const wv::Posted posted = wv::put(wv::Thread{}, paths[i], put, {deadline});
      status = posted.status;
      pending[count] = {&paths[i].qp, posted.ticket};
    }
    p.ended[i] = status;
    if (status == Status::ok) number[count++] = i;
  }
  for (uint32_t round = 0; count != 0; ++round) {
    uint32_t which = count;
    const Status status = wv::wait_any(wv::Thread{}, pending, count, deadline, &which);
    if (which >= count) break;
    p.ended[number[which]] = status;
    p.order[number[which]] = round;
    --count;
    pending[which] = pending[count];
    number[which] = number[count];
  }
}

}  // namespace

extern "C" __global__ void wv_test_ops_several(wv::OpsSeveralParams p) {
  const wv::TeamContext team = *p.team;
  const Deadline deadline = Deadline::in(p.deadline_ns);
  Status status = Status::ok;
  if (p.mode == 2) {
    if (wv::lane() == 0) one_by_one(p, team, deadline);
  } else {
    status = put_all(p, team, deadline);
    if (status == Status::ok) {
      status = p.mode == 0 ? wv::quiet(wv::Warp{}, team, deadline)
                           : wv::quiet(wv::Warp{}, team, p.peer, deadline);
    }
  }
  if (wv::lane() == 0) *p.status = status;
}
WV_EXPORT(wv_test_ops_several)
