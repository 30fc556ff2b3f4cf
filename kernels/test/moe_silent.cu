// A dispatch that writes no control words: neither credits before it waits, nor what it skips. The
// suite must notice it.
//
// All of it is in a namespace of its own: the kernels proper keep theirs.
#define moe moe_silent
#include "../moe/credit.cuh"

namespace wv::moe {

template <class... Options>
WV_DEVICE Status mutant_control(const Call&, const PeerQp&, uint32_t, Options...) {
  return Status::ok;
}

}  // namespace wv::moe

#define control(...) mutant_control(__VA_ARGS__)
#include "../moe/dispatch_send.cuh"

extern "C" __global__ void wv_test_moe_dispatch_send_silent(wv::DispatchSendParams p) {
  wv::moe::dispatch_send<wv::moe::Credits::required>(p);
}
WV_EXPORT(wv_test_moe_dispatch_send_silent)
