// The end of a call that the program does not combine, where it knows so only when its dispatch has
// been received. The receive phase of a dispatch with DISPATCH_ONLY does the same at once.
#pragma once

#include "begin.cuh"

namespace wv::moe {

/// One thread does it; no peer gets a word. A call whose dispatch has not been received is left as
/// it is, and its report says `invalid`. A call that has come to its combine, or is closed, has no
/// need of it.
WV_DEVICE_ONCE void abandon(const AbandonParams& p) {
  if (thread_in_grid() != 0) return;
  MoeContext& moe = *p.moe;
  MoeHandle& handle = *p.handle;
  if (handle.stage != CallStage::dispatched) {
    const bool early =
        static_cast<uint32_t>(handle.stage) < static_cast<uint32_t>(CallStage::dispatched);
    if (early) handle.phase[COMBINE_SEND] = Status::invalid;
    return;
  }
  handle.combine_flags = COMBINE_NONE;
  // A call that is closed has ended, and its place in `ended` may be that of a later one.
  if (!newer(handle.call, moe.released[KIND_COMBINE])) return;
  moe.ended[set_of(handle.call)] = handle.call;
  // Release. What the phases of the call did, before the word of `publish_finished`: pairs with the
  // acquire load of the host.
  platform::fence_release_sys();
  publish_finished(moe);
}

}  // namespace wv::moe
