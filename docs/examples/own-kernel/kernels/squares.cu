// Each lane puts the square of its number to the next rank, and waits for the signal of the
// previous one.
#include <warpverbs/put.cuh>
#include <warpverbs/wait.cuh>

struct SquaresParams {
  const wv::TeamContext* team;
  wv::Window window;  // 32 words to send, 32 words received, the signal
  wv::Status* status;
};

extern "C" __global__ void own_squares(SquaresParams p) {
  const wv::Warp warp;
  const wv::TeamContext& team = *p.team;
  const uint32_t next = (team.rank + 1) % team.ranks, at = 4 * wv::lane();
  const wv::Deadline deadline = wv::Deadline::in(team.config->deadline_ns);
  const uint32_t number = 32 * team.rank + wv::lane();
  *reinterpret_cast<uint32_t*>(p.window.base + at) = number * number;

  const wv::PeerWindow there = wv::load_peer(team, p.window, next);
  wv::Put put{{}, {}, 4};
  wv::RemoteAddr signal;
  const bool inside = wv::local_at(p.window, at, 4, &put.src) && there.at(128 + at, 4, &put.dst) &&
                      there.at(256, 8, &signal);
  wv::AnyQp<wv::Sharing::shared> qp;
  wv::Status status = wv::open_qp(wv::peer_qp(team, next, 0), &qp);
  if (warp.any(!inside)) status = wv::Status::invalid;
  if (status == wv::Status::ok) {
    status = wv::put_signal(warp, qp, put, signal, uint64_t{1}, {deadline}).status;
  }
  if (status == wv::Status::ok) {
    const auto* word = reinterpret_cast<const uint64_t*>(p.window.base + 256);
    const auto is_set = [](uint64_t value) { return value != 0; };
    uint64_t seen;
    status = wv::wait_word(warp, word, qp.watch(), deadline, is_set, &seen);
  }
  if (warp.leader()) *p.status = status;
}
WV_EXPORT(own_squares)
