// Two kernels play ping-pong: data of all lanes, and a signal of 16 bytes after it on the same QP.
#include <warpverbs/wait.cuh>

#include "abi.h"

using wv::Status;
using wv::Warp;

namespace {

/// What a signal holds: the round, and its complement.
struct Signal {
  uint64_t round;
  uint64_t check;
};

WV_DEVICE uint64_t word_of(uint32_t side, uint64_t round, uint64_t place) {
  return (uint64_t{side} + 1) << 60 | round << 24 | place;
}

struct Game {
  const wv::PingPongParams& p;
  wv::Qp<wv::Sharing::shared> qp;
  wv::PeerWindow peer;
  wv::Deadline deadline;

  WV_DEVICE uint64_t* local(uint64_t offset) const {
    return reinterpret_cast<uint64_t*>(p.window.base + offset);
  }

  /// Fills this lane's piece, sends all pieces and the signal, waits until the source may change.
  WV_DEVICE Status send(uint64_t round) const {
    const uint64_t at = uint64_t{wv::lane()} * p.words * 8;
    uint64_t* const piece = local(p.src_offset + at);
    for (uint32_t i = 0; i < p.words; ++i) {
      piece[i] = word_of(p.side, round, uint64_t{wv::lane()} * p.words + i);
    }
    wv::Put put{{}, {}, p.words * 8};
    wv::RemoteAddr signal;
    const bool inside = peer.at(p.dst_offset + at, put.bytes, &put.dst) &&
                        wv::local_at(p.window, p.src_offset + at, put.bytes, &put.src) &&
                        peer.at(p.signal_offset, sizeof(Signal), &signal);
    if (Warp{}.any(!inside)) return Status::invalid;
    const wv::Posted posted =
        wv::put_signal(Warp{}, qp, put, signal, Signal{round, ~round}, {deadline});
    if (posted.status != Status::ok) return posted.status;
    return wv::wait(Warp{}, qp, posted.ticket, deadline);
  }

  /// Waits for the other side's signal of `round` and counts words that are not of that round.
  ///
  /// The two words of a signal are each seen whole, but not both at once: the wait is for both.
  WV_DEVICE Status receive(uint64_t round, uint32_t* mismatches) const {
    const uint64_t* const words = local(p.signal_offset);
    const Status status = wv::wait_signal(Warp{}, qp.watch(), deadline, [&] {
      const uint64_t first = wv::platform::load_relaxed_sys(words);
      const uint64_t second = wv::platform::load_relaxed_sys(words + 1);
      if (first > round)
        return Status::invalid;  // the other side does not send before it is answered
      return first == round && second == ~round ? Status::ok : Status::would_block;
    });
    if (status != Status::ok) return status;
    const uint64_t first = uint64_t{wv::lane()} * p.words;
    const uint64_t* const piece = local(p.dst_offset) + first;
    for (uint32_t i = 0; i < p.words; ++i) {
      *mismatches += piece[i] != word_of(1 - p.side, round, first + i);
    }
    return Status::ok;
  }
};

}  // namespace

extern "C" __global__ void wv_test_ping_pong(wv::PingPongParams p) {
  Game game{p, {}, wv::load_peer(p.peer, p.window), wv::Deadline::in(p.deadline_ns)};
  Status status = wv::open_qp(p.qp, &game.qp);
  uint32_t mismatches = 0;
  for (uint64_t round = 1; status == Status::ok && round <= p.rounds; ++round) {
    if (p.side == 0) status = game.send(round);
    if (status == Status::ok) status = game.receive(round, &mismatches);
    if (status == Status::ok && p.side == 1) status = game.send(round);
  }
  p.mismatches[wv::lane()] = mismatches;
  if (Warp{}.leader()) *p.status = status;
}
WV_EXPORT(wv_test_ping_pong)
