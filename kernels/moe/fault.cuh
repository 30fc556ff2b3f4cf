// The fault record: why a call is not complete. The handle keeps the first cause and all suspects
// of its call. The board, which the host reads while kernels run, holds the newest record.
//
// Threads that wait for different peers may find faults at the same time. A compare-and-exchange
// decides which fault is the first. The phases of a layer run one at a time, so the board has one
// writer.
#pragma once

#include "call.cuh"

namespace wv::moe {

/// Returns the bit of `rank` in an array of words.
WV_DEVICE bool has_bit(const uint32_t* words, uint32_t rank) {
  return (platform::load_relaxed_sys(words + rank / 32) >> rank % 32 & 1) != 0;
}

/// Writes the handle's record to the board. One thread of the grid at a time.
WV_DEVICE_COLD void publish_fault(const LayerContext& layer, const MoeHandle& handle) {
  MoeBoard& board = *layer.board;
  const uint32_t number = platform::load_relaxed_sys(&board.faults) + 1;
  platform::store_relaxed_sys(&board.faults_begun, number);
  // Release. Orders `faults_begun` before the record. Pairs with the host's acquire fence between
  // its reads of the record and of `faults_begun`: a host that has read a word of this record also
  // sees the new `faults_begun`.
  platform::fence_release_sys();
  const auto* const from = reinterpret_cast<const uint32_t*>(&handle.fault);
  auto* const to = reinterpret_cast<uint32_t*>(&board.fault);
  for (uint32_t i = 0; i < sizeof(MoeFault) / sizeof(uint32_t); ++i) {
    platform::store_relaxed_sys(to + i, platform::load_relaxed(from + i));
  }
  // Release. Orders the record before its number: pairs with the host's acquire load of `faults`.
  platform::fence_release_sys();
  platform::store_relaxed_sys(&board.faults, number);
}

/// Records a fault at `peer`, or of this rank itself if `peer` is NONE. Only the first fault of a
/// call is kept in the handle and published.
WV_DEVICE_COLD void record_fault(LayerContext& layer, MoeHandle& handle, Phase phase,
                                 MoeCause cause, uint32_t peer, uint32_t syndrome,
                                 uint32_t expert) {
  const auto none = static_cast<uint32_t>(MoeCause::none), why = static_cast<uint32_t>(cause);
  if (peer != NONE) {
    auto* const first = reinterpret_cast<uint32_t*>(&handle.peers[peer].cause);
    if (platform::compare_exchange_relaxed(first, none, why) == none) {
      handle.peers[peer].syndrome = syndrome;
    }
  }
  auto* const first = reinterpret_cast<uint32_t*>(&handle.fault.cause);
  if (platform::compare_exchange_relaxed(first, none, why) != none) return;
  handle.fault.call = handle.call;
  handle.fault.epoch = handle.epoch;
  handle.fault.peer = peer;
  handle.fault.phase = phase;
  handle.fault.syndrome = syndrome;
  handle.fault.expert = expert;
  publish_fault(layer, handle);
}

/// Records a fault of the phase that runs, as the function above does.
WV_DEVICE void record_fault(const Call& call, MoeCause cause, uint32_t peer, uint32_t syndrome = 0,
                            uint32_t expert = NONE) {
  record_fault(call.layer, call.handle, call.phase, cause, peer, syndrome, expert);
}

/// Records the fault that the failed QP to `peer` reports.
///
/// Only `cqe_error` names a cause, and only while the word of failure and syndrome still holds it.
/// The host may have overwritten the word with its own, which ends calls and explains nothing. Then
/// the cause is lost.
WV_DEVICE_COLD void record_error(const Call& call, uint32_t peer) {
  const uint64_t failure =
      platform::load_relaxed(reinterpret_cast<const uint64_t*>(&call.qp_to(peer)->err));
  if (static_cast<Status>(static_cast<uint32_t>(failure)) != Status::cqe_error) {
    return record_fault(call, MoeCause::flushed, peer);
  }
  record_fault(call, MoeCause::cqe_error, peer, static_cast<uint32_t>(failure >> 32));
}

/// Records the fault that ended a wait for `peer`, or a post to it, with `status`.
WV_DEVICE_COLD void record_failure(const Call& call, uint32_t peer, Status status) {
  switch (status) {
    case Status::ok:
      return;
    case Status::cqe_error:
    case Status::flushed:
      return record_error(call, peer);
    case Status::aborted:
    case Status::closed:
      return record_fault(call, MoeCause::aborted, peer);
    case Status::invalid:
      return record_fault(call, MoeCause::malformed, peer);
    default:
      return record_fault(call, MoeCause::timeout, peer);
  }
}

/// Clears the fault and the suspects. One thread, before the call's first phase begins.
WV_DEVICE void clear_fault(MoeFault& fault, uint32_t ranks) {
  fault.call = 0;
  fault.cause = MoeCause::none;
  fault.peer = NONE;
  for (uint32_t word = 0; word < (ranks + 31) / 32; ++word) fault.suspects[word] = 0;
}

/// Writes to the board, at the end of a phase, which members of the newest view are suspects. It
/// writes only if a suspicion began or ended, or if the members have changed. Returns whether it
/// wrote. One thread, after a barrier.
WV_DEVICE bool publish_suspects(const Call& call) {
  if (platform::load_relaxed(&call.layer.changed) == 0) return false;
  call.layer.changed = 0;
  const MoeView& newest = call.layer.views[call.layer.view];
  for (uint32_t base = 0; base < call.ranks(); base += 32) {
    uint32_t bits = 0;
    for (uint32_t peer = base; peer < base + 32 && peer < call.ranks(); ++peer) {
      bits |= (call.layer.peers[peer].suspect != 0 ? 1u : 0u) << peer % 32;
    }
    bits &= platform::load_relaxed_sys(newest.members + base / 32);
    platform::store_relaxed_sys(&call.layer.board->suspected[base / 32], bits);
  }
  if (call.handle.fault.cause != MoeCause::none) publish_fault(call.layer, call.handle);
  return true;
}

}  // namespace wv::moe
