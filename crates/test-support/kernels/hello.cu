// One thread puts 8 bytes into the window of the next rank, and waits until they are there.
#include <warpverbs/put.cuh>
#include <warpverbs/wait.cuh>

struct HelloParams {  // the same #[repr(C)] struct on the host
  const wv::TeamContext* team;
  wv::Window window;
  wv::Status* status;
};

extern "C" __global__ void hello(HelloParams p) {
  const wv::TeamContext& team = *p.team;
  const uint32_t next = (team.rank + 1) % team.ranks;
  const wv::Deadline deadline = wv::Deadline::in(team.config->deadline_ns);
  wv::AnyQp<wv::Sharing::shared> qp;
  wv::Status status = wv::open_qp(wv::peer_qp(team, next, 0), &qp);
  wv::Put put{{}, {}, 8};  // from offset 0 here to offset 8 of the next rank
  if (!wv::local_at(p.window, 0, 8, &put.src) ||
      !wv::load_peer(team, p.window, next).at(8, 8, &put.dst)) {
    status = wv::Status::invalid;
  }
  if (status == wv::Status::ok) {
    const wv::Posted posted = wv::put(wv::Thread{}, qp, put, {deadline});
    status = posted.status;
    if (status == wv::Status::ok) status = wv::wait(wv::Thread{}, qp, posted.ticket, deadline);
  }
  *p.status = status;
}
WV_EXPORT(hello)
