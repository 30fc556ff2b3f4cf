// What a thread of a phase needs of its call in a layer of any kind: ranks, the handle, signals,
// QPs and deadlines. Guards, waits for peers, beats, faults and the order of signals need no more.
// `slots.cuh` adds where rows lie.
#pragma once

#include <warpverbs/coop.cuh>
#include <warpverbs/guard.cuh>
#include <warpverbs/peer.cuh>
#include <warpverbs/wait.cuh>

#include "words.cuh"

namespace wv::moe {

/// Returns this warp's number among the warps that share the work of a phase. Warps with
/// neighbouring numbers run on different multiprocessors, so that a few rows use all
/// multiprocessors.
WV_DEVICE uint32_t worker() { return warp_in_block() * grid_blocks() + block_in_grid(); }
/// Returns the number of warps that share the work of a phase.
WV_DEVICE uint32_t workers() { return grid_warps(); }

/// A QP to a peer. Many blocks share it; the team chose its other modes.
using PeerQp = AnyQp<Sharing::shared>;

/// Returns signal `i` that `peer` writes at this rank.
WV_DEVICE MoeSignal* signal_of(const LayerContext& layer, uint32_t peer, uint32_t i) {
  return reinterpret_cast<MoeSignal*>(layer.signals.base) + peer * SIGNALS_PER_PEER + i;
}

/// The four phases, as indices of `MoeHandle::phase`.
enum Phase : uint32_t { DISPATCH_SEND, DISPATCH_RECEIVE, COMBINE_SEND, COMBINE_RECEIVE };

/// What all threads of a phase share. A thread makes it after the barrier that follows `begin`, so
/// that the handle names the call.
struct Call {
  LayerContext& layer;
  MoeHandle& handle;
  const TeamContext& team;
  /// The ranks that take part in the call, and the ranks that hold each expert.
  const MoeView& view;
  uint32_t kind;
  Phase phase;
  uint32_t call;
  /// Index of this call's signal among the signals of a peer, and of this call's entries in the
  /// arrays of `MoePeer`.
  uint32_t index;
  /// The begin of the phase, by the device's clock.
  uint64_t began_ns;
  Deadline deadline;

  WV_DEVICE Call(LayerContext* context, MoeHandle* of, Phase which)
      : layer(*context),
        handle(*of),
        team(*context->team),
        view(context->views[of->view]),
        kind(which < COMBINE_SEND ? KIND_DISPATCH : KIND_COMBINE),
        phase(which),
        call(of->call),
        index(signal_index(kind, call)),
        began_ns(context->began_ns),
        deadline(after(of->deadline_ns)) {}

  /// Returns this call with the words of call `number` of kind `of_kind` in place of its own.
  WV_DEVICE Call words_of(uint32_t of_kind, uint32_t number) const {
    Call other(*this);
    other.kind = of_kind;
    other.call = number;
    other.index = signal_index(of_kind, number);
    return other;
  }

  WV_DEVICE uint32_t rank() const { return team.rank; }
  WV_DEVICE uint32_t ranks() const { return team.ranks; }
  WV_DEVICE uint32_t set() const { return set_of(call); }

  /// Returns the deadline `ns` after the begin of the phase.
  WV_DEVICE Deadline after(uint64_t ns) const {
    return {began_ns + ns < ns ? ~uint64_t{0} : began_ns + ns};
  }

  /// Returns whether the phase was called in turn. A phase that was not touches nothing.
  WV_DEVICE bool in_turn() const { return handle.in_turn != 0; }
  /// Returns whether the phase can do its work. A phase that cannot only sends the peers a word
  /// that says so. The answer is final after the next barrier.
  WV_DEVICE bool runs() const { return platform::load_relaxed(&handle.stopped) == 0; }
  /// Returns whether `peer`, which may be this rank, is a member of the call's epoch. The answer is
  /// final after the first barrier that follows `begin_peers`.
  WV_DEVICE bool is_member(uint32_t peer) const { return handle.peers[peer].member != 0; }
  /// Returns whether this rank sends rows to `peer` and awaits rows from it: `peer` is a member
  /// that the caller has not masked.
  WV_DEVICE bool is_active(uint32_t peer) const { return handle.peers[peer].active != 0; }
  /// Returns whether the QPs to `peer` may be used in this phase.
  WV_DEVICE bool is_open(uint32_t peer) const { return layer.peers[peer].open != 0; }

  /// Records how long the phase has waited for `peer`, if that is its longest wait.
  WV_DEVICE void note_wait(uint32_t peer) const {
    const uint64_t units = (platform::now_ns() - began_ns) >> 10;
    uint32_t& longest = handle.peers[peer].waited[kind];
    if (units > longest) longest = units < NONE ? static_cast<uint32_t>(units) : NONE;
  }

  /// Records the first failure of the phase.
  WV_DEVICE void report(Status status) const {
    if (status == Status::ok) return;
    platform::compare_exchange_relaxed(reinterpret_cast<uint32_t*>(&handle.phase[phase]),
                                       static_cast<uint32_t>(Status::ok),
                                       static_cast<uint32_t>(status));
  }
  /// Records a failure and stops the phase, which then does no further work.
  WV_DEVICE void stop(Status status) const {
    report(status);
    platform::store_relaxed(&handle.stopped, 1u);
  }

  /// Returns signal `i` that `peer` writes at this rank.
  WV_DEVICE MoeSignal* signal_from(uint32_t peer, uint32_t i) const {
    return signal_of(layer, peer, i);
  }
  /// Returns the byte offset of this call's signal of this rank in the signal window of any peer.
  WV_DEVICE uint64_t signal_offset() const {
    return (uint64_t{rank()} * SIGNALS_PER_PEER + index) * sizeof(MoeSignal);
  }

  /// Returns the QP to `peer` that carries this kind and set, or null if no such QP exists.
  WV_DEVICE QpContext* qp_to(uint32_t peer) const {
    return peer_qp(team, peer, index % team.qps_per_peer);
  }
  /// Opens the QP to `peer`. Returns `closed` if the phase holds no guard of the peer.
  WV_DEVICE Status open(uint32_t peer, PeerQp* qp) const {
    return is_open(peer) ? open_qp(qp_to(peer), qp) : Status::closed;
  }
  /// Returns the rail of the QPs of this kind and set: it selects the rows of the peer table that
  /// name the windows for these QPs.
  WV_DEVICE uint32_t rail() const { return qp_rail(team, index % team.qps_per_peer); }
  WV_DEVICE Watch watch(const PeerQp& qp) const { return {qp.watch().err, &team.config->abort}; }
};

}  // namespace wv::moe
