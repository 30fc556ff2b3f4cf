// The formats in which a token travels: BF16, FP8 (e4m3) with scales, and opaque bytes.
//
// A row in a slot is header | payload | scales. FP8 arithmetic is equal on every target, bit for
// bit: crates/moe-reference/src/format.rs is its twin.
#pragma once

#include "bf16.cuh"
#include "rows.cuh"
#include "slots.cuh"

namespace wv::moe {

/// The largest FP8 number, its code, and the code of a NaN.
inline constexpr float E4M3_MAX = 448.0f;
inline constexpr uint32_t E4M3_MAX_CODE = 0x7e, E4M3_NAN = 0x7f;
/// The least value that counts as the largest magnitude of a group, so that no scale is 0.
inline constexpr float LEAST_MAGNITUDE = 1e-4f;
/// The largest finite BF16, without its sign.
inline constexpr uint32_t BF16_MAX_CODE = 0x7f7f;
/// The number of lanes that share a group of channels: each lane has one vector of it.
inline constexpr uint32_t GROUP_LANES = SCALE_CHANNELS / VECTOR;

/// Returns the FP8 (e4m3, no infinities) nearest to `value`, ties to even. A value that is too
/// large becomes the largest FP8, and a NaN stays a NaN.
WV_DEVICE uint32_t float_to_e4m3(float value) {
  const uint32_t bits = platform::float_bits(value), magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 24 & 0x80;
  if (magnitude > 0x7f800000) return E4M3_NAN;
  if (magnitude >= platform::float_bits(E4M3_MAX)) return sign | E4M3_MAX_CODE;
  if (magnitude < 121u << 23) {
    // Below 2^-6 FP8 numbers lie 2^-9 apart, as f32 numbers do from 2^14 on. So this sum rounds to
    // FP8.
    const float shifted = platform::add_rn(platform::float_of(magnitude), 16384.0f);
    return sign | (platform::float_bits(shifted) - platform::float_bits(16384.0f));
  }
  const uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
  return sign | ((rounded >> 20) - (120u << 3));
}

/// The scale of a group of channels, and the factor by which the channels are multiplied.
struct GroupScale {
  float scale;
  float inverse;
};

/// Returns the scale of channels whose largest magnitude is `largest`, a BF16 without sign.
/// Infinities and NaNs count as the largest finite number.
WV_DEVICE GroupScale group_scale(MoeScales kind, uint32_t largest) {
  const float bounded = bf16_to_float(largest < BF16_MAX_CODE ? largest : BF16_MAX_CODE);
  const float magnitude = bounded > LEAST_MAGNITUDE ? bounded : LEAST_MAGNITUDE;
  // Divisions round to nearest on every target: nothing here is compiled with fast mathematics.
  const float scale = magnitude / E4M3_MAX;
  if (kind == MoeScales::f32) return {scale, E4M3_MAX / magnitude};
  const uint32_t bits = platform::float_bits(scale);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffff) != 0 ? 1 : 0);
  return {platform::float_of(exponent << 23), platform::float_of((254 - exponent) << 23)};
}

/// Returns the largest magnitude among the eight BF16 of a vector, without sign.
WV_DEVICE uint32_t largest_of(const platform::Vec16& vector) {
  constexpr uint64_t MAGNITUDES = 0x7fff'7fff'7fff'7fff;
  const auto larger = [](uint64_t pairs) {
    return platform::max_of_halves(static_cast<uint32_t>(pairs),
                                   static_cast<uint32_t>(pairs >> 32));
  };
  const uint32_t both =
      platform::max_of_halves(larger(vector.lo & MAGNITUDES), larger(vector.hi & MAGNITUDES));
  const uint32_t high = both >> 16, low = both & 0xffff;
  return high > low ? high : low;
}

/// Returns the largest `value` among the lanes that share this lane's group. Whole warp.
WV_DEVICE uint32_t largest_in_group(uint32_t value) {
  for (uint32_t step = GROUP_LANES / 2; step != 0; step /= 2) {
    const uint32_t other = Warp{}.shuffle(value, lane() ^ step);
    value = other > value ? other : value;
  }
  return value;
}

/// Returns two numbers as FP8, `low` in the lower byte.
WV_DEVICE uint32_t pair_to_e4m3(float low, float high) {
#ifdef WV_HAS_E4M3
  return platform::floats_to_e4m3(low, high);
#else
  return float_to_e4m3(low) | float_to_e4m3(high) << 8;
#endif
}

/// Returns eight BF16, multiplied by `inverse`, as FP8.
WV_DEVICE uint64_t quantize(const Elements& elements, float inverse) {
  const auto scaled = [&](uint32_t i) {
    return platform::mul_rn(bf16_to_float(elements.bits[i]), inverse);
  };
  uint64_t codes = 0;
  for (uint32_t i = 0; i < VECTOR; i += 2) {
    codes |= uint64_t{pair_to_e4m3(scaled(i), scaled(i + 1))} << 8 * i;
  }
  return codes;
}

/// The scales of a batch's groups. A half of the warp holds one group for each vector number. Each
/// lane computes the scale of one group, and the lanes read the scales of their vectors from each
/// other.
template <MoeScales S>
class BatchScales {
 public:
  /// Computes the scale of the lane's group. Whole warp.
  WV_DEVICE explicit BatchScales(const Vectors<BATCH>& vectors) {
    static_assert(BATCH <= GROUP_LANES);
    uint32_t own = 0;
    for (uint32_t k = 0; k < BATCH; ++k) {
      const uint32_t largest = largest_in_group(largest_of(vectors.of[k]));
      if (lane() % GROUP_LANES == k) own = largest;
    }
    own_ = group_scale(S, own);
  }
  /// Returns the scale of vector `k` of this lane. Whole warp.
  WV_DEVICE GroupScale of(uint32_t k) const {
    constexpr Warp warp;
    const uint32_t from = lane() / GROUP_LANES * GROUP_LANES + k;
    return {platform::float_of(warp.shuffle(platform::float_bits(own_.scale), from)),
            platform::float_of(warp.shuffle(platform::float_bits(own_.inverse), from))};
  }

 private:
  GroupScale own_;
};

/// Casts a slice of the BF16 token at `x` to FP8 and writes payload and scales into the slot at
/// `slot`. Whole warp; each half of the warp has a group of channels.
template <MoeScales S>
WV_DEVICE void cast_to_fp8(const SlotCall& call, uint64_t slot, uint64_t x, Slice slice) {
  const MoeContext& moe = call.moe();
  const MoeShape& shape = call.shape();
  const auto* const from = reinterpret_cast<const platform::Vec16*>(x);
  auto* const codes = reinterpret_cast<uint64_t*>(slot + moe.header_bytes);
  const uint64_t scales = slot + shape.scales_at;
  const uint32_t vectors = moe.hidden / VECTOR;
  const auto store = [&](const Batch& batch, uint32_t k, const Elements& elements,
                         const GroupScale& scale) {
    if (!batch.has(k)) return;  // the end of a row is the end of a group
    const uint32_t at = batch.at(k);
    codes[at] = quantize(elements, scale.inverse);
    if (at % GROUP_LANES != 0) return;
    const uint32_t group = at / GROUP_LANES;
    if constexpr (S == MoeScales::ue8m0) {
      const uint32_t exponent = platform::float_bits(scale.scale) >> 23;
      reinterpret_cast<uint8_t*>(scales)[group] = static_cast<uint8_t>(exponent);
    } else {
      reinterpret_cast<float*>(scales)[group] = scale.scale;
    }
  };
  const auto cast_batch = [&](const Batch& batch) {
    const auto loaded = Vectors<BATCH>::load(batch, from);
    const BatchScales<S> scales_of(loaded);
    for (uint32_t k = 0; k < BATCH; ++k) {
      store(batch, k, Elements::of(loaded.of[k]), scales_of.of(k));
    }
  };
  for_batches<BATCH>(vectors, cast_batch, slice);
  // The unused bytes in the last word of packed exponents are set to 0.
  const uint32_t groups = moe.hidden / SCALE_CHANNELS;
  if (S == MoeScales::ue8m0 && slice.is_first() && groups + lane() < shape.scale_bytes) {
    reinterpret_cast<uint8_t*>(scales)[groups + lane()] = 0;
  }
}

/// Copies `bytes` (a multiple of 4) between addresses that are multiples of 4. Whole warp.
WV_DEVICE void copy_words(uint64_t to, uint64_t from, uint32_t bytes) {
  auto* const target = reinterpret_cast<uint32_t*>(to);
  const auto* const source = reinterpret_cast<const uint32_t*>(from);
  for (uint32_t i = lane(); i < bytes / 4; i += 32) target[i] = source[i];
}

/// Returns whether this rank casts the tokens of the call.
WV_DEVICE bool casts(const MoeShape& shape, uint32_t flags) {
  return shape.format == MoeFormat::fp8 && (flags & DISPATCH_QUANTIZED) == 0;
}

/// Returns the number of batches in which `pack_token` takes a token.
WV_DEVICE uint32_t batches_to_pack(const SlotCall& call, const DispatchSendParams& p) {
  if (casts(call.shape(), p.flags)) return batches_of<BATCH>(call.moe().hidden / VECTOR);
  return batches_of<LONG_BATCH>(call.shape().row_bytes / 16);
}

/// Writes a slice of the payload and scales of the caller's token `token` into the slot at `slot`.
/// Whole warp.
WV_DEVICE void pack_token(const SlotCall& call, const DispatchSendParams& p, uint32_t token,
                          uint64_t slot, Slice slice) {
  const MoeContext& moe = call.moe();
  const MoeShape& shape = call.shape();
  const auto x = reinterpret_cast<uint64_t>(p.x);
  if (casts(shape, p.flags)) {
    const uint64_t from = x + token * moe.combine_row_bytes;
    switch (shape.scales) {
      case MoeScales::power_of_two:
        return cast_to_fp8<MoeScales::power_of_two>(call, slot, from, slice);
      case MoeScales::ue8m0:
        return cast_to_fp8<MoeScales::ue8m0>(call, slot, from, slice);
      default:
        return cast_to_fp8<MoeScales::f32>(call, slot, from, slice);
    }
  }
  copy(slot + moe.header_bytes, x + uint64_t{token} * shape.row_bytes, shape.row_bytes, slice);
  if (!slice.is_first()) return;
  const auto scales = reinterpret_cast<uint64_t>(p.x_scales);
  copy_words(slot + shape.scales_at, scales + uint64_t{token} * shape.scale_bytes,
             shape.scale_bytes);
}

/// Copies a slice of the scales of the slot at `slot`. Each lane with `has` names with `place` a
/// row that gets them. Whole warp.
WV_DEVICE void deliver_scales(const SlotCall& call, const DispatchReceiveParams& p, uint64_t slot,
                              bool has, uint64_t place, Slice slice) {
  constexpr Warp warp;
  const MoeShape& shape = call.shape();
  const uint32_t words = shape.scale_bytes / 4;
  const auto* const from = reinterpret_cast<const uint32_t*>(slot + shape.scales_at);
  // In the layout by expert, FP8 scales are transposed for matrix products: word 0 of all rows,
  // then word 1 of all rows, and so on.
  const bool across = shape.format == MoeFormat::fp8 && call.moe().layout != MoeLayout::rank_major;
  const uint64_t rows = across ? uint64_t{call.ranks()} * shape.max_tokens : 1;
  const uint64_t start = place / rows * words * rows + place % rows;
  const uint32_t lanes = warp.ballot(has);
  for (uint32_t base = slice.first * 32; base < words; base += slice.count * 32) {
    const uint32_t word = base + lane();
    const uint32_t value = from[word < words ? word : words - 1];
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      const uint64_t target = warp.shuffle(start, __ffs(rest) - 1) + word * rows;
      if (word < words) reinterpret_cast<uint32_t*>(p.recv_scales)[target] = value;
    }
  }
}

/// Returns the number of batches in which `deliver` takes a token.
WV_DEVICE uint32_t batches_to_deliver(const SlotCall& call) {
  return batches_of<LONG_BATCH>(call.shape().row_bytes / 16);
}

/// Copies a slice of the payload and scales of the slot at `slot`. Each lane with `has` names with
/// `place` a row that gets them, in the outputs of dispatch: `[local experts, ranks * max_tokens]`
/// or `[ranks, max_tokens]`. Whole warp.
WV_DEVICE void deliver(const SlotCall& call, const DispatchReceiveParams& p, uint64_t slot,
                       bool has, uint64_t place, Slice slice) {
  const MoeShape& shape = call.shape();
  const uint64_t to = reinterpret_cast<uint64_t>(p.recv_x) + place * shape.row_bytes;
  copy_to_lanes(has, to, slot + call.moe().header_bytes, shape.row_bytes, slice);
  // If the host knows the format of the call, it has checked that the caller gave memory for
  // scales.
  if (shape.scale_bytes == 0 || p.recv_scales == nullptr) return;
  deliver_scales(call, p, slot, has, place, slice);
}

}  // namespace wv::moe
