// Fetching bytes of a peer: get.
//
// The bytes may be read when `wait_data` (wait.cuh) has returned `ok` for the ticket. A thread
// waits for a get in order to read this rank's own memory, unlike for a put. So that wait takes an
// acquire fence.
#pragma once

#include "detail/transfer.cuh"

namespace wv {

/// What one thread or lane gets: `bytes` from `src` to `dst`; at least 1, and over MAX_PUT_BYTES in
/// pieces.
struct Get {
  LocalAddr dst;
  RemoteAddr src;
  uint64_t bytes;
};

/// Gets `what`. Warp, block: each active thread gets its own.
///
/// The NIC reads the peer's bytes after everything that was posted before on this QP has taken
/// effect at the peer. Puts that are posted after it do not wait for it. They read their sources
/// while the answer is on its way, unless they say PostOptions::fence. `dst` must be left alone
/// until the ticket is done. @return as put.
template <class Scope, class Q>
WV_DEVICE Posted get(Scope scope, const Q& qp, const Get& what, const PostOptions& options,
                     bool active = true) {
  const detail::Transfer transfer{what.src, what.dst, what.bytes, 0};
  return detail::transfer<detail::Kind::get>(scope, qp, transfer, options, active);
}

}  // namespace wv
