// Threads put 8-byte words: on one shared QP, on an exclusive one, from whole warps, without
// waiting, from registers.
#include "words.cuh"

using wv::Posted;
using wv::Put;
using wv::Sharing;
using wv::Status;
using wv::Thread;
using wv::Warp;
using wv_test::Words;
using Shared = wv::AnyQp<Sharing::shared>;
using Exclusive = wv::AnyQp<Sharing::exclusive>;

namespace {

template <class Q, class Scope>
WV_DEVICE void put_words(const wv::PutWordsParams& p, Scope scope) {
  Words<Q> words(p);
  uint32_t done = 0;
  while (words.status == Status::ok && done < p.count) {
    Put put{};
    words.status = words.item(done, &put);
    if (scope.any(words.status != Status::ok)) break;
    const bool ask = words.waits_after(done);
    const Posted posted = wv::put(scope, words.qp, put, {words.deadline, ask});
    words.status = posted.status;
    if (words.status == Status::ok && ask) {
      words.status = wv::wait(scope, words.qp, posted.ticket, words.deadline);
    }
    if (words.status == Status::ok) ++done;
  }
  words.finish(done);
}

}  // namespace

extern "C" __global__ void wv_test_put_words(wv::PutWordsParams p) {
  put_words<Shared>(p, Thread{});
}
WV_EXPORT(wv_test_put_words)

// One thread.
extern "C" __global__ void wv_test_put_words_exclusive(wv::PutWordsParams p) {
  put_words<Exclusive>(p, Thread{});
}
WV_EXPORT(wv_test_put_words_exclusive)

extern "C" __global__ void wv_test_put_words_warp(wv::PutWordsParams p) {
  put_words<Shared>(p, Warp{});
}
WV_EXPORT(wv_test_put_words_warp)

// One warp.
extern "C" __global__ void wv_test_put_words_warp_exclusive(wv::PutWordsParams p) {
  put_words<Exclusive>(p, Warp{});
}
WV_EXPORT(wv_test_put_words_warp_exclusive)

// No thread asks for a ticket; the last step waits until the QP is quiet.
extern "C" __global__ void wv_test_put_words_unsignalled(wv::PutWordsParams p) {
  Words<Shared> words(p);
  uint32_t done = 0;
  for (; words.status == Status::ok && done < p.count; ++done) {
    Put put{};
    words.status = words.item(done, &put);
    if (words.status == Status::ok) {
      words.status = wv::put(Thread{}, words.qp, put, {words.deadline, false}).status;
    }
    if (words.status != Status::ok) break;
  }
  if (words.status == Status::ok) {
    words.status = wv::quiet(Thread{}, words.qp, words.deadline);
  }
  words.finish(done);
}
WV_EXPORT(wv_test_put_words_unsignalled)

// Never waits: ends with `would_block` when the ring is full.
extern "C" __global__ void wv_test_try_put_words(wv::PutWordsParams p) {
  Words<Shared> words(p);
  uint32_t done = 0;
  while (words.status == Status::ok && done < p.count) {
    Put put{};
    words.status = words.item(done, &put);
    if (words.status != Status::ok) break;
    words.status = wv::put(Thread{}, words.qp, put, {words.deadline, true, true}).status;
    if (words.status == Status::ok) ++done;
  }
  words.finish(done);
}
WV_EXPORT(wv_test_try_put_words)

// The holder of the doorbell token rings once and then leaves: the rare end of `serve` becomes the
// common one.
extern "C" __global__ void wv_test_put_words_one_round(wv::PutWordsParams p) {
  Words<Shared> words(p);
  uint32_t done = 0;
  while (words.status == Status::ok && done < p.count) {
    Put put{};
    words.status = words.item(done, &put);
    if (words.status == Status::ok)
      words.status = wv::sq::admit(words.qp, 1, words.deadline, false, [] {});
    if (words.status != Status::ok) break;
    const uint64_t index = wv::sq::reserve(words.qp, 1);
    const bool ask = words.waits_after(done);
    const bool signalled = ask || wv::sq::passes_quarter(words.qp, index, 1);
    wv::wqe::write_put(words.qp, index, wv::wqe::control(signalled, false), put.dst, put.src,
                       put.bytes);
    wv::sq::publish(words.qp, index, 1, false, 1);
    if (ask) words.status = wv::wait(Thread{}, words.qp, {index + 1}, words.deadline);
    if (words.status == Status::ok) ++done;
  }
  words.finish(done);
}
WV_EXPORT(wv_test_put_words_one_round)
