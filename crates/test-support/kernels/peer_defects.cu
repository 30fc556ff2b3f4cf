// Kernels for tests/device/peer_defects: many tickets at once, scopes whose first thread is not
// active, invalid offsets; and a reader that tears a CQE.
#include "words.cuh"

using wv::AnyQp;
using wv::Block;
using wv::Posted;
using wv::Put;
using wv::RemoteAddr;
using wv::Sharing;
using wv::Status;
using wv::Thread;
using wv::Warp;
using wv_test::Words;
using Shared = AnyQp<Sharing::shared>;

// Thread t looks once at ticket `ticket + t`.
extern "C" __global__ void wv_test_defect_tests(wv::WaitParams p) {
  Shared qp{};
  const uint32_t t = wv::thread_in_grid();
  Status status = wv::open_qp(p.qp, &qp);
  if (status == Status::ok) status = wv::test(Thread{}, qp, {p.ticket + t});
  p.status[t] = status;
}
WV_EXPORT(wv_test_defect_tests)

// Thread t waits for ticket `ticket + t`.
extern "C" __global__ void wv_test_defect_waits(wv::WaitParams p) {
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  Shared qp{};
  const uint32_t t = wv::thread_in_grid();
  Status status = wv::open_qp(p.qp, &qp);
  if (status == Status::ok) status = wv::wait(Thread{}, qp, {p.ticket + t}, deadline);
  p.status[t] = status;
}
WV_EXPORT(wv_test_defect_waits)

// Breaks the rule: counter and opcode come from two loads.
extern "C" __global__ void wv_test_defect_torn_reader(wv::WaitParams p) {
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  Shared qp{};
  Status status = wv::open_qp(p.qp, &qp);
  if (status == Status::ok) {
    status = wv::spin_until(qp.watch(), deadline, [&] {
      const uint32_t first = wv::cq::load_dword(qp.cqe, wv::cq::LAST_DWORD);
      const uint16_t seen = wv::platform::byteswap(static_cast<uint16_t>(first));
      wv::platform::pause();
      const uint32_t last = wv::cq::load_dword(qp.cqe, wv::cq::LAST_DWORD);
      const auto ahead = static_cast<uint16_t>(seen + 1 - static_cast<uint16_t>(p.ticket));
      return wv::cq::is_done(last) && ahead < qp.depth ? Status::ok : Status::would_block;
    });
  }
  p.status[wv::thread_in_grid()] = status;
}
WV_EXPORT(wv_test_defect_torn_reader)

namespace {

/// Every thread if `every` is 0, else one of so many, never the first one.
WV_DEVICE bool is_active(uint32_t thread, uint32_t every) {
  return every == 0 || thread % every == 1;
}

}  // namespace

// Warps put a word per active lane and then a signal: the number of the round, to the word of the
// warp after all target words. `wait_every`: see is_active. `done`: the ticket.
extern "C" __global__ void wv_test_defect_warp_signal(wv::PutWordsParams p) {
  Words<Shared> words(p);
  const uint64_t all = uint64_t{wv::grid_threads()} * p.count;
  uint32_t ticket = 0;
  for (uint32_t round = 0; round < p.count; ++round) {
    Put put{};
    RemoteAddr signal{};
    if (words.status == Status::ok) words.status = words.item(round, &put);
    const uint64_t at = p.dst_offset + (all + wv::warp_in_grid()) * 8;
    if (!words.peer.at(at, 8, &signal)) words.status = Status::invalid;
    if (Warp{}.any(words.status != Status::ok)) break;
    const uint64_t value = round + 1;
    const Posted posted = wv::put_signal(Warp{}, words.qp, put, signal, value, {words.deadline},
                                         is_active(wv::lane(), p.wait_every));
    words.status = posted.status;
    ticket = static_cast<uint32_t>(posted.ticket.index);
  }
  words.finish(ticket);
}
WV_EXPORT(wv_test_defect_warp_signal)

// Blocks put one word per active thread and wait for it. `done`: the ticket.
extern "C" __global__ void wv_test_defect_block_put(wv::PutWordsParams p) {
  Words<Shared> words(p);
  Put put{};
  if (words.status == Status::ok) words.status = words.item(0, &put);
  uint32_t ticket = 0;
  if (!Block{}.any(words.status != Status::ok)) {
    const bool active = is_active(wv::thread_in_block(), p.wait_every);
    const Posted posted = wv::put(Block{}, words.qp, put, {words.deadline}, active);
    words.status = posted.status;
    ticket = static_cast<uint32_t>(posted.ticket.index);
    if (words.status == Status::ok) {
      words.status = wv::wait(Block{}, words.qp, posted.ticket, words.deadline);
    }
  }
  words.finish(ticket);
}
WV_EXPORT(wv_test_defect_block_put)

// Thread t puts item t, if the window says that it is inside.
extern "C" __global__ void wv_test_defect_ranges(wv::PutListParams p) {
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  const wv::PeerWindow peer = wv::load_peer(p.peer, p.window);
  const uint32_t t = wv::thread_in_grid();
  Shared qp{};
  Status status = wv::open_qp(p.qp, &qp);
  if (t < p.count && status == Status::ok) {
    const wv::PutItem& item = p.items[t];
    Put put{};
    put.bytes = item.bytes;
    const bool inside = peer.at(item.dst_offset, item.bytes, &put.dst) &&
                        wv::local_at(p.window, item.src_offset, item.bytes, &put.src);
    status = inside ? wv::put(Thread{}, qp, put, {deadline}).status : Status::invalid;
  }
  p.status[t] = status;
}
WV_EXPORT(wv_test_defect_ranges)
