// A QP of the table: its entry, its lives, and the doorbells that came for it.
#pragma once

#include "words.cuh"

namespace gpuhca {

inline constexpr uint32_t STATE_RTR = 2;
inline constexpr uint32_t STATE_RTS = 3;
inline constexpr uint32_t STATE_SQERR = 4;
inline constexpr uint32_t STATE_SQD = 5;
inline constexpr uint32_t STATE_ERR = 6;

inline constexpr uint32_t RECORD_RECEIVE = 0;
inline constexpr uint32_t RECORD_SEND = 4;

/// Where doorbells are stored in a page: two halves of two registers, and that of QPs without
/// record.
WV_DEVICE uint32_t register_offset(uint32_t number) {
  return number == 4 ? 0x600 : 0x800 + number / 2 * 0x200 + number % 2 * 0x100;
}
inline constexpr uint32_t REGISTERS = 5;

WV_DEVICE uint32_t state_of(uint64_t head) { return static_cast<uint32_t>(head & 0xff); }
WV_DEVICE uint64_t life_of(uint64_t head) { return head >> 8; }

/// What the owner of a QP finds when it looks.
struct Look {
  /// A WQE of the QP may run, or must be flushed.
  bool work;
  /// A doorbell was taken.
  bool rung;
};

/// Forgets what the entry's earlier lives left. Only the owner's thread calls it.
WV_DEVICE void begin_life(HcaQpProgress* progress, uint64_t life) {
  // Of no life while it is cleared: the peer's block counts packets in here.
  platform::store_relaxed(&progress->life, uint64_t{0});
  platform::fence_acq_rel_sys();
  auto* const words = reinterpret_cast<uint64_t*>(progress);
  for (uint32_t i = 1; i < sizeof(HcaQpProgress) / 8; ++i) {
    platform::store_relaxed(words + i, uint64_t{0});
  }
  // Release: the zeros before the life. Pairs with the acquire of the peer's block (`find_peer`).
  platform::fence_acq_rel_sys();
  platform::store_relaxed(&progress->life, life);
}

WV_DEVICE void note_odd(HcaQpProgress* progress, uint32_t what) {
  platform::or_relaxed_sys(&progress->odd, uint64_t{what});
}

/// Takes the doorbells of `qpn` out of the twin of its page; how many, and the last of them.
WV_DEVICE uint32_t take_doorbells(uint64_t page, uint32_t qpn, uint64_t* last) {
  uint64_t words[REGISTERS];
  for (uint32_t i = 0; i < REGISTERS; ++i) {
    words[i] = platform::load_relaxed_sys(at<uint64_t>(page + register_offset(i)));
  }
  uint32_t taken = 0;
  for (uint32_t i = 0; i < REGISTERS; ++i) {
    if (words[i] == 0 || be32(static_cast<uint32_t>(words[i] >> 32)) >> 8 != qpn) continue;
    // A register is of one QP, so it cannot hold a doorbell of another one meanwhile.
    const uint64_t word =
        platform::exchange_relaxed_sys(at<uint64_t>(page + register_offset(i)), uint64_t{0});
    if (word == 0) continue;
    *last = word;
    ++taken;
  }
  return taken;
}

/// Returns the index after the last WQE that a doorbell names. Either the doorbell carries it, or
/// the doorbell is the first 8 bytes of that WQE, whose length in 16-byte units is then not 0.
WV_DEVICE uint32_t doorbell_next(uint64_t word) {
  const uint32_t index = be32(static_cast<uint32_t>(word)) >> 8 & 0xffff;
  const uint32_t units = be32(static_cast<uint32_t>(word >> 32)) & 0x3f;
  return (index + (units + 3) / 4) & 0xffff;
}

/// Takes over how far a doorbell allows to run.
WV_DEVICE void accept(HcaQpProgress* progress, uint32_t depth, uint32_t posted) {
  const uint32_t before = platform::load_relaxed(&progress->posted);
  const uint32_t fetched = platform::load_relaxed(&progress->fetched);
  if (posted == before) return;
  // Half of the number circle: further ahead is behind.
  if (((posted - before) & 0xffff) >= 0x8000) return note_odd(progress, ODD_BACKWARDS);
  if (((posted - fetched) & 0xffff) > depth) note_odd(progress, ODD_BEYOND_RING);
  platform::store_relaxed(&progress->posted, posted);
}

/// Looks at one QP: takes its doorbells and says whether one of its WQEs may run or must be
/// flushed. One thread of the block that owns it.
WV_DEVICE Look look(const GpuhcaParams& p, uint32_t place) {
  const HcaQp* const qp = p.qps + place;
  HcaQpProgress* const progress = p.qp_progress + place;
  const uint64_t head = platform::load_relaxed_sys(&qp->head);
  if (head == 0) return {false, false};
  // Acquire: the entry after its head. Pairs with the host, which writes the head last.
  platform::fence_acquire_sys();
  if (platform::load_relaxed(&progress->life) != life_of(head)) begin_life(progress, life_of(head));
  const uint32_t state = state_of(head);
  const uint32_t flags = platform::load_relaxed(&qp->flags);
  if ((flags & (QP_PAUSED | QP_DOWN)) != 0) return {false, false};
  const uint64_t page = platform::load_relaxed(&qp->page);
  const uint64_t record = platform::load_relaxed(&qp->record);
  const uint32_t depth = platform::load_relaxed(&qp->depth);
  uint64_t word = 0;
  const uint32_t rung = take_doorbells(page, platform::load_relaxed(&qp->qpn), &word);
  if (rung != 0) {
    count(&progress->doorbells, rung);
    // Acquire: record and WQEs after the doorbell. Pairs with the release fence in front of it.
    platform::fence_acquire_sys();
    // Before Rts a doorbell is ignored.
    if (state != STATE_RTR) {
      accept(progress, depth,
             (flags & QP_NO_RECORD) == 0 ? load_counter(record, RECORD_SEND) : doorbell_next(word));
    }
  }
  const bool posted =
      platform::load_relaxed(&progress->posted) != platform::load_relaxed(&progress->fetched);
  const bool in_error = state == STATE_ERR || platform::load_relaxed(&progress->failed) != 0;
  if (in_error) {
    const bool receives =
        platform::load_relaxed(&qp->receive_entries) != 0 &&
        load_counter(record, RECORD_RECEIVE) != platform::load_relaxed(&progress->received_wqes);
    return {posted || receives, rung != 0};
  }
  // A queue that drains begins nothing new.
  return {posted && state == STATE_RTS, rung != 0};
}

}  // namespace gpuhca
