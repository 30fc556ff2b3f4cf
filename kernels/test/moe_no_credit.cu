// A dispatch that does not ask whether the peer has read the slots: the suite must notice it.
#include "../moe/dispatch_send.cuh"

extern "C" __global__ void wv_test_moe_dispatch_send_no_credit(wv::DispatchSendParams p) {
  wv::moe::dispatch_send<wv::moe::Credits::ignored>(p);
}
WV_EXPORT(wv_test_moe_dispatch_send_no_credit)
