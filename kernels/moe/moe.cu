// The MoE kernels: one for each phase, one for dispatch with both phases, and one for combine with
// both phases. Launch these cooperatively, with blocks of a multiple of 32 threads. Launch
// wv_moe_abandon as one warp.
#include "abandon.cuh"
#include "combine_receive.cuh"
#include "combine_send.cuh"
#include "dispatch_receive.cuh"
#include "dispatch_send.cuh"

// Posting takes more registers than copying, and copies want as many threads as fit.
#define WV_MOE_KERNEL extern "C" __global__ void WV_MOST_THREADS(512)

WV_MOE_KERNEL wv_moe_dispatch_send(wv::DispatchSendParams p) { wv::moe::dispatch_send(p); }
WV_EXPORT(wv_moe_dispatch_send)

WV_MOE_KERNEL wv_moe_dispatch_receive(wv::DispatchReceiveParams p) { wv::moe::dispatch_receive(p); }
WV_EXPORT(wv_moe_dispatch_receive)

WV_MOE_KERNEL wv_moe_combine_send(wv::CombineSendParams p) { wv::moe::combine_send(p); }
WV_EXPORT(wv_moe_combine_send)

WV_MOE_KERNEL wv_moe_combine_receive(wv::CombineReceiveParams p) { wv::moe::combine_receive(p); }
WV_EXPORT(wv_moe_combine_receive)

WV_MOE_KERNEL wv_moe_dispatch(wv::DispatchParams p) {
  wv::moe::dispatch_send(p.send);
  // Makes what the send phase wrote to the handle visible to the threads of the receive phase.
  wv::grid_sync();
  wv::moe::dispatch_receive(p.receive);
}
WV_EXPORT(wv_moe_dispatch)

WV_MOE_KERNEL wv_moe_combine(wv::CombineParams p) {
  wv::moe::combine_send(p.send);
  wv::grid_sync();
  wv::moe::combine_receive(p.receive);
}
WV_EXPORT(wv_moe_combine)

extern "C" __global__ void wv_moe_abandon(wv::AbandonParams p) { wv::moe::abandon(p); }
WV_EXPORT(wv_moe_abandon)
