// The MoE kernels: one for each phase, one for dispatch with both phases, and one for combine with
// both phases. Launch these cooperatively, with blocks of a multiple of 32 threads. Launch
// wv_moe_abandon as one warp.
#include "abandon.cuh"
#include "combine_receive.cuh"
#include "combine_send.cuh"
#include "dispatch_receive.cuh"
#include "dispatch_send.cuh"

// Posting takes more registers than copying, and copies want as many threads as fit. The parameters
// are grid constants: functions take them by reference, and a thread would else copy them to its
// stack.
#define WV_MOE_KERNEL extern "C" __global__ void WV_MOST_THREADS(512)

WV_MOE_KERNEL wv_moe_dispatch_send(const __grid_constant__ wv::DispatchSendParams p) {
  wv::moe::dispatch_send(p);
}
WV_EXPORT(wv_moe_dispatch_send)

WV_MOE_KERNEL wv_moe_dispatch_receive(const __grid_constant__ wv::DispatchReceiveParams p) {
  wv::moe::dispatch_receive(p);
}
WV_EXPORT(wv_moe_dispatch_receive)

WV_MOE_KERNEL wv_moe_combine_send(const __grid_constant__ wv::CombineSendParams p) {
  wv::moe::combine_send(p);
}
WV_EXPORT(wv_moe_combine_send)

WV_MOE_KERNEL wv_moe_combine_receive(const __grid_constant__ wv::CombineReceiveParams p) {
  wv::moe::combine_receive(p);
}
WV_EXPORT(wv_moe_combine_receive)

WV_MOE_KERNEL wv_moe_dispatch(const __grid_constant__ wv::DispatchParams p) {
  wv::moe::dispatch_send(p.send);
  // Makes what the send phase wrote to the handle visible to the threads of the receive phase.
  wv::grid_sync();
  wv::moe::dispatch_receive(p.receive);
}
WV_EXPORT(wv_moe_dispatch)

WV_MOE_KERNEL wv_moe_combine(const __grid_constant__ wv::CombineParams p) {
  wv::moe::combine_send(p.send);
  wv::grid_sync();
  wv::moe::combine_receive(p.receive);
}
WV_EXPORT(wv_moe_combine)

extern "C" __global__ void wv_moe_abandon(const __grid_constant__ wv::AbandonParams p) {
  wv::moe::abandon(p);
}
WV_EXPORT(wv_moe_abandon)
