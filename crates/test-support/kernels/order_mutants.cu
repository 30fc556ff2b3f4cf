// Posts and waits with one fence wrong or missing each, for the checker of a `tsan` build
// (tests/verbs/order). On a CPU all of them deliver the right bytes.
#include "words.cuh"

using wv::AnyQp;
using wv::Put;
using wv::Sharing;
using wv::Status;
using wv::Thread;

namespace {

using Qp = AnyQp<Sharing::shared>;

// Puts this thread's words one by one; `publish` hands a written WQE to the NIC, and may write it
// again.
template <class Publish>
WV_DEVICE void put_words(const wv::PutWordsParams& p, Publish publish) {
  wv_test::Words<Qp> words(p);
  uint32_t done = 0;
  while (words.status == Status::ok && done < p.count) {
    Put put{};
    words.status = words.item(done, &put);
    if (words.status == Status::ok)
      words.status = wv::sq::admit(words.qp, 1, words.deadline, false, [] {});
    if (words.status != Status::ok) break;
    const uint64_t index = wv::sq::reserve(words.qp, 1);
    const bool ask = words.waits_after(done) || wv::sq::passes_quarter(words.qp, index, 1);
    wv::wqe::write_put(words.qp, index, wv::wqe::control(ask, false), put.dst, put.src, put.bytes);
    publish(words.qp, index, [&] {
      wv::wqe::write_put(words.qp, index, wv::wqe::control(ask, false), put.dst, put.src,
                         put.bytes);
    });
    if (words.waits_after(done)) {
      words.status = wv::wait(Thread{}, words.qp, wv::Ticket{index + 1}, words.deadline);
    }
    if (words.status == Status::ok) ++done;
  }
  words.finish(done);
}

// As sq::publish, with another fence.
template <class Fence>
WV_DEVICE void publish_behind(const Qp& qp, uint64_t index, Fence fence) {
  fence();
  uint64_t* const word = qp.flags + (index & qp.mask);
  const uint64_t flag = wv::order::exchange_flag(qp, word, wv::sq::ready(index, 1, false));
  if (wv::sq::is_parked(flag, index)) {
    wv::sq::serve(qp, index + 1, true, wv::SERVICE_ROUNDS);
  }
}

}  // namespace

// A relaxed store in place of a release: the WQE may come after its flag.
extern "C" __global__ void wv_test_order_no_fence(wv::PutWordsParams p) {
  put_words(p, [](const Qp& qp, uint64_t index, auto) { publish_behind(qp, index, [] {}); });
}
WV_EXPORT(wv_test_order_no_fence)

// The fence of a block.
extern "C" __global__ void wv_test_order_cta_fence(wv::PutWordsParams p) {
  put_words(p, [](const Qp& qp, uint64_t index, auto) {
    publish_behind(qp, index, [] { wv::platform::fence_release_cta(); });
  });
}
WV_EXPORT(wv_test_order_cta_fence)

// The fence of the GPU, whatever memory the queues lie in. All fences: also the holder's.
extern "C" __global__ void wv_test_order_gpu_fence(wv::PutWordsParams p) {
  put_words(p, [](const Qp& host, uint64_t index, auto) {
    Qp qp = host;
    qp.mode &= ~wv::MODE_HOST_QUEUES;
    publish_behind(qp, index, [] { wv::platform::fence_release(); });
  });
}
WV_EXPORT(wv_test_order_gpu_fence)

// Writes the WQE, the same bytes, once more after it was published.
extern "C" __global__ void wv_test_order_late_wqe(wv::PutWordsParams p) {
  put_words(p, [](const Qp& qp, uint64_t index, auto write_again) {
    wv::sq::publish(qp, index, 1);
    write_again();
  });
}
WV_EXPORT(wv_test_order_late_wqe)

// Changes its source word while the put may still read it.
extern "C" __global__ void wv_test_order_source_too_early(wv::PutWordsParams p) {
  put_words(p, [&p](const Qp& qp, uint64_t index, auto) {
    wv::sq::publish(qp, index, 1);
    const auto source = p.window.base + p.src_offset + 8 * uint64_t{wv::thread_in_grid()} * p.count;
    *reinterpret_cast<volatile uint64_t*>(source) = 0;
  });
}
WV_EXPORT(wv_test_order_source_too_early)

// Waits for a word that a peer writes after a payload of 15 words, and reads the first of these.
// `ticket` says how: 0 right, 1 without a fence, 2 by a non-coherent load, 3 without a fence and
// after a first look, 4 with the fence before the wait.
extern "C" __global__ void wv_test_order_reader(wv::WaitParams p) {
  const uint64_t* const payload = p.word - 15;
  const wv::Deadline deadline = wv::Deadline::in(p.deadline_ns);
  uint64_t first = p.ticket == 3 ? *payload : 0;
  // What the host waits for before it lets the peer write.
  wv::platform::store_relaxed(reinterpret_cast<uint32_t*>(p.status) + wv::thread_in_grid(),
                              static_cast<uint32_t>(Status::would_block));
  if (p.ticket == 4) wv::platform::fence_acquire_sys();
  const Status status = wv::spin_until(wv::Watch{nullptr, nullptr}, deadline, [&] {
    return wv::platform::load_relaxed_sys(p.word) != 0 ? Status::ok : Status::would_block;
  });
  if (p.ticket == 0 || p.ticket == 2) wv::platform::fence_acquire_sys();
  first += p.ticket == 2 ? wv::platform::load_const(payload) : *payload;
  p.status[wv::thread_in_grid()] = first != 0 ? status : Status::invalid;
}
WV_EXPORT(wv_test_order_reader)
