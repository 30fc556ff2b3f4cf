// The experts of `wv demo`. They are small on purpose: the result depends on expert and token, and
// Rust can repeat it exactly.
#include <warpverbs/abi.h>
#include <warpverbs/coop.cuh>

#include "bf16.cuh"

extern "C" __global__ void wv_demo_expert(wv::DemoExpertParams p) {
  using wv::moe::VECTOR;
  const uint32_t vectors = p.hidden / VECTOR;
  for (uint32_t expert = 0; expert < p.local_experts; ++expert) {
    const float scale = p.factors[2 * expert], shift = p.factors[2 * expert + 1];
    for (uint32_t row = wv::warp_in_grid(); row < p.counts[expert]; row += wv::grid_warps()) {
      const uint64_t at = (uint64_t{expert} * p.rows + row) * vectors;
      const auto* const x = reinterpret_cast<const wv::platform::Vec16*>(p.x) + at;
      auto* const y = reinterpret_cast<wv::platform::Vec16*>(p.y) + at;
      for (uint32_t i = wv::lane(); i < vectors; i += 32) {
        auto numbers = wv::moe::Floats::of(x[i]);
        for (float& number : numbers.values) {
          number = wv::platform::add_rn(wv::platform::mul_rn(number, scale), shift);
        }
        y[i] = numbers.round();
      }
    }
  }
}
WV_EXPORT(wv_demo_expert)
