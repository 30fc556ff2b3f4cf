// Ring space and indices: the first two steps of a post.
//
// A thread claims space before it reserves an index, because it can take a claim back but not an
// index. A thread that gives up here leaves the QP as it was.
//
// Between its claim and its publication a thread waits for no other lane of its warp. The compiler
// may make the lanes of a warp wait for each other where their ways join again. A lane that holds a
// claim could wait at such a join for lanes that still look for space. Then a few such warps would
// hold the whole ring, and no lane could go on. So `admit` runs the rest of the post inside the
// branch that has the claim, and `./x sass` checks that in the compiler's output.
#pragma once

#include "cq.cuh"
#include "order.cuh"

namespace wv::sq {

/// The state of a thread's search for ring space.
struct Search {
  /// `ok`: space may be free, so a claim is worth a try. `would_block`: look again. Any other
  /// status ends the search.
  Status status;
  /// True if the last look was after the deadline.
  bool late;
  /// The time up to which `full_ring_ns` has counted, by the device clock; 0 before the first look.
  uint64_t counted_ns;
};

/// Claims `n` WQEBBs. Returns false if no space is free or the QP has failed; then the claim must
/// be undone.
template <class Q>
WV_DEVICE bool claim(const Q& qp, uint32_t n) {
  QpContext* const context = qp.context;
  // All four operations are in flight together. An old value of `cons` only refuses more. A claim
  // on a failed QP is undone like a claim on a full ring.
  const uint64_t claimed = Q::is_exclusive() ? platform::load_relaxed(&context->resv)
                                             : order::add_index(qp, &context->claim, n);
  const uint64_t cons = platform::load_relaxed(&context->cons);
  const uint32_t err = platform::load_relaxed(reinterpret_cast<uint32_t*>(&context->err));
  const uint32_t abort = platform::load_relaxed_sys(&context->abort);
  return claimed + n <= cons + qp.depth && (err | abort) == 0;
}

/// Returns whether `n` WQEBBs would fit after all completions that have come. This looks and adds
/// nothing, so threads that wait do not disturb each other. Bounded: a ring has no more CQEs than
/// WQEBBs.
template <class Q>
WV_DEVICE bool sees_space(const Q& qp, uint32_t n) {
  QpContext* const context = qp.context;
  for (uint32_t left = qp.depth;; --left) {
    const bool more = cq::poll(qp);
    const uint64_t end = platform::load_relaxed(&context->cons) + qp.depth;
    const uint64_t taken = Q::is_exclusive() ? platform::load_relaxed(&context->resv)
                                             : order::load_index(qp, &context->claim);
    if (taken + n <= end) return true;
    if (!more || left == 0) return false;
  }
}

/// Looks once for ring space. If the thread has just made a claim in vain (`search.status` is
/// `ok`), this undoes the claim. Bounded: the caller loops.
template <class Q>
WV_DEVICE Search look_for_space(const Q& qp, uint32_t n, Deadline deadline, bool try_only,
                                Search search) {
  QpContext* const context = qp.context;
  const bool claimed = search.status == Status::ok, first = search.counted_ns == 0;
  if (claimed && !Q::is_exclusive()) order::undo_index(qp, &context->claim, n);
  const uint64_t now = platform::now_ns();
  if (first) search.counted_ns = now;
  search.status = qp.watch().fault();
  if (search.status == Status::ok) {
    // A thread that never waits has one more try. A thread that waits has one look after the
    // deadline.
    if (!first && (try_only || search.late)) {
      search.status = try_only ? Status::would_block : Status::timeout;
    } else {
      search.late = now >= deadline.at_ns;
      if (!sees_space(qp, n)) {
        search.status = Status::would_block;
        if (!try_only) {
          platform::pause();
          return search;
        }
      }
    }
  }
  platform::reduce_add(&context->full_ring_ns, now - search.counted_ns);
  search.counted_ns = now;
  return search;
}

/// Returns whether the search goes on.
WV_DEVICE bool searches(const Search& search, bool try_only) {
  return search.status == Status::would_block && !try_only;
}

/// Looks for space as `look_for_space`, out of line.
template <class Q>
WV_DEVICE_COLD Search look_again(QpContext* context, uint32_t n, Deadline deadline, bool try_only,
                                 Search search) {
  return look_for_space(reopen<Q>(context), n, deadline, try_only, search);
}

/// Searches until the end, for the only user of a QP: space that this thread sees free stays free.
template <class Q>
WV_DEVICE_COLD Status wait_for_space(QpContext* context, uint32_t n, Deadline deadline,
                                     bool try_only) {
  const Q qp = reopen<Q>(context);
  Search search{Status::ok, false, 0};
  do search = look_for_space(qp, n, deadline, try_only, search);
  while (searches(search, try_only));
  return search.status;
}

/// Gets leave to reserve `n` WQEBBs (1 to max_batch), and then calls `post()`, which reserves. For
/// the scope Thread, `post` also writes and publishes, and waits for nothing (see above).
///
/// @param try_only  never waits; may refuse although up to one batch for each poster is free.
/// @return `ok`; `would_block` (only with try_only); the QP's failure, `aborted` or `timeout`. All
/// but `ok` leave the QP as it was, and `post` was not called.
template <class Q, class Post>
WV_DEVICE Status admit(const Q& qp, uint32_t n, Deadline deadline, bool try_only, Post post) {
  const platform::Divergence divergence;
  Search search{Status::ok, false, 0};
  if constexpr (Q::is_exclusive()) {
    if (!claim(qp, n)) search.status = wait_for_space<Q>(qp.context, n, deadline, try_only);
    if (search.status == Status::ok) post();
    return search.status;
  } else {
    for (;;) {
      if (search.status == Status::ok && claim(qp, n)) {
        post();
        return Status::ok;
      }
      search = look_again<Q>(qp.context, n, deadline, try_only, search);
      if (search.status != Status::ok && !searches(search, try_only)) return search.status;
    }
  }
}

/// Takes indices [result, result + n), which were admitted before.
template <class Q>
WV_DEVICE uint64_t reserve(const Q& qp, uint32_t n) {
  if constexpr (Q::is_exclusive()) {
    const uint64_t index = platform::load_relaxed(&qp.context->resv);
    platform::store_relaxed(&qp.context->resv, index + n);
    return index;
  } else {
    return order::add_index(qp, &qp.context->resv, n);
  }
}

}  // namespace wv::sq
