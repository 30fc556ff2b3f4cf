// The received rows in tiles of 32: a block takes a tile, checks the headers of its rows, and
// counts how many of them go to each local expert.
#pragma once

#include "dispatch_send.cuh"

namespace wv::moe {

/// Returns the address of row `row` from `source`. Rows of this rank itself are read where they
/// were staged.
WV_DEVICE uint64_t slot_of(const SlotCall& call, uint32_t source, uint32_t row) {
  if (source == call.rank()) {
    const uint32_t token = call.handle.token_of[uint64_t{source} * call.moe().max_tokens + row];
    return call.moe().staging.base + call.dispatch_staging(token);
  }
  return call.layer.data.base + call.dispatch_slot(source, row);
}

/// The number of rows of a tile: one for each bit of a word.
inline constexpr uint32_t TILE_ROWS = 32;

/// Up to `TILE_ROWS` received rows of one source, one after another.
struct Tile {
  uint32_t number;
  uint32_t source;
  /// The first row of the tile, and the number of its rows.
  uint32_t first, rows;
};

/// Returns the number of tiles of one source, or of all sources, empty tiles included.
WV_DEVICE uint32_t tiles_each(const SlotCall& call) {
  return (call.moe().max_tokens + TILE_ROWS - 1) / TILE_ROWS;
}
WV_DEVICE uint32_t tiles_of(const SlotCall& call) { return call.ranks() * tiles_each(call); }

/// Calls `body(tile)` for all tiles, spread over the blocks of the grid. Whole block.
template <class Body>
WV_DEVICE void for_tiles(const SlotCall& call, Body body) {
  const uint32_t each = tiles_each(call), tiles = tiles_of(call);
  for (uint32_t number = block_in_grid(); number < tiles; number += grid_blocks()) {
    const uint32_t source = number / each, first = number % each * TILE_ROWS;
    const uint32_t received = call.handle.peers[source].rows_received;
    const uint32_t rows = received > first ? received - first : 0;
    body(Tile{number, source, first, rows < TILE_ROWS ? rows : TILE_ROWS});
  }
}

/// How the choices of a tile's rows are spread over lanes: one choice for each lane, and the
/// choices of a row in neighbouring lanes.
struct Choices {
  /// The number of lanes of a row: the least power of two that is at least `top_k`.
  uint32_t width;

  WV_DEVICE explicit Choices(const MoeContext& moe)
      : width(moe.top_k > 1 ? 1u << (32 - __clz(moe.top_k - 1)) : 1) {}

  WV_DEVICE uint32_t number() const { return lane() % width; }
  /// Returns the lanes of this lane's row, as bits.
  WV_DEVICE uint32_t lanes() const {
    return width == 32 ? ~0u : ((1u << width) - 1) << lane() / width * width;
  }
  /// Calls `body(row)` with this lane's row, for the rows of a tile, spread over the warps of the
  /// block. `row` may lie after the last row of the tile. Whole warp.
  template <class Body>
  WV_DEVICE void for_rows(const Tile& tile, Body body) const {
    const uint32_t together = 32 / width;
    for (uint32_t row = warp_in_block() * together; row < tile.rows;
         row += block_warps() * together) {
      body(row + lane() / width);
    }
  }
};

/// Returns what a fault records of two shapes that differ: the tag of the peer's shape, and the tag
/// of this rank's.
WV_DEVICE uint32_t tags_with(const SlotCall& call, uint32_t theirs) {
  return theirs << 16 | call.shape().tag;
}

/// Copies the headers of a tile to the handle. A header comes from a peer and is used for
/// addresses, so values out of range are refused. Whole block.
WV_DEVICE void read_headers(const SlotCall& call, const Tile& tile) {
  constexpr Warp warp;
  const MoeContext& moe = call.moe();
  const Choices choices(moe);
  const uint32_t top_k = moe.top_k, slots = call.view.expert_slots, k = choices.number();
  choices.for_rows(tile, [&](uint32_t in_tile) {
    const bool has = in_tile < tile.rows;
    const bool exists = has && k < top_k;
    // A lane without a row or choice loads that of another lane, so that no load depends on a
    // branch.
    const uint32_t row = tile.first + (has ? in_tile : 0), choice = exists ? k : 0;
    const uint64_t at = uint64_t{tile.source} * moe.max_tokens + row;
    const auto* const header = reinterpret_cast<const uint32_t*>(slot_of(call, tile.source, row));
    const uint32_t word = header[Header::TOKEN], number = header[Header::CALL];
    const uint32_t expert = header[Header::EXPERTS + choice];
    const uint32_t weight = header[Header::EXPERTS + top_k + choice];
    const bool chosen = exists && expert != NONE;  // expert -1 is no choice
    const bool inside = chosen && expert < slots;
    const ExpertHome home = call.view.homes[inside ? expert : 0];
    const bool here = inside && home.rank == call.rank();
    // Each lane without an expert of this rank takes a value that no slot has.
    const uint32_t same = warp.match(here ? expert : (1u << 31) + lane()) & choices.lanes();
    const bool wrong = (chosen && !inside) || (here && (same & (same - 1)) != 0);
    const bool wrongs = (warp.ballot(wrong) & choices.lanes()) != 0;
    const auto found = static_cast<uint32_t>(__popc(warp.ballot(here) & choices.lanes()));
    const uint32_t token = word & Header::TOKEN_MASK;
    // If the token number is out of range, the tag says nothing about the peer's call.
    const bool other = token < moe.max_tokens && word >> Header::TAG_SHIFT != call.shape().tag;
    const bool fits = token < call.shape().max_tokens && number == call.call;
    const bool good = fits && !other && !wrongs;
    if (exists) {
      const uint32_t local = good && here ? home.local : NONE;
      call.handle.picks[at * top_k + k] = {local, NONE, platform::float_of(weight)};
    }
    if (!has || k != 0) return;
    call.handle.sources[at] = {good ? token : NONE, good ? found : 0};
    if (good) return;
    platform::add_relaxed(&call.handle.peers[tile.source].malformed, 1u);
    call.report(Status::invalid);
    record_fault(call, other ? MoeCause::shape : MoeCause::malformed, tile.source,
                 other ? tags_with(call, word >> Header::TAG_SHIFT) : 0);
  });
}

/// The bit of `MoePick::row` that says: the other bits are the row's number in the tile, not yet
/// its number at the expert.
inline constexpr uint32_t IN_TILE = 1u << 31;

/// For each of up to 256 local experts, the rows of a tile that go to it, as bits.
struct ExpertRows {
  static constexpr uint32_t EXPERTS = 256;
  uint32_t of[EXPERTS];
};

/// Counts the rows of a tile that go to each local expert, and numbers them from 0 in their order.
/// `MoePick::row` holds that number until `spread`. Whole block, after `read_headers` of the tile.
WV_DEVICE void count_picks(const SlotCall& call, const Tile& tile) {
  WV_SHARED(ExpertRows, rows);
  const MoeContext& moe = call.moe();
  const Choices choices(moe);
  const uint32_t experts = moe.max_local_experts, tiles = tiles_of(call), k = choices.number();
  const uint64_t at = uint64_t{tile.source} * moe.max_tokens + tile.first;
  MoePick* const picks = call.handle.picks + at * moe.top_k;
  if (tile.rows == 0) {
    for (uint32_t i = thread_in_block(); i < experts; i += block_threads()) {
      moe.tiles[uint64_t{i} * tiles + tile.number] = 0;
    }
    return;
  }
  for (uint32_t first = 0; first < experts; first += ExpertRows::EXPERTS) {
    const uint32_t rest = experts - first;
    const uint32_t some = rest < ExpertRows::EXPERTS ? rest : ExpertRows::EXPERTS;
    // Calls `body(row, bits, pick)` for this thread's choices of these experts.
    const auto for_picks = [&](auto body) {
      choices.for_rows(tile, [&](uint32_t row) {
        if (row >= tile.rows || k >= moe.top_k) return;
        MoePick& pick = picks[row * moe.top_k + k];
        if (pick.local - first < some) body(row, rows->of + (pick.local - first), pick);
      });
    };
    for (uint32_t i = thread_in_block(); i < some; i += block_threads()) rows->of[i] = 0;
    block_sync();
    for_picks(
        [](uint32_t row, uint32_t* bits, const MoePick&) { platform::or_shared(bits, 1u << row); });
    block_sync();
    for_picks([](uint32_t row, const uint32_t* bits, MoePick& pick) {
      pick.row = IN_TILE | static_cast<uint32_t>(__popc(*bits & ((1u << row) - 1)));
    });
    for (uint32_t i = thread_in_block(); i < some; i += block_threads()) {
      moe.tiles[uint64_t{first + i} * tiles + tile.number] =
          static_cast<uint32_t>(__popc(rows->of[i]));
    }
    block_sync();  // all have read before any thread writes again
  }
}

}  // namespace wv::moe
