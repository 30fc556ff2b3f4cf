// Every kind of QP, by its name: sharing x doorbell x scope. Where queues lie and what kind of CQ
// it is, the code asks at run time.
#include "words.cuh"

using wv::AnyQp;
using wv::Block;
using wv::CqKind;
using wv::Doorbell;
using wv::Posted;
using wv::Put;
using wv::Queues;
using wv::Sharing;
using wv::Status;
using wv::Thread;
using wv::Ticket;
using wv::Warp;
using wv_test::Words;

namespace {

/// Puts words; every third put asks for no doorbell of its own, also if its ticket is waited for.
template <class Q, class Scope>
WV_DEVICE void put_words(const wv::PutWordsParams& p, Scope scope) {
  Words<Q> words(p);
  uint32_t done = 0;
  while (words.status == Status::ok && done < p.count) {
    Put put{};
    words.status = words.item(done, &put);
    if (scope.any(words.status != Status::ok)) break;
    const bool ask = words.waits_after(done);
    wv::PostOptions options{words.deadline, ask};
    options.more = done % 3 == 1;
    const Posted posted = wv::put(scope, words.qp, put, options);
    words.status = posted.status;
    if (words.status == Status::ok && ask) {
      words.status = wv::wait(scope, words.qp, posted.ticket, words.deadline);
    }
    if (words.status == Status::ok) ++done;
  }
  words.finish(done);
}

}  // namespace

#define WV_MODE(sharing, doorbell, scope, Scope)                                                   \
  extern "C" __global__ void wv_test_put_##sharing##_##doorbell##_##scope(wv::PutWordsParams p) {  \
    put_words<wv::Qp<Sharing::sharing, Doorbell::doorbell, Queues::any, CqKind::any>>(p, Scope{}); \
  }

WV_MODE(shared, record, thread, Thread)
WV_MODE(shared, record, warp, Warp)
WV_MODE(shared, record, block, Block)
WV_EXPORT(wv_test_put_shared_record_thread)
WV_EXPORT(wv_test_put_shared_record_warp)
WV_EXPORT(wv_test_put_shared_record_block)

WV_MODE(shared, no_record, thread, Thread)
WV_MODE(shared, no_record, warp, Warp)
WV_MODE(shared, no_record, block, Block)
WV_EXPORT(wv_test_put_shared_no_record_thread)
WV_EXPORT(wv_test_put_shared_no_record_warp)
WV_EXPORT(wv_test_put_shared_no_record_block)

WV_MODE(shared, mailbox, thread, Thread)
WV_MODE(shared, mailbox, warp, Warp)
WV_MODE(shared, mailbox, block, Block)
WV_EXPORT(wv_test_put_shared_mailbox_thread)
WV_EXPORT(wv_test_put_shared_mailbox_warp)
WV_EXPORT(wv_test_put_shared_mailbox_block)

WV_MODE(exclusive, record, thread, Thread)
WV_MODE(exclusive, record, warp, Warp)
WV_MODE(exclusive, record, block, Block)
WV_EXPORT(wv_test_put_exclusive_record_thread)
WV_EXPORT(wv_test_put_exclusive_record_warp)
WV_EXPORT(wv_test_put_exclusive_record_block)

WV_MODE(exclusive, no_record, thread, Thread)
WV_MODE(exclusive, no_record, warp, Warp)
WV_MODE(exclusive, no_record, block, Block)
WV_EXPORT(wv_test_put_exclusive_no_record_thread)
WV_EXPORT(wv_test_put_exclusive_no_record_warp)
WV_EXPORT(wv_test_put_exclusive_no_record_block)

WV_MODE(exclusive, mailbox, thread, Thread)
WV_MODE(exclusive, mailbox, warp, Warp)
WV_MODE(exclusive, mailbox, block, Block)
WV_EXPORT(wv_test_put_exclusive_mailbox_thread)
WV_EXPORT(wv_test_put_exclusive_mailbox_warp)
WV_EXPORT(wv_test_put_exclusive_mailbox_block)

WV_MODE(cta, record, thread, Thread)
WV_MODE(cta, record, warp, Warp)
WV_MODE(cta, record, block, Block)
WV_EXPORT(wv_test_put_cta_record_thread)
WV_EXPORT(wv_test_put_cta_record_warp)
WV_EXPORT(wv_test_put_cta_record_block)

WV_MODE(cta, no_record, thread, Thread)
WV_MODE(cta, no_record, warp, Warp)
WV_MODE(cta, no_record, block, Block)
WV_EXPORT(wv_test_put_cta_no_record_thread)
WV_EXPORT(wv_test_put_cta_no_record_warp)
WV_EXPORT(wv_test_put_cta_no_record_block)

WV_MODE(cta, mailbox, thread, Thread)
WV_MODE(cta, mailbox, warp, Warp)
WV_MODE(cta, mailbox, block, Block)
WV_EXPORT(wv_test_put_cta_mailbox_thread)
WV_EXPORT(wv_test_put_cta_mailbox_warp)
WV_EXPORT(wv_test_put_cta_mailbox_block)

// One thread runs NOPs until the QP's next index is `count` above its base, and waits for them.
extern "C" __global__ void wv_test_run_in(wv::PutWordsParams p) {
  Words<AnyQp<Sharing::shared>> words(p);
  const auto& qp = words.qp;
  uint32_t n = 0;
  for (uint32_t run = 0; words.status == Status::ok && run < p.count; run += n) {
    n = p.count - run < 32 ? p.count - run : 32;
    const bool last_batch = run + n == p.count;
    const auto write = [&](uint64_t index, bool last) {
      for (uint32_t i = 0; i < n; ++i) {
        wv::wqe::write_nop(qp, index + i, wv::wqe::control(last && i == n - 1, false));
      }
    };
    const Posted posted = wv::detail::post(Thread{}, qp, n, {words.deadline, last_batch}, write);
    words.status = posted.status;
    if (words.status == Status::ok && last_batch) {
      words.status = wv::wait(Thread{}, qp, posted.ticket, words.deadline);
    }
  }
  words.finish(0);
}
WV_EXPORT(wv_test_run_in)

namespace {

/// Puts words and holds all of them back; `after(words, ticket)` ends the kernel.
template <class Q, class After>
WV_DEVICE void hold_words(const wv::PutWordsParams& p, After after) {
  Words<Q> words(p);
  uint32_t done = 0;
  Ticket ticket{0};
  for (; words.status == Status::ok && done < p.count; ++done) {
    Put put{};
    words.status = words.item(done, &put);
    if (words.status != Status::ok) break;
    wv::PostOptions options{words.deadline};
    options.more = true;
    const Posted posted = wv::put(Thread{}, words.qp, put, options);
    words.status = posted.status;
    ticket = posted.ticket;
    if (words.status != Status::ok) break;
  }
  if (words.status == Status::ok) words.status = after(words, ticket);
  words.finish(done);
}

}  // namespace

// Holds back and leaves.
extern "C" __global__ void wv_test_hold_and_leave(wv::PutWordsParams p) {
  hold_words<AnyQp<Sharing::shared>>(p, [](const auto&, Ticket) { return Status::ok; });
}
WV_EXPORT(wv_test_hold_and_leave)

extern "C" __global__ void wv_test_hold_and_leave_exclusive(wv::PutWordsParams p) {
  hold_words<AnyQp<Sharing::exclusive>>(p, [](const auto&, Ticket) { return Status::ok; });
}
WV_EXPORT(wv_test_hold_and_leave_exclusive)

// Holds back and waits for its own ticket: the wait rings.
extern "C" __global__ void wv_test_hold_and_wait(wv::PutWordsParams p) {
  hold_words<AnyQp<Sharing::shared>>(p, [](const auto& words, Ticket ticket) {
    return wv::wait(Thread{}, words.qp, ticket, words.deadline);
  });
}
WV_EXPORT(wv_test_hold_and_wait)

extern "C" __global__ void wv_test_hold_and_wait_exclusive(wv::PutWordsParams p) {
  hold_words<AnyQp<Sharing::exclusive>>(p, [](const auto& words, Ticket ticket) {
    return wv::wait(Thread{}, words.qp, ticket, words.deadline);
  });
}
WV_EXPORT(wv_test_hold_and_wait_exclusive)

// Holds back and tests its own ticket: the test rings.
extern "C" __global__ void wv_test_hold_and_test(wv::PutWordsParams p) {
  hold_words<AnyQp<Sharing::shared>>(p, [](const auto& words, Ticket ticket) {
    return wv::spin_until(words.qp.watch(), words.deadline,
                          [&] { return wv::test(Thread{}, words.qp, ticket); });
  });
}
WV_EXPORT(wv_test_hold_and_test)

// Holds back and flushes; waits for the flush alone.
extern "C" __global__ void wv_test_hold_and_flush(wv::PutWordsParams p) {
  hold_words<AnyQp<Sharing::shared>>(p, [](const auto& words, Ticket) {
    const Posted nop = wv::flush(Thread{}, words.qp, words.deadline);
    if (nop.status != Status::ok) return nop.status;
    return wv::wait(Thread{}, words.qp, nop.ticket, words.deadline);
  });
}
WV_EXPORT(wv_test_hold_and_flush)

// Posts nothing; waits until the QP is quiet.
extern "C" __global__ void wv_test_quiet(wv::PutWordsParams p) {
  Words<AnyQp<Sharing::shared>> words(p);
  if (words.status == Status::ok) words.status = wv::quiet(Thread{}, words.qp, words.deadline);
  words.finish(0);
}
WV_EXPORT(wv_test_quiet)

extern "C" __global__ void wv_test_quiet_exclusive(wv::PutWordsParams p) {
  Words<AnyQp<Sharing::exclusive>> words(p);
  if (words.status == Status::ok) words.status = wv::quiet(Thread{}, words.qp, words.deadline);
  words.finish(0);
}
WV_EXPORT(wv_test_quiet_exclusive)
