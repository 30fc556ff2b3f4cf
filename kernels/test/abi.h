// Rendered from src/abi by tests/abi_header.rs; do not edit. Rewrite: UPDATE=1 cargo test --test abi_header.
#pragma once

#include <warpverbs/abi.h>

namespace wv {

/// Puts `count` words of 8 bytes from each thread; word k of thread t goes from `src` to `dst` at index t * count + k.
struct PutWordsParams {
  /// The QP that all threads share.
  QpContext *qp;
  /// Entry of the window at the peer.
  PeerEntry *peer;
  /// The window: local words at `src_offset`, remote words at `dst_offset`.
  Window window;
  /// Byte offset of the source words.
  uint64_t src_offset;
  /// Byte offset of the target words.
  uint64_t dst_offset;
  /// Deadline of each call, ns.
  uint64_t deadline_ns;
  /// Where thread t stores how it ended.
  Status *status;
  /// Where thread t stores its number of successful puts.
  uint32_t *done;
  /// Puts of each thread.
  uint32_t count;
  /// Every so many puts a thread waits for its ticket; 0: only after the last one.
  uint32_t wait_every;
};
static_assert(sizeof(PutWordsParams) == 88 && alignof(PutWordsParams) == 8);
static_assert(offsetof(PutWordsParams, qp) == 0);
static_assert(offsetof(PutWordsParams, peer) == 8);
static_assert(offsetof(PutWordsParams, window) == 16);
static_assert(offsetof(PutWordsParams, src_offset) == 40);
static_assert(offsetof(PutWordsParams, dst_offset) == 48);
static_assert(offsetof(PutWordsParams, deadline_ns) == 56);
static_assert(offsetof(PutWordsParams, status) == 64);
static_assert(offsetof(PutWordsParams, done) == 72);
static_assert(offsetof(PutWordsParams, count) == 80);
static_assert(offsetof(PutWordsParams, wait_every) == 84);

}  // namespace wv
