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
        const Status status = wv::sq::admit(qp, 1, deadline, false, [] {});
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
        const Status status = wv::sq::admit(longer, 1, deadline, false, [] {});
        if (status != Status::ok) return status;
        const uint64_t index = wv::sq::reserve(qp, 1);
        write(qp, index, ask, put);
        wv::sq::publish(qp, index, 1);
        ticket->index = index + 1;
        return Status::ok;
      });
}
WV_EXPORT(wv_test_mutant_early_reuse)

// Publishes the index and rings before the WQE is written: what a missing fence allows. The first
// few times it waits until the NIC has said what it thinks of the slot.
extern "C" __global__ void wv_test_mutant_publish_first(wv::PutWordsParams p) {
  put_words(
      p, [](const auto& qp, const Put& put, bool ask, wv::Deadline deadline, wv::Ticket* ticket) {
        const Status status = wv::sq::admit(qp, 1, deadline, false, [] {});
        if (status != Status::ok) return status;
        const uint64_t index = wv::sq::reserve(qp, 1);
        wv::sq::publish(qp, index, 1);
        const uint64_t until = wv::platform::now_ns() + (index < 4 ? 500'000'000 : 0);
        do {
          wv::cq::poll(qp);
          wv::platform::pause();
        } while (qp.watch().fault() == Status::ok && wv::platform::now_ns() < until);
        write(qp, index, ask, put);
        ticket->index = index + 1;
        return Status::ok;
      });
}
WV_EXPORT(wv_test_mutant_publish_first)

// The record reaches memory before the WQE, the doorbell after it: one fence with a record. A NIC
// that follows the record fetches in between.
extern "C" __global__ void wv_test_mutant_record_first(wv::PutWordsParams p) {
  put_words(
      p, [](const auto& qp, const Put& put, bool ask, wv::Deadline deadline, wv::Ticket* ticket) {
        const Status status = wv::sq::admit(qp, 1, deadline, false, [] {});
        if (status != Status::ok) return status;
        const uint64_t index = wv::sq::reserve(qp, 1);
        wv::sq::record(qp, index + 1);
        const uint64_t until = wv::platform::now_ns() + (index < 4 ? 500'000'000 : 0);
        do {
          wv::cq::poll(qp);
          wv::platform::pause();
        } while (qp.watch().fault() == Status::ok && wv::platform::now_ns() < until);
        write(qp, index, ask, put);
        wv::platform::fence_release();
        wv::sq::ring(qp, index + 1);
        ticket->index = index + 1;
        return Status::ok;
      });
}
WV_EXPORT(wv_test_mutant_record_first)

namespace {

/// Puts with `publish(qp, index)` in place of the protocol's.
template <class Publish>
WV_DEVICE void put_and_publish(const wv::PutWordsParams& p, Publish publish) {
  put_words(
      p, [&](const auto& qp, const Put& put, bool ask, wv::Deadline deadline, wv::Ticket* ticket) {
        const Status status = wv::sq::admit(qp, 1, deadline, false, [] {});
        if (status != Status::ok) return status;
        const uint64_t index = wv::sq::reserve(qp, 1);
        write(qp, index, ask, put);
        publish(qp, index);
        ticket->index = index + 1;
        return Status::ok;
      });
}

}  // namespace

// Reserves after the search for ring space and not in the branch that has the claim, so lanes wait
// for each other with their claims.
extern "C" __global__ void wv_test_mutant_meets_with_claim(wv::PutWordsParams p) {
  put_and_publish(p, [](const auto& qp, uint64_t index) { wv::sq::publish(qp, index, 1); });
}
WV_EXPORT(wv_test_mutant_meets_with_claim)

// Holds everything back though no caller asked for it, and reports it to none.
extern "C" __global__ void wv_test_mutant_holds_unasked(wv::PutWordsParams p) {
  put_and_publish(p, [](const auto& qp, uint64_t index) { wv::sq::publish(qp, index, 1, true); });
}
WV_EXPORT(wv_test_mutant_holds_unasked)

namespace {

// Puts one word and holds it back; then what `then(qp, ticket, deadline)` does about it.
template <class Then>
WV_DEVICE void hold_one(const wv::PutWordsParams& p, Then then) {
  Words<wv::Qp<Sharing::shared>> words(p);
  Put put{};
  if (words.status == Status::ok) words.status = words.item(0, &put);
  if (words.status == Status::ok) {
    wv::PostOptions options{words.deadline};
    options.more = true;
    const wv::Posted posted = wv::put(Thread{}, words.qp, put, options);
    words.status = posted.status;
    if (words.status == Status::ok) words.status = then(words.qp, posted.ticket, words.deadline);
  }
  words.finish(words.status == Status::ok);
}

}  // namespace

// Waits for a ticket that was held back as for any other: the wait does not ring.
extern "C" __global__ void wv_test_mutant_wait_rings_not(wv::PutWordsParams p) {
  hold_one(p, [](auto& qp, wv::Ticket ticket, wv::Deadline deadline) {
    return wv::wait(Thread{}, qp, {ticket.index}, deadline);
  });
}
WV_EXPORT(wv_test_mutant_wait_rings_not)

// Flushes a tail that was held back by doing nothing.
extern "C" __global__ void wv_test_mutant_flush_nothing(wv::PutWordsParams p) {
  hold_one(p, [](auto&, wv::Ticket, wv::Deadline) { return Status::ok; });
}
WV_EXPORT(wv_test_mutant_flush_nothing)

// A put that was held back rings all the same.
extern "C" __global__ void wv_test_mutant_rings_held(wv::PutWordsParams p) {
  put_and_publish(p, [](const auto& qp, uint64_t index) { wv::sq::publish(qp, index, 1); });
}
WV_EXPORT(wv_test_mutant_rings_held)

namespace {

/// Threads 0 and 1 put one word each. Thread 0 has the token, follows the batches, rings; then it
/// waits until thread 1 has published after it, and parks by `park(qp, end, flag)`.
template <class Park>
WV_DEVICE void park_late(const wv::PutWordsParams& p, Park park) {
  Words<wv::Qp<Sharing::shared>> words(p);
  auto& qp = words.qp;
  const bool holder = wv::thread_in_grid() == 0;
  Put put{};
  if (words.status == Status::ok) words.status = words.item(0, &put);
  const auto until = [&](auto look) {
    if (words.status != Status::ok) return;
    words.status = wv::spin_until(qp.watch(), words.deadline,
                                  [&] { return look() ? Status::ok : Status::would_block; });
  };
  if (!holder) until([&] { return wv::platform::load_relaxed(&qp.context->doorbell_index) == 1; });
  if (words.status == Status::ok) words.status = wv::sq::admit(qp, 1, words.deadline, false, [] {});
  if (words.status == Status::ok) {
    const uint64_t index = wv::sq::reserve(qp, 1);
    write(qp, index, true, put);
    if (holder) {
      wv::platform::fence_release();
      wv::sq::Hold hold{index + 1, true};
      const uint64_t flag = wv::sq::scan(qp, &hold);
      wv::sq::record(qp, hold.end);
      wv::sq::ring(qp, hold.end);
      uint64_t* const word = qp.flags + (hold.end & qp.mask);
      until([&] { return wv::platform::load_relaxed(word) != flag; });
      if (!park(qp, hold.end, flag)) wv::sq::serve(qp, hold.end, true, 8);
    } else {
      wv::sq::publish(qp, index, 1);
    }
    const Status waited = wv::wait(Thread{}, qp, {index + 1}, words.deadline);
    if (words.status == Status::ok) words.status = waited;
  }
  words.finish(words.status == Status::ok);
}

}  // namespace

// Parks by a blind store: a batch that was published meanwhile is lost.
extern "C" __global__ void wv_test_mutant_park_by_store(wv::PutWordsParams p) {
  park_late(p, [](const auto& qp, uint64_t end, uint64_t) {
    wv::platform::store_relaxed(qp.flags + (end & qp.mask), wv::sq::parked(end));
    return true;
  });
}
WV_EXPORT(wv_test_mutant_park_by_store)

// The same meeting, parked as the protocol does: nothing is lost.
extern "C" __global__ void wv_test_park_late(wv::PutWordsParams p) {
  park_late(p, [](const auto& qp, uint64_t end, uint64_t flag) {
    return wv::sq::park(qp, end, flag, 0);
  });
}
WV_EXPORT(wv_test_park_late)
