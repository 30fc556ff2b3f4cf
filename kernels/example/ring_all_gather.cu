// Ring all-gather: every rank starts with a chunk of its own and ends with those of all ranks.
//
// In step s a rank hands a chunk on to its right neighbour, with a signal after the data on the
// same QP. It is the chunk that reached it in step s - 1, in step 0 its own. The rank then waits
// for the signal of its left neighbour. One warp. A rank may call again when all ranks have used
// what they gathered; `call` counts from 1.
#include <warpverbs/guard.cuh>
#include <warpverbs/put.cuh>
#include <warpverbs/wait.cuh>

struct AllGatherParams {
  wv::TeamContext* team;
  wv::Window window;     // `ranks` chunks, then one signal word per step
  uint64_t chunk_bytes;  // a multiple of 8
  uint64_t call;
  wv::Status* status;
};

using wv::Status;

WV_DEVICE Status gather(const AllGatherParams& p, const wv::TeamContext& team, uint32_t right) {
  const wv::Warp warp;
  const wv::Deadline deadline = wv::Deadline::in(team.config->deadline_ns);
  wv::AnyQp<wv::Sharing::shared> qp;
  Status status = wv::open_qp(wv::peer_qp(team, right, 0), &qp);
  const wv::PeerWindow there = wv::load_peer(team, p.window, right);
  wv::Posted sent{Status::ok, wv::Ticket::done()};
  for (uint32_t step = 0; status == Status::ok && step + 1 < team.ranks; ++step) {
    const uint64_t chunk = (team.rank + team.ranks - step) % team.ranks * p.chunk_bytes;
    const uint64_t word = team.ranks * p.chunk_bytes + 8 * uint64_t{step};
    wv::Put data{{}, {}, p.chunk_bytes};
    wv::RemoteAddr signal;
    if (!there.at(chunk, p.chunk_bytes, &data.dst) || !there.at(word, 8, &signal) ||
        !wv::local_at(p.window, chunk, p.chunk_bytes, &data.src)) {
      return Status::invalid;
    }
    sent = wv::put_signal(warp, qp, data, signal, p.call, {deadline}, warp.leader());
    if (sent.status != Status::ok) return sent.status;
    // The signal of a call that repeats lies where the last one did: its value distinguishes them.
    uint64_t seen;
    const auto* from_left = reinterpret_cast<const uint64_t*>(p.window.base + word);
    const auto is_here = [&](uint64_t value) { return value >= p.call; };
    status = wv::wait_word(warp, from_left, qp.watch(), deadline, is_here, &seen);
  }
  return status == Status::ok ? wv::wait(warp, qp, sent.ticket, deadline) : status;
}

extern "C" __global__ void ring_all_gather(AllGatherParams p) {
  const wv::Warp warp;
  const uint32_t right = (p.team->rank + 1) % p.team->ranks;
  wv::Guard<wv::Warp> guard;
  Status status = wv::guard_enter(warp, *p.team, right, &guard);
  if (status == Status::ok) {
    status = p.team->ranks == 1 ? Status::ok : gather(p, *p.team, right);
    wv::guard_drop(warp, guard);
  }
  if (warp.leader()) *p.status = status;
}
WV_EXPORT(ring_all_gather)
