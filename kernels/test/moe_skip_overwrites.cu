// A dispatch that says "not sent" in the data word, over the word of an older call that nobody has
// read yet. The suite must notice it.
//
// All of it is in a namespace of its own: the kernels proper keep theirs.
#define moe moe_overwriting
#include "../moe/credit.cuh"

namespace wv::moe {

template <class... Options>
WV_DEVICE Status mutant_control(const Call& call, const PeerQp& qp, uint32_t peer, Options...) {
  const DataSignal words{pack(Data{call.handle.epoch, call.call, ~0u}), own_credit(call.moe)};
  const PeerWindow window = load_peer(call.team, call.moe.signals, peer, call.rail());
  RemoteAddr to;
  if (!window.at(call.signal_offset(), sizeof words, &to)) return Status::invalid;
  return signal(Thread{}, qp, to, words, {call.deadline}).status;
}

}  // namespace wv::moe

#define control(...) mutant_control(__VA_ARGS__)
#include "../moe/dispatch_send.cuh"

extern "C" __global__ void wv_test_moe_dispatch_send_skip_overwrites(wv::DispatchSendParams p) {
  wv::moe::dispatch_send<wv::moe::Credits::required>(p);
}
WV_EXPORT(wv_test_moe_dispatch_send_skip_overwrites)
