// Deadlines, the words that end a wait early, and the one loop on memory that others change.
#pragma once

#include "abi.h"
#include "platform.cuh"

namespace wv {

/// A point in time of the device clock (`platform::now_ns`).
struct Deadline {
  uint64_t at_ns;

  /// Returns the deadline `ns` from now, or the end of the clock's range if that is earlier.
  WV_DEVICE static Deadline in(uint64_t ns) {
    const uint64_t now = platform::now_ns();
    return {now + ns < now ? ~uint64_t{0} : now + ns};
  }
  WV_DEVICE bool passed() const { return platform::now_ns() >= at_ns; }
};

/// The words that end a wait early. A null pointer stands for a word that no thread raises.
struct Watch {
  /// The first failure of a QP.
  const Status* err;
  /// The abort word, which the host sets.
  const uint32_t* abort;

  /// Returns the failure of the QP, `aborted`, or `ok`.
  WV_DEVICE Status fault() const {
    if (err != nullptr) {
      const auto seen =
          static_cast<Status>(platform::load_relaxed(reinterpret_cast<const uint32_t*>(err)));
      if (seen != Status::ok) return seen;
    }
    if (abort != nullptr && platform::load_relaxed_sys(abort) != 0) return Status::aborted;
    return Status::ok;
  }
};

/// Returns why a wait ends without success, or `would_block`.
WV_DEVICE_COLD Status give_up(Watch watch, Deadline deadline) {
  if (const Status fault = watch.fault(); fault != Status::ok) return fault;
  return deadline.passed() ? Status::timeout : Status::would_block;
}

/// Looks until `look()` returns something else than `would_block`, and returns that.
///
/// This is the only loop in this library on memory that others change, so no call can hang. It ends
/// with the failure in `watch`, with `aborted`, or with `timeout`, but only after one more look in
/// vain. So a thread that was stopped between its look and the clock finds what has come meanwhile.
/// A wait whose deadline had passed before it began looks, too. A success wins over all of these
/// ends. All loads are relaxed: a caller that goes on to read data takes its own acquire fence.
template <class Look>
WV_DEVICE Status spin_until(const Watch& watch, Deadline deadline, Look look) {
  const platform::Divergence divergence;
  Status end = Status::would_block;
  for (uint32_t looks = 1;; ++looks) {
    const Status found = look();
    if (found != Status::would_block) return found;
    if (end != Status::would_block) return end;
    if (looks % platform::LOOKS_PER_CHECK == 0) {
      end = give_up(watch, deadline);
      if (end != Status::would_block) continue;
    }
    platform::pause();
  }
}

}  // namespace wv
