// Two ranks exchange 1 KiB: one warp each, launched at the same time.
#include <warpverbs/wait.cuh>

struct ExchangeParams {
  const wv::TeamContext* team;
  wv::Window window;  // what to send at 0, what came at 1024, the word that says so at 2048
  wv::Status* status;
};

extern "C" __global__ void exchange(ExchangeParams p) {
  const wv::TeamContext& team = *p.team;
  const uint32_t other = 1 - team.rank, at = 32 * wv::lane();  // each lane puts 32 bytes
  const wv::PeerWindow there = wv::load_peer(team, p.window, other);
  const wv::Deadline deadline = wv::Deadline::in(team.config->deadline_ns);

  wv::Put put{{}, {}, 32};
  wv::RemoteAddr signal;
  const bool inside = wv::local_at(p.window, at, 32, &put.src) &&
                      there.at(1024 + at, 32, &put.dst) && there.at(2048, 8, &signal);
  wv::AnyQp<wv::Sharing::shared> qp;
  wv::Status status = wv::open_qp(wv::peer_qp(team, other, 0), &qp);
  if (wv::Warp{}.any(!inside)) status = wv::Status::invalid;

  // One doorbell for the 32 puts and the signal after them.
  if (status == wv::Status::ok) {
    status = wv::put_signal(wv::Warp{}, qp, put, signal, uint64_t{1}, {deadline}).status;
  }
  if (status == wv::Status::ok) {  // wait for the other's; its bytes are at 1024 then
    const auto* word = reinterpret_cast<const uint64_t*>(p.window.base + 2048);
    uint64_t seen;
    const auto is_set = [](uint64_t value) { return value != 0; };
    status = wv::wait_word(wv::Warp{}, word, qp.watch(), deadline, is_set, &seen);
  }
  if (wv::Warp{}.leader()) *p.status = status;
}
WV_EXPORT(exchange)
