// Numbers as FP8, two by two, as the MoE kernels cast them.
#include "../../../kernels/moe/format.cuh"

struct E4m3Params {  // the same #[repr(C)] struct on the host
  uint16_t* out;
  /// Bits of the first f32, and how far two of them are apart.
  uint32_t first, step;
  /// Pairs.
  uint32_t count;
  uint32_t reserved;
};

extern "C" __global__ void wv_test_e4m3(E4m3Params p) {
  for (uint32_t i = wv::thread_in_grid(); i < p.count; i += wv::grid_threads()) {
    const float low = wv::platform::float_of(p.first + 2 * i * p.step);
    const float high = wv::platform::float_of(p.first + (2 * i + 1) * p.step);
    p.out[i] = static_cast<uint16_t>(wv::moe::pair_to_e4m3(low, high));
  }
}
WV_EXPORT(wv_test_e4m3)
