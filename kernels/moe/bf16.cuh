// Bfloat16 arithmetic on bits, equal on every target: crates/moe-reference/src/bf16.rs is its twin.
#pragma once

#include <warpverbs/platform.cuh>

namespace wv::moe {

/// The number of BF16 elements in a 16-byte vector.
inline constexpr uint32_t VECTOR = 8;

WV_DEVICE float bf16_to_float(uint32_t bits) { return platform::float_of(bits << 16); }

/// Returns the BF16 nearest to `value`, ties to even. A value that is too large becomes infinite,
/// and a NaN stays a NaN.
WV_DEVICE uint32_t float_to_bf16(float value) {
  const uint32_t bits = platform::float_bits(value);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return nan ? bits >> 16 | 0x40 : rounded;
}

/// The eight BF16 of a 16-byte vector.
struct Elements {
  uint16_t bits[VECTOR];

  WV_DEVICE static Elements of(const platform::Vec16& vector) {
    Elements out;
    memcpy(out.bits, &vector, sizeof out.bits);
    return out;
  }
  WV_DEVICE platform::Vec16 vector() const {
    platform::Vec16 out;
    memcpy(&out, bits, sizeof out);
    return out;
  }
};

/// Eight f32 numbers, 0 at first.
struct Floats {
  float values[VECTOR] = {};

  /// Returns the elements of a vector as f32.
  WV_DEVICE static Floats of(const platform::Vec16& vector) {
    const Elements elements = Elements::of(vector);
    Floats out;
    for (uint32_t i = 0; i < VECTOR; ++i) out.values[i] = bf16_to_float(elements.bits[i]);
    return out;
  }
  /// Adds `weight` * each number of `other`. The product is rounded, then the sum.
  WV_DEVICE void add(float weight, const Floats& other) {
    for (uint32_t i = 0; i < VECTOR; ++i) {
      values[i] = platform::add_rn(values[i], platform::mul_rn(weight, other.values[i]));
    }
  }
  /// Adds each number of `other`.
  WV_DEVICE void add(const Floats& other) {
    for (uint32_t i = 0; i < VECTOR; ++i) {
      values[i] = platform::add_rn(values[i], other.values[i]);
    }
  }
  /// Multiplies each number by `factor`.
  WV_DEVICE void scale(float factor) {
    for (float& value : values) value = platform::mul_rn(value, factor);
  }
  /// Returns the numbers rounded to BF16.
  WV_DEVICE platform::Vec16 round() const {
    Elements out;
    for (uint32_t i = 0; i < VECTOR; ++i) {
      out.bits[i] = static_cast<uint16_t>(float_to_bf16(values[i]));
    }
    return out.vector();
  }
};

}  // namespace wv::moe
