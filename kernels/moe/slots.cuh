// What a thread of a phase needs of its call beside `Call`, where rows lie in slots: the context of
// the layer, the shape of the call, and the addresses of slots and of staged rows.
#pragma once

#include "call.cuh"

namespace wv::moe {

/// A call whose rows lie in slots, as all threads of a phase share it.
struct SlotCall : Call {
  /// The send buffer of the call's dispatch.
  uint32_t buffer;

  WV_DEVICE SlotCall(MoeContext* moe, MoeHandle* of, Phase which)
      : Call(&moe->layer, of, which), buffer(of->buffer) {}

  /// The context of the layer, whose first member `layer` is. A reference of its own would take two
  /// registers of each thread.
  WV_DEVICE MoeContext& moe() const { return reinterpret_cast<MoeContext&>(layer); }

  /// The format and number of the call's tokens. Slots and tables keep the places that they have in
  /// the largest call, so that the writer of a place never changes. Only the arrays of the caller
  /// have the lengths of this shape.
  WV_DEVICE const MoeShape& shape() const { return handle.shape; }

  /// Returns the byte offset in the slot window of row `row` from `source`, in this call's set.
  WV_DEVICE uint64_t dispatch_slot(uint32_t source, uint32_t row) const {
    return (uint64_t{set()} * ranks() + source) * moe().max_tokens * moe().slot_bytes +
           row * moe().slot_bytes;
  }
  /// Returns the byte offset in the staging window of token `token`, in this call's send buffer.
  WV_DEVICE uint64_t dispatch_staging(uint32_t token) const {
    return (uint64_t{buffer} * moe().max_tokens + token) * moe().slot_bytes;
  }
};

}  // namespace wv::moe
