// What the doctor moves: bytes of a window to a peer, by one warp, which waits until they are
// there.
#include <warpverbs/path.cuh>

#include "abi.h"

extern "C" __global__ void wv_doctor_put(wv::DoctorPutParams p) {
  const wv::Warp warp{};
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  wv::Path<> path;
  wv::Status status = wv::open_path(*p.team, p.peer, p.qp, p.window, &path);

  // Each lane its share, the last ones a shorter one or none.
  const uint64_t share = (p.bytes + p.lanes - 1) / p.lanes;
  const uint64_t begin = share * wv::lane();
  const bool active = wv::lane() < p.lanes && begin < p.bytes;
  const uint64_t bytes = !active ? 0 : p.bytes - begin < share ? p.bytes - begin : share;
  wv::Put put{{}, {}, bytes};
  const bool inside = !active || (path.at(p.from + begin, bytes, &put.src) &&
                                  path.at(p.to + begin, bytes, &put.dst));
  if (warp.any(!inside) && status == wv::Status::ok) status = wv::Status::invalid;

  if (status == wv::Status::ok) {
    const wv::Posted posted = wv::put(warp, path, put, {deadline}, active);
    status = posted.status;
    if (status == wv::Status::ok) status = wv::wait(warp, path, posted.ticket, deadline);
  }
  if (warp.leader()) *p.outcome = status;
}
WV_EXPORT(wv_doctor_put)
