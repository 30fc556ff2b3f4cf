// Posters that break the protocol, each in one way. The suite must catch every one of them.
#include "words.cuh"

using wv::Put;
using wv::Sharing;
using wv::Status;
using wv::Thread;
using wv_test::Words;

namespace {

template <class PostOne>
WV_DEVICE void put_words(const wv::PutWordsParams& p, PostOne post) {
  Words<wv::Qp<Sharing::shared>> words(p);
  uint32_t done = 0;
  wv::Ticket ticket{0};
  while (words.status == Status::ok && done < p.count) {
    Put put{};
    words.status = words.item(done, &put);
    if (words.status == Status::ok) {
      words.status = post(words.qp, put, words.waits_after(done), words.deadline, &ticket);
    }
    if (words.status == Status::ok && words.waits_after(done)) {
      words.status = wv::wait(Thread{}, words.qp, ticket, words.deadline);
    }
    if (words.status == Status::ok) ++done;
  }
  words.finish(done);
}

template <class Q>
WV_DEVICE void write(const Q& qp, uint64_t index, bool ask, const Put& put) {
  const bool ce = ask || wv::sq::passes_quarter(qp, index, 1);
  wv::wqe::write_put(qp, index, wv::wqe::control(ce, false), put.dst, put.src, put.bytes);
}

}  // namespace

// Does everything but the store to the UAR: the NIC never hears of the work.
extern "C" __global__ void wv_test_mutant_no_doorbell(wv::PutWordsParams p) {
  put_words(
      p, [](const auto& qp, const Put& put, bool ask, wv::Deadline deadline, wv::Ticket* ticket) {
        const Status status = wv::sq::admit(qp, 1, deadline, false);
        if (status != Status::ok) return status;
        const uint64_t index = wv::sq::reserve(qp, 1);
        write(qp, index, ask, put);
        wv::platform::fence_release();
        wv::sq::record(qp, index + 1);
        ticket->index = index + 1;
        return Status::ok;
      });
}
WV_EXPORT(wv_test_mutant_no_doorbell)

// Takes ring space twice: admits as if the ring were twice as long, so live WQEs are overwritten.
extern "C" __global__ void wv_test_mutant_early_reuse(wv::PutWordsParams p) {
  put_words(
      p, [](const auto& qp, const Put& put, bool ask, wv::Deadline deadline, wv::Ticket* ticket) {
        auto longer = qp;
        longer.depth *= 2;
        const Status status = wv::sq::admit(longer, 1, deadline, false);
        if (status != Status::ok) return status;
        const uint64_t index = wv::sq::reserve(qp, 1);
        write(qp, index, ask, put);
        wv::sq::publish(qp, index, 1);
        ticket->index = index + 1;
        return Status::ok;
      });
}
WV_EXPORT(wv_test_mutant_early_reuse)

// Publishes the index and rings before the WQE is written, the first few times well before: the NIC
// has the time to fetch in between on any machine.
extern "C" __global__ void wv_test_mutant_publish_first(wv::PutWordsParams p) {
  put_words(
      p, [](const auto& qp, const Put& put, bool ask, wv::Deadline deadline, wv::Ticket* ticket) {
        const Status status = wv::sq::admit(qp, 1, deadline, false);
        if (status != Status::ok) return status;
        const uint64_t index = wv::sq::reserve(qp, 1);
        wv::sq::publish(qp, index, 1);
        const uint64_t until = wv::platform::now_ns() + (index < 8 ? 40'000'000 : 0);
        do {
          wv::platform::pause();
        } while (wv::platform::now_ns() < until);
        write(qp, index, ask, put);
        ticket->index = index + 1;
        return Status::ok;
      });
}
WV_EXPORT(wv_test_mutant_publish_first)
