// Places of the rows of combine, for each kind of row that combine may send back.
//
//   sums       one row for each received row: the sum over this rank's experts, by expert layout
//   as given   one row for each received row: what the caller made of it, by rank layout
//   rows       one row for each choice that lives here: what its expert made of the token
//
// A slot always has the same writer, the rank after which it is named. So late rows of a rank
// overwrite only rows of that rank.
#pragma once

#include "slots.cuh"

namespace wv::moe {

/// The kind of row that combine sends back in this layer.
enum class Return { sums, as_given, rows };

WV_DEVICE Return returns_of(const MoeContext& moe) {
  if (moe.layout == MoeLayout::rank_major) return Return::as_given;
  return moe.returns == MoeReturns::rows ? Return::rows : Return::sums;
}

/// Returns the largest number of combine rows for one received row.
WV_DEVICE uint32_t rows_each(const MoeContext& moe) {
  if (returns_of(moe) != Return::rows) return 1;
  return moe.top_k < moe.max_local_experts ? moe.top_k : moe.max_local_experts;
}

/// Returns the byte offset in a slot window of what `from` returns for its row `row`:
/// `[set][rank][max_tokens][rows_each]`. `which` counts the choices of the token that live at that
/// rank, in ascending k.
WV_DEVICE uint64_t combine_slot(const SlotCall& call, uint32_t from, uint32_t row, uint32_t which) {
  const MoeContext& moe = call.moe();
  const uint64_t place = (uint64_t{call.set()} * call.ranks() + from) * moe.max_tokens + row;
  return moe.combine_slots + (place * rows_each(moe) + which) * moe.combine_row_bytes;
}

/// Returns the byte offset in the staging window of what goes back to `source` for its row `row`,
/// in the order of `combine_slot`: `[set][rank][max_tokens][rows_each]`. An HCA that still reads
/// rows for one rank occupies only the places of that rank.
WV_DEVICE uint64_t staged_row(const SlotCall& call, uint32_t source, uint32_t row, uint32_t which) {
  const MoeContext& moe = call.moe();
  const uint64_t place = (uint64_t{call.set()} * call.ranks() + source) * moe.max_tokens + row;
  return moe.combine_staging + (place * rows_each(moe) + which) * moe.combine_row_bytes;
}

/// Returns the place of row `row` of local expert `local` in the arrays that dispatch lays out by
/// expert.
WV_DEVICE uint64_t expert_place(const SlotCall& call, uint32_t local, uint32_t row) {
  return uint64_t{local} * call.ranks() * call.shape().max_tokens + row;
}

/// Returns the byte offset in the staging window of the row that the caller wrote for a local
/// expert's row: `[set][max_local_experts][ranks * max_tokens]`, the shape of `y`.
WV_DEVICE uint64_t written_row(const SlotCall& call, const MoePick& pick) {
  const MoeContext& moe = call.moe();
  const uint64_t set = uint64_t{call.set()} * moe.max_local_experts * call.ranks() * moe.max_tokens;
  return moe.zero_copy + (set + expert_place(call, pick.local, pick.row)) * moe.combine_row_bytes;
}

/// Returns whether combine sends what the caller has written into the staging memory.
WV_DEVICE bool is_zero_copy(const Call& call) {
  return (call.handle.combine_flags & COMBINE_ZERO_COPY) != 0;
}

/// Returns the byte offset in the staging window of an expert's output row. `which` counts the
/// choices of received row `row` of `source` that live at this rank.
WV_DEVICE uint64_t expert_row(const SlotCall& call, uint32_t source, uint32_t row, uint32_t which,
                              const MoePick& pick) {
  return is_zero_copy(call) ? written_row(call, pick) : staged_row(call, source, row, which);
}

/// Returns choice number `lane()` of received row `row` from `source`. Its expert is NONE if the
/// token has no such choice or the expert lives at another rank.
WV_DEVICE MoePick pick_of_lane(const SlotCall& call, uint32_t source, uint32_t row) {
  const MoeContext& moe = call.moe();
  if (lane() >= moe.top_k) return {NONE, NONE, 0};
  const uint64_t at = uint64_t{source} * moe.max_tokens + row;
  return call.handle.picks[at * moe.top_k + lane()];
}

/// Returns the address of the staging memory that the caller of this call may write. The memory has
/// the shape of `y`.
WV_DEVICE uint64_t staged_y(const SlotCall& call) {
  const uint64_t at = returns_of(call.moe()) == Return::rows ? written_row(call, MoePick{0, 0, 0})
                                                             : staged_row(call, 0, 0, 0);
  return call.moe().staging.base + at;
}

}  // namespace wv::moe
