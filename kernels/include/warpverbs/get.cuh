// Reading bytes of a peer by RDMA READ: get.
//
// The bytes may be read when `wait_data` (wait.cuh) has returned `ok` for the ticket. After a get,
// unlike after a put, the waiting thread reads its own rank's memory. So `wait_data` takes an
// acquire fence.
#pragma once

#include "detail/transfer.cuh"

namespace wv {

/// What one thread or lane gets: `bytes` from `src` to `dst`. At least 1 byte; more than
/// MAX_PUT_BYTES arrive in pieces.
struct Get {
  LocalAddr dst;
  RemoteAddr src;
  uint64_t bytes;
};

/// Gets `what`. In a warp or block each active thread gets its own `what`.
///
/// The NIC reads the peer's bytes after everything that was posted before on this QP has taken
/// effect at the peer. Later puts do not wait for the get: they read their sources while the answer
/// is on its way, unless they have PostOptions::fence. The caller must not touch `dst` until the
/// ticket is done. @return as put.
template <class Scope, class Q>
WV_DEVICE Posted get(Scope scope, const Q& qp, const Get& what, const PostOptions& options,
                     bool active = true) {
  const detail::Transfer transfer{what.src, what.dst, what.bytes, 0};
  return detail::transfer<detail::Kind::get>(scope, qp, transfer, options, active);
}

}  // namespace wv
