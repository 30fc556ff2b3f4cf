// Warps put the items of a list, of any length and alignment; lanes without an item are inactive.
#include <warpverbs/wait.cuh>

#include "abi.h"

using wv::Status;
using wv::Warp;

extern "C" __global__ void wv_test_put_list(wv::PutListParams p) {
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  const wv::PeerWindow peer = wv::load_peer(p.peer, p.window);
  wv::Qp<wv::Sharing::shared> qp;
  Status status = wv::open_qp(p.qp, &qp);
  const uint64_t first = wv::thread_in_grid() / 32 * 32;
  wv::Ticket ticket{0};
  for (uint64_t k = first; status == Status::ok && k < p.count; k += wv::grid_threads()) {
    const bool active = k + wv::lane() < p.count;
    wv::Put put{{}, {}, 1};
    bool inside = true;
    if (active) {
      const wv::PutItem& item = p.items[k + wv::lane()];
      put.bytes = static_cast<uint32_t>(item.bytes);
      inside = peer.at(item.dst_offset, item.bytes, &put.dst) &&
               wv::local_at(p.window, item.src_offset, item.bytes, &put.src);
    }
    if (Warp{}.any(!inside)) {
      status = Status::invalid;
      break;
    }
    const wv::Posted posted = wv::put(Warp{}, qp, put, {deadline}, active);
    status = posted.status;
    ticket = posted.ticket;
  }
  if (status == Status::ok) status = wv::wait(Warp{}, qp, ticket, deadline);
  p.status[wv::thread_in_grid()] = status;
}
WV_EXPORT(wv_test_put_list)

// One thread puts 4, 8, .. 28 bytes from registers, at offset dst + 32 * (size / 4 - 1) of list
// item 0.
namespace {

template <uint32_t N>
struct Words {
  uint32_t word[N];
};

template <uint32_t N>
WV_DEVICE Status put_words(const wv::Qp<wv::Sharing::shared>& qp, const wv::PeerWindow& peer,
                           uint64_t base, wv::Deadline deadline) {
  Words<N> value;
  for (uint32_t i = 0; i < N; ++i) value.word[i] = N << 16 | i;
  wv::RemoteAddr dst;
  if (!peer.at(base + 32 * (N - 1), sizeof value, &dst)) return Status::invalid;
  const wv::Posted posted = wv::put_value(wv::Thread{}, qp, dst, value, {deadline});
  if (posted.status != Status::ok) return posted.status;
  return wv::wait(wv::Thread{}, qp, posted.ticket, deadline);
}

}  // namespace

extern "C" __global__ void wv_test_put_value(wv::PutListParams p) {
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  const wv::PeerWindow peer = wv::load_peer(p.peer, p.window);
  wv::Qp<wv::Sharing::shared> qp;
  Status status = wv::open_qp(p.qp, &qp);
  const uint64_t base = p.items[0].dst_offset;
  const auto step = [&](Status next) {
    if (status == Status::ok) status = next;
  };
  if (status == Status::ok) {
    step(put_words<1>(qp, peer, base, deadline));
    step(put_words<2>(qp, peer, base, deadline));
    step(put_words<3>(qp, peer, base, deadline));
    step(put_words<4>(qp, peer, base, deadline));
    step(put_words<5>(qp, peer, base, deadline));
    step(put_words<6>(qp, peer, base, deadline));
    step(put_words<7>(qp, peer, base, deadline));
  }
  p.status[wv::thread_in_grid()] = status;
}
WV_EXPORT(wv_test_put_value)
