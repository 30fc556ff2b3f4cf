// Rows in batches: a thread that copies, casts or sums has several loads of 16 bytes in flight.
// Little's law gives the number: an H200 moves 4 TB/s and answers a load after 0.7 us, so each of
// its 132 multiprocessors must have 21 KB in flight. 512 threads with a batch of one row each have
// 32 KB.
//
// A load from device memory takes as long as thousands of instructions. So all loads of a batch are
// issued before the first result is used, and `./x sass` checks that in the compiler's output.
#pragma once

#include <warpverbs/coop.cuh>

#include "bf16.cuh"

namespace wv::moe {

/// The number of vectors in a batch: the loads that each thread has in flight.
inline constexpr uint32_t BATCH = 4;
/// The number of vectors in a batch where a thread does little with them, and so has registers for
/// more.
inline constexpr uint32_t LONG_BATCH = 8;

/// A batch of the vectors of a row, as one lane of the warp sees it: each lane owns every 32nd
/// vector.
struct Batch {
  /// This lane's first vector.
  uint32_t first;
  /// The number of vectors of the row, at least 1.
  uint32_t vectors;

  WV_DEVICE uint32_t at(uint32_t k) const { return first + 32 * k; }
  WV_DEVICE bool has(uint32_t k) const { return at(k) < vectors; }
  /// Returns the vector to load for vector `k`. The last vector of the row stands for all after it,
  /// so that no load depends on a branch.
  WV_DEVICE uint32_t source(uint32_t k) const { return has(k) ? at(k) : vectors - 1; }
};

/// The vectors of a batch.
template <uint32_t N>
struct Vectors {
  platform::Vec16 of[N];

  WV_DEVICE static Vectors load(const Batch& batch, const platform::Vec16* row) {
    Vectors out;
    platform::note_loads(N);
    for (uint32_t k = 0; k < N; ++k) out.of[k] = row[batch.source(k)];
    return out;
  }
  WV_DEVICE void store(const Batch& batch, platform::Vec16* row) const {
    for (uint32_t k = 0; k < N; ++k) {
      if (batch.has(k)) row[batch.at(k)] = of[k];
    }
  }
};

/// Returns the number of batches, of N vectors for each lane, in a row of `vectors` vectors.
template <uint32_t N>
WV_DEVICE uint32_t batches_of(uint32_t vectors) {
  return (vectors + 32 * N - 1) / (32 * N);
}

/// The batches of a row that one of several warps works on: every `count`-th batch, beginning with
/// number `first`.
struct Slice {
  uint32_t first = 0, count = 1;

  /// Returns how many warps share each of `rows` rows of `batches` batches, so that a few rows keep
  /// the grid busy.
  WV_DEVICE static uint32_t each(uint32_t rows, uint32_t batches) {
    const uint32_t warps = rows != 0 ? grid_warps() / rows : 1;
    return warps < 1 ? 1 : warps < batches ? warps : batches;
  }
  /// Returns whether this warp does the work that is done once for each row.
  WV_DEVICE bool is_first() const { return first == 0; }
};

/// Calls `body(batch)` for the batches of `slice` of a row. A batch has N vectors for each lane,
/// the row `vectors` vectors of 16 bytes. Whole warp.
template <uint32_t N, class Body>
WV_DEVICE void for_batches(uint32_t vectors, Body body, Slice slice = {}) {
  for (uint32_t base = slice.first * 32 * N; base < vectors; base += slice.count * 32 * N) {
    body(Batch{base + lane(), vectors});
  }
}

/// Copies `slice` of `bytes` (a multiple of 16, not 0) between aligned addresses. Whole warp.
WV_DEVICE void copy(uint64_t to, uint64_t from, uint64_t bytes, Slice slice = {}) {
  auto* const target = reinterpret_cast<platform::Vec16*>(to);
  const auto* const source = reinterpret_cast<const platform::Vec16*>(from);
  const auto copy_batch = [&](const Batch& batch) {
    Vectors<LONG_BATCH>::load(batch, source).store(batch, target);
  };
  for_batches<LONG_BATCH>(static_cast<uint32_t>(bytes / 16), copy_batch, slice);
}

/// Copies `slice` of `bytes` (a multiple of 16, not 0) from one row to row `to` of each lane with
/// `has`. The row is loaded once. Whole warp.
WV_DEVICE void copy_to_lanes(bool has, uint64_t to, uint64_t from, uint64_t bytes, Slice slice) {
  constexpr Warp warp;
  const uint32_t lanes = warp.ballot(has);
  const auto* const source = reinterpret_cast<const platform::Vec16*>(from);
  const auto copy_batch = [&](const Batch& batch) {
    const auto vectors = Vectors<LONG_BATCH>::load(batch, source);
    for (uint32_t rest = lanes; rest != 0; rest &= rest - 1) {
      const uint64_t target = warp.shuffle(to, __ffs(rest) - 1);
      vectors.store(batch, reinterpret_cast<platform::Vec16*>(target));
    }
  };
  for_batches<LONG_BATCH>(static_cast<uint32_t>(bytes / 16), copy_batch, slice);
}

/// Up to 32 rows that are added up. Lane i holds the address and weight of row i.
class Terms {
 public:
  /// Takes `row` of each lane with `has`, in the order of the lanes. Whole warp.
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

  /// Adds up the rows, of `vectors` vectors each, in the order in which they were taken, and
  /// multiplies the sum by `scale` if `scaled`. Stores the batches of `slice` of the sum, rounded
  /// once, at `out`. Whole warp.
  ///
  /// @tparam WEIGHTED  true if each row is multiplied by its weight.
  template <bool WEIGHTED>
  WV_DEVICE void add_up(uint32_t vectors, platform::Vec16* out, bool scaled, float scale,
                        Slice slice) const {
    // For one row there are registers for a long batch. Of several rows, two are loaded together.
    if (count_ == 1) return add_up<WEIGHTED, LONG_BATCH, 1>(vectors, out, scaled, scale, slice);
    add_up<WEIGHTED, BATCH, 2>(vectors, out, scaled, scale, slice);
  }

 private:
  /// Adds up the rows in batches of N vectors, ROWS rows at a time.
  template <bool WEIGHTED, uint32_t N, uint32_t ROWS>
  WV_DEVICE void add_up(uint32_t vectors, platform::Vec16* out, bool scaled, float scale,
                        Slice slice) const {
    const auto add_batch = [&](const Batch& batch) {
      Floats sums[N];
      uint32_t term = 0;
      for (; term + ROWS <= count_; term += ROWS) add<WEIGHTED, N, ROWS>(batch, term, sums);
      if (ROWS > 1 && term < count_) add<WEIGHTED, N, 1>(batch, term, sums);
      Vectors<N> rounded;
      for (uint32_t k = 0; k < N; ++k) {
        if (scaled) sums[k].scale(scale);
        rounded.of[k] = sums[k].round();
      }
      rounded.store(batch, out);
    };
    for_batches<N>(vectors, add_batch, slice);
  }

  /// Adds rows `term` to `term + ROWS - 1`. All of them are loaded before the first is added.
  template <bool WEIGHTED, uint32_t N, uint32_t ROWS>
  WV_DEVICE void add(const Batch& batch, uint32_t term, Floats* sums) const {
    constexpr Warp warp;
    Vectors<N> rows[ROWS];
    for (uint32_t i = 0; i < ROWS; ++i) {
      const uint64_t row = warp.shuffle(row_, term + i);
      rows[i] = Vectors<N>::load(batch, reinterpret_cast<const platform::Vec16*>(row));
    }
    for (uint32_t i = 0; i < ROWS; ++i) {
      const float weight = platform::float_of(warp.shuffle(weight_, term + i));
      for (uint32_t k = 0; k < N; ++k) {
        const Floats values = Floats::of(rows[i].of[k]);
        if (WEIGHTED) {
          sums[k].add(weight, values);
        } else {
          sums[k].add(values);
        }
      }
    }
  }

  /// The address of row `lane()`, and the bits of its weight.
  uint64_t row_ = 0;
  uint32_t weight_ = 0;
  /// The number of rows, equal in all lanes.
  uint32_t count_ = 0;
};

}  // namespace wv::moe
