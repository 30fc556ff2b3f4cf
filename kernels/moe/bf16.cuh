// Bfloat16 by its bits, the same on every target: src/moe/bf16.rs is the twin.
#pragma once

#include <warpverbs/platform.cuh>

namespace wv::moe {

/// Elements of a 16-byte vector.
inline constexpr uint32_t VECTOR = 8;

WV_DEVICE float bf16_to_float(uint32_t bits) { return platform::float_of(bits << 16); }

/// Nearest, ties to even; too large becomes infinite, a NaN stays one.
WV_DEVICE uint32_t float_to_bf16(float value) {
  const uint32_t bits = platform::float_bits(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

/// Element `i` of eight BF16 in a vector.
WV_DEVICE float element(const platform::Vec16& vector, uint32_t i) {
  const uint64_t half = i < 4 ? vector.lo : vector.hi;
  return bf16_to_float(static_cast<uint32_t>(half >> 16 * (i % 4)) & 0xffff);
}

/// Eight sums in f32, from zero.
struct Sums {
  float values[VECTOR] = {};

  /// Adds `weight` * each element: product rounded, sum rounded.
  WV_DEVICE void add(float weight, const platform::Vec16& vector) {
    for (uint32_t i = 0; i < VECTOR; ++i) {
      values[i] = platform::add_rn(values[i], platform::mul_rn(weight, element(vector, i)));
    }
  }
  /// Adds each element.
  WV_DEVICE void add(const platform::Vec16& vector) {
    for (uint32_t i = 0; i < VECTOR; ++i) {
      values[i] = platform::add_rn(values[i], element(vector, i));
    }
  }
  /// The sums as BF16.
  WV_DEVICE platform::Vec16 round() const {
    platform::Vec16 out{0, 0};
    for (uint32_t i = 0; i < 4; ++i) {
      out.lo |= uint64_t{float_to_bf16(values[i])} << 16 * i;
      out.hi |= uint64_t{float_to_bf16(values[i + 4])} << 16 * i;
    }
    return out;
  }
};

}  // namespace wv::moe
