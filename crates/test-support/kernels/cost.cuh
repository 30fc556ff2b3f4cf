// What the cost kernels share. Each makes one call of the library, for counting instructions in the
// compiler's output
// (`./x sass`, .ci/sass); none is ever launched.
//
// The parameters are marks for the counting. What is computed from `window` is window memory, and
// `context` is a QP. A walk through the kernel counts only if it stores to `result`, which happens
// if the call succeeds.
#pragma once

#include <warpverbs/wait.cuh>

namespace wv::cost {

/// What the calls are given. Not constants, so that the compiler computes what it would for a user.
struct Arguments {
  RemoteAddr dst;
  LocalAddr src;
  RemoteAddr signal_dst;
  uint64_t bytes;
  uint64_t first, second;
  uint64_t ticket;
  Deadline deadline;
};

struct Words {
  uint64_t first, second;
};

using Shared = Qp<Sharing::shared>;
using Exclusive = Qp<Sharing::exclusive>;
using Cta = Qp<Sharing::cta>;
using SharedNoRecord = Qp<Sharing::shared, Doorbell::no_record>;
using ExclusiveNoRecord = Qp<Sharing::exclusive, Doorbell::no_record>;
using SharedMailbox = Qp<Sharing::shared, Doorbell::mailbox>;
using SharedHost = Qp<Sharing::shared, Doorbell::record, Queues::host>;
using SharedWide = Qp<Sharing::shared, Doorbell::record, Queues::device, CqKind::wide>;
using SharedAny = AnyQp<Sharing::shared>;

WV_DEVICE void keep(uint64_t* result, const Posted& posted) {
  if (posted.status == Status::ok) platform::store_relaxed(result, posted.ticket.index);
}
WV_DEVICE void keep(uint64_t* result, Status status) {
  if (status == Status::ok) platform::store_relaxed(result, uint64_t{1});
}

/// Opens the QP, makes one call, keeps what came of it.
template <class Q, class Call>
WV_DEVICE void once(QpContext* context, uint64_t* result, Call call) {
  Q qp;
  if (open_qp(context, &qp) == Status::ok) keep(result, call(qp));
}

}  // namespace wv::cost

// One cost kernel: `expression` may use qp, a (Arguments), options, put and window.
#define WV_COST(name, Q, expression)                                                   \
  extern "C" __global__ void wv_cost_##name(uint8_t* window, wv::QpContext* context,   \
                                            uint64_t* result, wv::cost::Arguments a) { \
    using namespace wv;                                                                \
    using namespace wv::cost;                                                          \
    once<Q>(context, result, [&](const Q& qp) {                                        \
      [[maybe_unused]] PostOptions options{};                                          \
      options.deadline = a.deadline;                                                   \
      [[maybe_unused]] const Put put{a.dst, a.src, static_cast<uint32_t>(a.bytes)};    \
      return expression;                                                               \
    });                                                                                \
  }
