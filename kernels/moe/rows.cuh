// Rows in batches: a thread that copies, casts or sums has several loads of 16 bytes in flight.
//
// A load from device memory takes as long as thousands of instructions. All loads of a batch are
// issued before the first of them is used, and `./x sass` looks at what the compiler made of it.
#pragma once

#include <warpverbs/coop.cuh>

#include "bf16.cuh"

namespace wv::moe {

/// Vectors of a batch: loads that each thread has in flight.
inline constexpr uint32_t BATCH = 4;

/// A batch of the vectors of a row, as one lane of the warp sees it: every 32nd vector is its own.
struct Batch {
  /// This lane's first vector.
  uint32_t first;
  /// Vectors of the row, at least 1.
  uint32_t vectors;

  WV_DEVICE uint32_t at(uint32_t k) const { return first + 32 * k; }
  WV_DEVICE bool has(uint32_t k) const { return at(k) < vectors; }
  /// Bytes loaded for vector `k`: the last one of the row stands for those behind it, so that no
  /// load hangs on a branch.
  WV_DEVICE uint32_t source(uint32_t k) const { return has(k) ? at(k) : vectors - 1; }
};

/// The vectors of a batch.
struct Vectors {
  platform::Vec16 of[BATCH];

  WV_DEVICE static Vectors load(const Batch& batch, const platform::Vec16* row) {
    Vectors out;
    platform::note_loads(BATCH);
    for (uint32_t k = 0; k < BATCH; ++k) out.of[k] = row[batch.source(k)];
    return out;
  }
};

/// Calls `body(batch)` for all batches of a row of `vectors` 16-byte vectors. Whole warp.
template <class Body>
WV_DEVICE void for_batches(uint32_t vectors, Body body) {
  for (uint32_t base = 0; base < vectors; base += 32 * BATCH) body(Batch{base + lane(), vectors});
}

/// Copies `bytes` (a multiple of 16, not 0) between aligned addresses. Whole warp.
WV_DEVICE void copy(uint64_t to, uint64_t from, uint64_t bytes) {
  auto* const target = reinterpret_cast<platform::Vec16*>(to);
  const auto* const source = reinterpret_cast<const platform::Vec16*>(from);
  for_batches(static_cast<uint32_t>(bytes / 16), [&](const Batch& batch) {
    const Vectors vectors = Vectors::load(batch, source);
    for (uint32_t k = 0; k < BATCH; ++k) {
      if (batch.has(k)) target[batch.at(k)] = vectors.of[k];
    }
  });
}

/// Rows that are added up, each by the lane of its number: at most 32.
class Terms {
 public:
  /// Takes the rows of those lanes of `from` that have one, in the order of the lanes. Whole warp.
  WV_DEVICE void take(bool has, uint64_t row, float weight) {
    constexpr Warp warp;
    const uint32_t bits = platform::float_bits(weight);
    for (uint32_t rest = warp.ballot(has); rest != 0 && count_ < 32; rest &= rest - 1) {
      const uint32_t from = __ffs(rest) - 1;
      const uint64_t taken = warp.shuffle(row, from);
      const uint32_t taken_bits = warp.shuffle(bits, from);
      if (lane() == count_) {
        row_ = taken;
        weight_ = taken_bits;
      }
      ++count_;
    }
  }
  WV_DEVICE void clear() { count_ = 0; }

  /// Adds up the rows of `vectors` vectors in the order in which they were taken, and multiplies by
  /// `scale`. Stores the sum, rounded once, at `out`. Whole warp.
  ///
  /// @tparam WEIGHTED  each row counts with its weight.
  template <bool WEIGHTED>
  WV_DEVICE void add_up(uint32_t vectors, platform::Vec16* out, bool scaled, float scale) const {
    for_batches(vectors, [&](const Batch& batch) {
      Floats sums[BATCH];
      for (uint32_t term = 0; term < count_; ++term) {
        const uint64_t row = Warp{}.shuffle(row_, term);
        const float weight = platform::float_of(Warp{}.shuffle(weight_, term));
        const auto* const from = reinterpret_cast<const platform::Vec16*>(row);
        const Vectors vectors_of_row = Vectors::load(batch, from);
        for (uint32_t k = 0; k < BATCH; ++k) {
          const Floats values = Floats::of(vectors_of_row.of[k]);
          if (WEIGHTED) {
            sums[k].add(weight, values);
          } else {
            sums[k].add(values);
          }
        }
      }
      for (uint32_t k = 0; k < BATCH; ++k) {
        if (scaled) sums[k].scale(scale);
        if (batch.has(k)) out[batch.at(k)] = sums[k].round();
      }
    });
  }

 private:
  /// Of the row whose number is that of this lane.
  uint64_t row_ = 0;
  uint32_t weight_ = 0;
  /// Rows, the same in all lanes.
  uint32_t count_ = 0;
};

}  // namespace wv::moe
