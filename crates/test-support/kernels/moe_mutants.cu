// Phases of dispatch that break a rule of the protocol each: the suite must notice every one.
//
// All of it is in a namespace of its own: the kernels proper keep theirs. The rule that is broken
// stands in a word of the layer's context that they leave alone.
#define moe moe_mutants
#include "../../../kernels/moe/credit.cuh"

namespace wv::moe {

enum class Broken : uint32_t {
  /// A3: it does not ask whether the peer has read the slots.
  credit = 1,
  /// A4, A5: it writes no control words, neither credits before it waits nor what it skips.
  words,
  /// A8: it writes no beats.
  beat,
  /// A5: it says "not sent" in the data word, over that of an older call that no rank has read yet.
  skip,
};

WV_DEVICE Broken broken(const Call& call) { return static_cast<Broken>(call.layer.reserved1[0]); }

WV_DEVICE Credit mutant_first_look(const Call& call, uint32_t peer) {
  return broken(call) == Broken::credit ? GIVEN : first_look(call, peer);
}

WV_DEVICE_COLD Status mutant_control(const Call& call, const PeerQp& qp, uint32_t peer,
                                     const PostOptions& options) {
  if (broken(call) == Broken::credit) return control(call, qp, peer, options);
  if (broken(call) == Broken::words) return Status::ok;
  // Beats are the only words of a phase that receives.
  if (broken(call) == Broken::beat) return Status::ok;
  const DataSignal words{pack(Data{call.handle.epoch, call.call, ~0u}), own_credit(call.layer)};
  const PeerWindow window = load_peer(call.team, call.layer.signals, peer, call.rail());
  RemoteAddr to;
  if (!window.at(call.signal_offset(), sizeof words, &to)) return Status::invalid;
  return signal(Thread{}, qp, to, words, {call.deadline}).status;
}

}  // namespace wv::moe

#define first_look(...) mutant_first_look(__VA_ARGS__)
#define control(...) mutant_control(__VA_ARGS__)
#include "../../../kernels/moe/dispatch_receive.cuh"

namespace wv::moe {

WV_DEVICE void dispatch_breaking(Broken rule, const DispatchSendParams& p) {
  if (thread_in_grid() == 0) p.moe->layer.reserved1[0] = static_cast<uint32_t>(rule);
  dispatch_send(p);
}

WV_DEVICE void receive_breaking(Broken rule, const DispatchReceiveParams& p) {
  if (thread_in_grid() == 0) p.moe->layer.reserved1[0] = static_cast<uint32_t>(rule);
  dispatch_receive(p);
}

}  // namespace wv::moe

extern "C" __global__ void wv_test_moe_dispatch_send_no_credit(wv::DispatchSendParams p) {
  wv::moe::dispatch_breaking(wv::moe::Broken::credit, p);
}
WV_EXPORT(wv_test_moe_dispatch_send_no_credit)

extern "C" __global__ void wv_test_moe_dispatch_send_silent(wv::DispatchSendParams p) {
  wv::moe::dispatch_breaking(wv::moe::Broken::words, p);
}
WV_EXPORT(wv_test_moe_dispatch_send_silent)

extern "C" __global__ void wv_test_moe_dispatch_send_skip_overwrites(wv::DispatchSendParams p) {
  wv::moe::dispatch_breaking(wv::moe::Broken::skip, p);
}
WV_EXPORT(wv_test_moe_dispatch_send_skip_overwrites)

extern "C" __global__ void wv_test_moe_dispatch_receive_no_beat(wv::DispatchReceiveParams p) {
  wv::moe::receive_breaking(wv::moe::Broken::beat, p);
}
WV_EXPORT(wv_test_moe_dispatch_receive_no_beat)
