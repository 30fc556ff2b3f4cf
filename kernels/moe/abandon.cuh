// The kernel that ends a call without a combine, for a program that decides so only after it has
// received the call's dispatch. A dispatch with DISPATCH_ONLY decides so at once, and its receive
// phase ends the call.
#pragma once

#include "begin.cuh"

namespace wv::moe {

/// Ends the call without a combine. One thread works, and no peer gets a word. Before the receive
/// phase of the call's dispatch this only reports `invalid`. After the begin of its combine, or
/// after the end of the call, it does nothing.
WV_DEVICE_ONCE void abandon(const AbandonParams& p) {
  if (thread_in_grid() != 0) return;
  LayerContext& layer = p.moe->layer;
  MoeHandle& handle = *p.handle;
  if (handle.stage != CallStage::dispatched) {
    const bool early =
        static_cast<uint32_t>(handle.stage) < static_cast<uint32_t>(CallStage::dispatched);
    if (early) handle.phase[COMBINE_SEND] = Status::invalid;
    return;
  }
  handle.combine_flags = COMBINE_NONE;
  // A call that is closed has ended, and its entry of `ended` may belong to a later call.
  if (!newer(handle.call, layer.released[KIND_COMBINE])) return;
  layer.ended[set_of(handle.call)] = handle.call;
  // Release. Orders what the phases of the call did before the word of `publish_finished`: pairs
  // with the acquire load of the host.
  platform::fence_release_sys();
  publish_finished(layer);
}

}  // namespace wv::moe
