// The words of a signal, and the comparison of calls, as pure functions.
//
// data      epoch:16 | call:32 | count+1:16    not_sent  first:32 | number:32
// credit    released[dispatch]:32 | released[combine]:32    alive  call:32 | beat:32
#pragma once

#include <warpverbs/abi.h>
#include <warpverbs/platform.cuh>

namespace wv::moe {

/// Returns whether call `a` is newer than call `b`. Call numbers wrap.
WV_DEVICE bool newer(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) > 0; }

/// Returns whether a peer may have come to call `a` while this rank is in call `b`. That is not
/// true of every newer call: if a peer has sent nothing for long, its old word looks newer 2^31
/// calls later.
WV_DEVICE bool ahead(uint32_t a, uint32_t b) { return a - b - 1 < 1u << 30; }

/// Returns the slot set of a call.
WV_DEVICE uint32_t set_of(uint32_t call) { return call % SETS; }

/// Returns the index of a signal among the signals of one peer.
WV_DEVICE uint32_t signal_index(uint32_t kind, uint32_t call) { return kind * SETS + set_of(call); }

/// The content of a data word. `call` is 0 if nothing was sent yet.
struct Data {
  uint32_t epoch;
  uint32_t call;
  uint32_t count;
};

WV_DEVICE uint64_t pack(const Data& data) {
  return uint64_t{data.epoch & 0xffff} << 48 | uint64_t{data.call} << 16 | (data.count + 1);
}
WV_DEVICE Data unpack_data(uint64_t word) {
  return {static_cast<uint32_t>(word >> 48), static_cast<uint32_t>(word >> 16),
          (static_cast<uint32_t>(word) & 0xffff) - 1};
}

/// Packs two 32-bit numbers into a word, the first in the upper half.
WV_DEVICE uint64_t pack(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }
WV_DEVICE uint32_t first(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
WV_DEVICE uint32_t second(uint64_t word) { return static_cast<uint32_t>(word); }

/// Returns the half of a credit word for `kind`.
WV_DEVICE uint32_t released(uint64_t credit, uint32_t kind) {
  return kind == KIND_DISPATCH ? first(credit) : second(credit);
}

/// Returns whether a `not_sent` word names `call` (of the same set).
WV_DEVICE bool names(uint64_t not_sent, uint32_t call) {
  return call - first(not_sent) < 2 * second(not_sent);
}

/// The number of calls after which a rank writes every signal of a peer again, in use or not. So no
/// word of a member gets so old that it looks new. A run of calls that were not sent has at most
/// this length.
inline constexpr uint32_t RENEWAL = 1u << 28;
/// Returns whether a call is one of the two, one of each set, that write every signal again.
WV_DEVICE bool renews(uint32_t call) { return ((call ^ RENEWAL / 2) & (RENEWAL - 1)) < SETS; }

/// Words 0 and 1 of the signal, which follow the payload by one inline write, swaps or stores.
struct DataSignal {
  uint64_t data, credit;
  /// Offsets of the words in this struct. NVRTC has no constant `offsetof`.
  static constexpr uint64_t DATA = 0, CREDIT = 8;
};

/// Words 1 to 3 of the signal, which travel without data by one inline write, swaps or stores.
struct ControlSignal {
  uint64_t credit, not_sent, alive;
  static constexpr uint64_t CREDIT = 0, NOT_SENT = 8, ALIVE = 16;
};

}  // namespace wv::moe
