// Rendered from crates/cli/src/doctor/abi.rs; do not edit. Rewrite: UPDATE=1 cargo test -p wv --test abi_header.
#pragma once

#include <warpverbs/abi.h>

namespace wv {

/// One warp puts bytes of this rank's window into that of a peer, and waits for the end.
struct DoctorPutParams {
  /// The team of both ranks.
  TeamContext *team;
  /// The window of both.
  Window window;
  /// Where in it the bytes are here.
  uint64_t from;
  /// Where in it they go to at the peer.
  uint64_t to;
  /// How many.
  uint64_t bytes;
  /// How it ended: device memory that is `Status::TIMEOUT` before.
  Status *outcome;
  /// Longest wait for the end, in nanoseconds.
  uint64_t deadline_ns;
  /// The rank whose window gets the bytes.
  uint32_t peer;
  /// Which QP to it.
  uint32_t qp;
  /// Lanes that share the bytes, 1 to 32; with 1 they are one message.
  uint32_t lanes;
  /// Reserved, zero.
  uint32_t reserved;
};
static_assert(sizeof(DoctorPutParams) == 88 && alignof(DoctorPutParams) == 8);
static_assert(offsetof(DoctorPutParams, team) == 0);
static_assert(offsetof(DoctorPutParams, window) == 8);
static_assert(offsetof(DoctorPutParams, from) == 32);
static_assert(offsetof(DoctorPutParams, to) == 40);
static_assert(offsetof(DoctorPutParams, bytes) == 48);
static_assert(offsetof(DoctorPutParams, outcome) == 56);
static_assert(offsetof(DoctorPutParams, deadline_ns) == 64);
static_assert(offsetof(DoctorPutParams, peer) == 72);
static_assert(offsetof(DoctorPutParams, qp) == 76);
static_assert(offsetof(DoctorPutParams, lanes) == 80);
static_assert(offsetof(DoctorPutParams, reserved) == 84);

}  // namespace wv
