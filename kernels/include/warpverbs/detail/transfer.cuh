// The common part of put, put_imm and get, which move bytes between a piece of local memory and a
// piece of a peer's. One WQE moves them, or, over 1 GiB, several WQEs inside one reservation.
#pragma once

#include "../peer.cuh"
#include "../post.cuh"

namespace wv::detail {

/// The kind of a transfer.
enum class Kind { put, put_imm, get };

/// The transfer that one thread asks for.
struct Transfer {
  RemoteAddr remote;
  LocalAddr local;
  uint64_t bytes;
  uint32_t imm;
};

/// The tail of a transfer after whose data nothing is posted.
struct NoTail {
  static constexpr uint32_t WQES = 0;
  template <class Q>
  WV_DEVICE void write(const Q&, uint64_t, uint32_t) const {}
};

/// Returns the control byte of the WQE at `place` of a batch.
WV_DEVICE uint32_t control(Place place, bool last, const PostOptions& options) {
  return wqe::control(last && place.before + 1 == place.count, options.fence && place.before == 0);
}

/// Returns whether one WQE moves so many bytes. Only an immediate may come without data.
template <Kind K>
WV_DEVICE bool fits_one(uint64_t bytes) {
  return (K == Kind::put_imm && bytes == 0) || bytes - 1 < MAX_PUT_BYTES;
}

template <Kind K, class Q>
WV_DEVICE void write_one(const Q& qp, uint64_t index, uint32_t control, const Transfer& what) {
  const auto bytes = static_cast<uint32_t>(what.bytes);
  if constexpr (K == Kind::get) {
    wqe::write_get(qp, index, control, what.local, what.remote, bytes);
  } else if constexpr (K == Kind::put_imm) {
    wqe::write_put_imm(qp, index, control, what.remote, what.local, bytes, what.imm);
  } else {
    wqe::write_put(qp, index, control, what.remote, what.local, bytes);
  }
}

/// Writes pieces of MAX_PUT_BYTES, except for a shorter last piece, which carries the immediate.
template <Kind K, class Q>
WV_DEVICE void write_pieces(const Q& qp, uint64_t index, uint32_t pieces, Transfer what,
                            bool signalled, bool fenced) {
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    const bool end = piece + 1 == pieces;
    const uint32_t control = wqe::control(signalled && end, fenced && piece == 0);
    Transfer part = what;
    if (!end) part.bytes = MAX_PUT_BYTES;
    if (K == Kind::put_imm && !end) {
      write_one<Kind::put>(qp, index + piece, control, part);
    } else {
      write_one<K>(qp, index + piece, control, part);
    }
    what.remote.addr += MAX_PUT_BYTES;
    what.local.addr += MAX_PUT_BYTES;
    what.bytes -= MAX_PUT_BYTES;
  }
}

/// Posts transfers of lengths that one WQE does not take, or refuses them: each thread writes as
/// many WQEs as it needs.
template <Kind K, class Q, class Scope, class Tail>
WV_DEVICE_COLD Posted transfer_long(Scope scope, QpContext* context, Transfer what,
                                    PostOptions options, bool active, Tail tail) {
  constexpr uint32_t COUNT_BITS = 14;  // of a quarter of the longest ring, in WQEBBs
  static_assert(MAX_DEPTH / 4 < 1u << COUNT_BITS);
  const Q qp = reopen<Q>(context);
  const uint64_t most = uint64_t{sq::max_batch(qp)} * MAX_PUT_BYTES;
  const bool bad = what.bytes > most || (what.bytes == 0 && K != Kind::put_imm);
  if (scope.any(active && bad)) return {Status::invalid, {0}};
  uint32_t pieces =
      active ? static_cast<uint32_t>((what.bytes + MAX_PUT_BYTES - 1) / MAX_PUT_BYTES) : 0;
  if (active && pieces == 0) pieces = 1;  // an immediate without data
  // Sums the counts over the scope, one bit of the counts after the other.
  Place place{0, 0};
  for (uint32_t bit = 0; bit < COUNT_BITS; ++bit) {
    const Place of_bit = scope.place((pieces >> bit & 1) != 0);
    place.count += of_bit.count << bit;
    place.before += of_bit.before << bit;
  }
  if (place.count == 0) return {Status::invalid, {0}};
  return post(scope, qp, place.count + Tail::WQES, options, [&](uint64_t index, bool last) {
    const bool ends = Tail::WQES == 0 && place.before + pieces == place.count;
    write_pieces<K>(qp, index + place.before, pieces, what, last && ends,
                    options.fence && place.before == 0);
    if (scope.leader()) tail.write(qp, index + place.count, wqe::control(last, false));
  });
}

/// Posts `what` of every active thread, in the order of the threads, and after them the leader's
/// `tail`.
template <Kind K, class Scope, class Q, class Tail = NoTail>
WV_DEVICE Posted transfer(Scope scope, const Q& qp, const Transfer& what,
                          const PostOptions& options, bool active, const Tail& tail = {}) {
  if (scope.any(active && !fits_one<K>(what.bytes))) {
    return transfer_long<K, Q>(scope, qp.context, what, options, active, tail);
  }
  const Place place = scope.place(active);
  if (place.count == 0) return {Status::invalid, {0}};
  return post(scope, qp, place.count + Tail::WQES, options, [&](uint64_t index, bool last) {
    if (active) {
      const bool end = last && Tail::WQES == 0;
      write_one<K>(qp, index + place.before, control(place, end, options), what);
    }
    if (Tail::WQES != 0 && scope.leader()) {
      tail.write(qp, index + place.count, wqe::control(last, false));
    }
  });
}

}  // namespace wv::detail
