// A QP's turn: its block carries out the WQEs that doorbells allow, in order, for a bounded time.
#pragma once

#include "copy.cuh"
#include "operation.cuh"

namespace gpuhca {

/// WQEs of a QP before the next has its turn, and bytes.
inline constexpr uint32_t TURN_WQES = 64;
inline constexpr uint64_t TURN_BYTES = 1 << 20;

/// Ways to be wrong on purpose: tests must catch each of them.
enum class Defect {
  none,
  /// The completion is written before the data.
  completes_early,
  /// The bytes of a long WRITE come after those of the next WQE.
  data_late,
};

/// The thread of a block that decides.
WV_DEVICE bool decides() { return wv::thread_in_block() == 0; }

/// The state of a QP's peer. `there` accepts the next WQE. `asleep` is paused or has not begun its
/// life. `silent` does not answer.
enum class Peer { there, asleep, silent };

WV_DEVICE Peer find_peer(const GpuhcaParams& p, const HcaQp& qp, const HcaQpProgress* progress) {
  if (qp.peer >= QPS) return Peer::silent;
  const HcaQp* const peer = p.qps + qp.peer;
  const uint64_t head = platform::load_relaxed_sys(&peer->head);
  if (head == 0) return Peer::silent;
  // Acquire: the peer's entry after its head. Pairs with the host, which writes the head last.
  platform::fence_acquire_sys();
  const uint32_t flags = platform::load_relaxed(&peer->flags);
  if ((flags & QP_PAUSED) != 0) return Peer::asleep;
  const uint32_t state = state_of(head);
  const bool receives =
      state == STATE_RTR || state == STATE_RTS || state == STATE_SQERR || state == STATE_SQD;
  const bool ours = platform::load_relaxed(&peer->qpn) == qp.remote_qpn &&
                    platform::load_relaxed(&peer->remote_qpn) == qp.qpn &&
                    platform::load_relaxed(&peer->hca) == qp.remote_hca &&
                    platform::load_relaxed(&peer->remote_hca) == qp.hca;
  if (!ours || !receives || (flags & QP_DOWN) != 0) return Peer::silent;
  const HcaQpProgress* const theirs = p.qp_progress + qp.peer;
  if (platform::load_relaxed(&theirs->life) != life_of(head)) return Peer::asleep;
  // Acquire: the zeros with which the life began. Pairs with the release in `begin_life`.
  platform::fence_acquire_sys();
  if (platform::load_relaxed(&theirs->failed) != 0) return Peer::silent;
  const uint32_t expected =
      platform::load_relaxed(&peer->receive_psn) + platform::load_relaxed(&theirs->received);
  const uint32_t next = qp.send_psn + platform::load_relaxed(&progress->sent);
  return ((expected - next) & MASK24) == 0 ? Peer::there : Peer::silent;
}

/// Waits without a peer: gives up when the QP's patience is over. Whether it goes on waiting.
WV_DEVICE bool wait_for_peer(Work* work, HcaQpProgress* progress) {
  Operation* const op = &work->operation;
  const uint64_t since = platform::load_relaxed(&progress->silent_since_ns);
  if (since == 0) {
    platform::store_relaxed(&progress->silent_since_ns, op->now_ns);
  } else if (work->qp.patience_ns != ~uint64_t{0} && op->now_ns - since >= work->qp.patience_ns) {
    fail(op, SYNDROME_RETRY_EXCEEDED);
    return false;
  }
  op->step = Step::stop;
  return true;
}

/// The peer has no receive WQE: again after its time, as often as the QP allows.
WV_DEVICE void wait_for_receive(const GpuhcaParams& p, Work* work, HcaQpProgress* progress) {
  constexpr uint32_t FOR_EVER = 7;
  Operation* const op = &work->operation;
  const uint32_t retries = platform::load_relaxed(&progress->rnr_count);
  if (work->qp.rnr_retry != FOR_EVER && retries >= work->qp.rnr_retry) {
    return fail(op, SYNDROME_RNR_RETRY_EXCEEDED);
  }
  platform::store_relaxed(&progress->rnr_count, retries + 1);
  const uint64_t delay = platform::load_relaxed(&(p.qps + op->peer)->rnr_delay_ns);
  platform::store_relaxed(&progress->not_before_ns, op->now_ns + delay);
  op->step = Step::stop;
}

/// The number of receive WQEs that a message may take from a QP, or NONE if the QP's counter is
/// invalid.
WV_DEVICE uint32_t receives_ready(const HcaQp* qp, const HcaQpProgress* progress) {
  const uint64_t record = platform::load_relaxed(&qp->record);
  const uint32_t ready =
      (load_counter(record, RECORD_RECEIVE) - platform::load_relaxed(&progress->received_wqes)) &
      0xffff;
  return ready <= platform::load_relaxed(&qp->receive_entries) ? ready : NONE;
}

/// Keeps the peer's own block from flushing receive WQEs until this one is delivered; if it does so
/// already, the WQE waits.
WV_DEVICE void hold_receives(const GpuhcaParams& p, Operation* op) {
  HcaQpProgress* const theirs = p.qp_progress + op->peer;
  if (platform::compare_exchange_relaxed_sys(&theirs->receive_lock, 0u, 1u) != 0) {
    op->step = Step::stop;
    return;
  }
  // Acquire: what an earlier holder wrote. Pairs with the release in `let_receives_go`.
  platform::fence_acq_rel_sys();
  const uint32_t state = state_of(platform::load_relaxed_sys(&(p.qps + op->peer)->head));
  if (state == 0 || state == STATE_ERR || platform::load_relaxed(&theirs->failed) != 0) {
    platform::store_relaxed_sys(&theirs->receive_lock, 0u);
    op->step = Step::stop;
  }
}

/// The end of `hold_receives`.
WV_DEVICE void let_receives_go(HcaQpProgress* theirs) {
  // Release: the counter of receive WQEs and the CQE before the next holder. Pairs with the acquire
  // in `hold_receives`.
  platform::fence_acq_rel_sys();
  platform::store_relaxed_sys(&theirs->receive_lock, 0u);
}

/// Begins the WQE that is due: `work->operation` says what all threads do next. One thread.
WV_DEVICE void begin(const GpuhcaParams& p, Work* work, HcaQpProgress* progress) {
  Operation* const op = &work->operation;
  op->step = Step::stop;
  op->refused = 0;
  op->takes_receive = 0;
  op->inline_only = 0;
  op->pieces = 0;
  op->bytes = 0;
  op->peer = work->qp.peer;
  const uint32_t fetched = platform::load_relaxed(&progress->fetched);
  const uint32_t posted = platform::load_relaxed(&progress->posted);
  op->now_ns = platform::now_ns();
  if (fetched == posted || platform::load_relaxed(&progress->failed) != 0) return;
  if (op->now_ns < platform::load_relaxed(&progress->not_before_ns)) return;
  op->index = fetched;
  if (!fetch(work, progress, posted)) return fail(op, SYNDROME_LOCAL_OPERATION);
  uint64_t va = 0;
  uint32_t rkey = 0;
  if (!decode(work, progress, &va, &rkey) || op->step == Step::nothing) return;
  const Peer peer = find_peer(p, work->qp, progress);
  if (peer == Peer::asleep) {
    op->step = Step::stop;
    return;
  }
  if (peer == Peer::silent) {
    wait_for_peer(work, progress);
    return;
  }
  platform::store_relaxed(&progress->silent_since_ns, uint64_t{0});
  if (op->bytes != 0) {
    if (!resolve_local(p, work, progress)) return;
    if (!resolve_remote(p, work, va, rkey)) return;
  }
  if (op->takes_receive == 0) return;
  const HcaQp* const theirs = p.qps + op->peer;
  if (platform::load_relaxed(&theirs->receive_entries) == 0) {
    return refuse(op, SYNDROME_REMOTE_INVALID_REQUEST);
  }
  const uint32_t ready = receives_ready(theirs, p.qp_progress + op->peer);
  if (ready == NONE) return refuse(op, SYNDROME_REMOTE_OPERATION);
  if (ready == 0) return wait_for_receive(p, work, progress);
  hold_receives(p, op);
}

/// What an atomic makes of `old`, of an operand of either width in the low bits.
WV_DEVICE uint64_t outcome(const Work* work, uint64_t old) {
  const Operation& op = work->operation;
  switch (op.opcode) {
    case OPCODE_ATOMIC_FA:
      return old + qword(work, 32);
    case OPCODE_ATOMIC_CS:
      return old == qword(work, 40) ? qword(work, 32) : old;
    case OPCODE_ATOMIC_MASKED_FA: {
      const bool wide = op.atomic_bytes == 8;
      const uint64_t add = wide ? qword(work, 32) : dword(work, 32);
      const uint64_t boundary = wide ? qword(work, 40) : dword(work, 36);
      // Without the boundary bits no carry passes one. The sum of a boundary bit is the exclusive
      // or of both operands and the carry into it.
      const uint64_t sum = (old & ~boundary) + (add & ~boundary);
      return sum ^ (old & boundary) ^ (add & boundary);
    }
    default: {
      const bool wide = op.atomic_bytes == 8;
      const uint64_t swap = wide ? qword(work, 32) : dword(work, 32);
      const uint64_t compare = wide ? qword(work, 40) : dword(work, 36);
      const uint64_t swap_mask = wide ? qword(work, 48) : dword(work, 40);
      const uint64_t compare_mask = wide ? qword(work, 56) : dword(work, 44);
      return ((old ^ compare) & compare_mask) == 0 ? (old & ~swap_mask) | (swap & swap_mask) : old;
    }
  }
}

/// Changes the peer's word and returns what it was. It is one read-modify-write for every thread
/// that reaches the word.
template <class T>
WV_DEVICE T modify(const Work* work, T* word) {
  T old = platform::load_relaxed_sys(word);
  // Ends: the exchange fails only when that of another thread has succeeded.
  for (;;) {
    const auto desired = static_cast<T>(outcome(work, old));
    const T found = platform::compare_exchange_relaxed_sys(word, old, desired);
    if (found == old) return old;
    old = found;
  }
}

/// Carries an atomic out and leaves the old value where the WQE says. One thread.
WV_DEVICE void run_atomic(Work* work) {
  const Operation& op = work->operation;
  uint64_t old;
  if (op.atomic_bytes == 4) {
    // Of 4 bytes the result is big-endian.
    old = be32(modify(work, at<uint32_t>(op.remote)));
  } else {
    old = modify(work, at<uint64_t>(op.remote));
  }
  const uint8_t* from = reinterpret_cast<const uint8_t*>(&old);
  uint32_t left = op.atomic_bytes;
  for (uint32_t i = 0; i < op.pieces; ++i) {
    const uint32_t bytes = op.piece[i].bytes < left ? op.piece[i].bytes : left;
    store_few(op.piece[i].from, from, bytes);
    from += bytes;
    left -= bytes;
  }
}

/// Moves the bytes of a WQE. All threads of the block.
WV_DEVICE void move(const Work* work) {
  const Operation& op = work->operation;
  if (op.step == Step::write || op.step == Step::read) {
    uint64_t remote = op.remote;
    for (uint32_t i = 0; i < op.pieces; ++i) {
      const Piece piece = op.piece[i];
      if (piece.is_inline != 0) {
        const auto* const bytes = reinterpret_cast<const uint8_t*>(work->wqe) + piece.from;
        if (decides()) store_few(remote, bytes, piece.bytes);
      } else if (op.step == Step::write) {
        copy_block(remote, piece.from, piece.bytes);
      } else {
        copy_block(piece.from, remote, piece.bytes);
      }
      remote += piece.bytes;
    }
  }
}

/// The QP is in error from now on, and the host is to look.
WV_DEVICE void enter_error(const GpuhcaParams& p, HcaQpProgress* progress, uint32_t why) {
  platform::compare_exchange_relaxed_sys(&progress->failed, 0u, why);
  // Release: what has failed before the word that makes the host look. Pairs with the acquire of
  // softhca's engine thread.
  platform::fence_acq_rel_sys();
  platform::add_relaxed_sys(&p.host->attention, 1u);
}

WV_DEVICE void complete(const GpuhcaParams& p, const HcaQp& qp, HcaQpProgress* progress,
                        const Cqe& cqe, bool error) {
  if (push(p, qp.send_cq, cqe)) {
    count(&progress->cqes, 1);
    if (error) count(&progress->error_cqes, 1);
  } else {
    enter_error(p, progress, SYNDROME_LOCAL_OPERATION);
  }
}

/// Takes a receive WQE of the peer and writes the immediate into its CQE. One thread.
WV_DEVICE void deliver(const GpuhcaParams& p, const Work* work) {
  const Operation& op = work->operation;
  const HcaQp* const entry = p.qps + op.peer;
  HcaQpProgress* const theirs = p.qp_progress + op.peer;
  HcaQp peer{};
  peer.qpn = platform::load_relaxed(&entry->qpn);
  peer.remote_qpn = work->qp.qpn;
  peer.user_index = platform::load_relaxed(&entry->user_index);
  const uint32_t index = platform::load_relaxed(&theirs->received_wqes);
  platform::store_relaxed(&theirs->received_wqes, (index + 1) & 0xffff);
  const Cqe cqe = received(peer, index, op.bytes, op.imm, op.solicited != 0, op.now_ns);
  if (push(p, platform::load_relaxed(&entry->receive_cq), cqe)) count(&theirs->cqes, 1);
  let_receives_go(theirs);
}

/// Ends the WQE whose bytes have been moved: sequence numbers, counters, CQE. One thread.
WV_DEVICE void finish(const GpuhcaParams& p, Work* work, HcaQpProgress* progress) {
  const Operation& op = work->operation;
  const HcaQp& qp = work->qp;
  const uint32_t behind = (op.index + op.blocks) & 0xffff;
  count(&progress->wqes, 1);
  if (op.opcode == OPCODE_WRITE || op.opcode == OPCODE_WRITE_IMM) {
    count(&progress->writes, 1);
    if (op.inline_only != 0) count(&progress->inline_writes, 1);
  } else if (op.opcode == OPCODE_READ) {
    count(&progress->reads, 1);
  } else if (op.opcode != OPCODE_NOP) {
    count(&progress->atomics, 1);
  }
  platform::store_relaxed(&progress->rnr_count, 0u);
  platform::store_relaxed(&progress->silent_since_ns, uint64_t{0});
  platform::store_relaxed(&progress->fetched, behind);
  platform::store_relaxed(&progress->retired, behind);
  if (op.step == Step::fail) {
    if (op.refused != 0) enter_error(p, p.qp_progress + op.peer, FAILED_RESPONDER | op.refused);
    const Cqe cqe = failed(qp, CQE_REQ_ERR, op.opcode, op.index, op.syndrome);
    enter_error(p, progress, op.syndrome);
    return complete(p, qp, progress, cqe, true);
  }
  if (op.step != Step::nothing) {
    const uint32_t packets = op.bytes == 0 ? 1 : (op.bytes + qp.mtu - 1) / qp.mtu;
    const uint32_t sent = (platform::load_relaxed(&progress->sent) + packets) & MASK24;
    platform::store_relaxed(&progress->sent, sent);
    const uint32_t first = platform::load_relaxed(&(p.qps + op.peer)->receive_psn);
    platform::store_relaxed(&(p.qp_progress + op.peer)->received,
                            (qp.send_psn + sent - first) & MASK24);
    if (op.step == Step::write) count(&progress->bytes_written, op.bytes);
    if (op.step == Step::read) count(&progress->bytes_read, op.bytes);
  }
  // Release: the bytes of this WQE, by all threads of the block, before those of the next one and
  // before any CQE. Pairs with the acquire of a thread that has seen a later byte or the CQE.
  platform::fence_acq_rel_sys();
  if (op.takes_receive != 0) deliver(p, work);
  if (op.signalled != 0) {
    complete(p, qp, progress, sent(qp, op.opcode, op.index, op.bytes, op.now_ns), false);
  }
}

/// Ends what a QP in error has posted: each WQE and receive WQE completes as flushed. One thread.
WV_DEVICE void flush(const GpuhcaParams& p, Work* work, HcaQpProgress* progress, uint32_t place) {
  const HcaQp& qp = work->qp;
  const uint32_t posted = platform::load_relaxed(&progress->posted);
  uint32_t index = platform::load_relaxed(&progress->fetched);
  while (index != posted) {
    fetch_block(work, index, 0);
    const uint32_t first = dword(work, 0), second = dword(work, 4);
    const uint32_t left = (posted - index) & 0xffff;
    uint32_t blocks = ((second & 0x3f) + 3) / 4;
    // A block that holds no WQE of this index ends it: its completion stands for all after it.
    const bool own = (first >> 8 & 0xffff) == index && second >> 8 == qp.qpn;
    if (!own || blocks == 0 || blocks > left) blocks = left;
    complete(p, qp, progress, failed(qp, CQE_REQ_ERR, first & 0xff, index, SYNDROME_FLUSHED), true);
    index = (index + blocks) & 0xffff;
    platform::store_relaxed(&progress->fetched, index);
    platform::store_relaxed(&progress->retired, index);
  }
  if (qp.receive_entries == 0) return;
  // The peer's block is delivering: in the next pass.
  if (platform::compare_exchange_relaxed_sys(&progress->receive_lock, 0u, 1u) != 0) return;
  platform::fence_acq_rel_sys();
  for (uint32_t ready = receives_ready(p.qps + place, progress); ready != 0 && ready != NONE;
       --ready) {
    const uint32_t taken = platform::load_relaxed(&progress->received_wqes);
    platform::store_relaxed(&progress->received_wqes, (taken + 1) & 0xffff);
    if (push(p, qp.receive_cq, failed(qp, CQE_RESP_ERR, 0, taken, SYNDROME_FLUSHED))) {
      count(&progress->cqes, 1);
      count(&progress->error_cqes, 1);
    }
  }
  let_receives_go(progress);
}

/// For `data_late`: keeps a WRITE of 64 bytes and more, which `catch_up` moves. Whether it was one.
/// All threads.
WV_DEVICE bool put_off(const Work* work, Work* late, bool* is_late) {
  const Operation& op = work->operation;
  if (*is_late || op.step != Step::write || op.bytes < 64) return false;
  wv::block_sync();
  if (decides()) *late = *work;
  *is_late = true;
  return true;
}

/// Waits 5 ms, so that a rank that was woken too early meets what is missing.
WV_DEVICE void dawdle() {
  const uint64_t until = platform::now_ns() + 5'000'000;
  while (platform::now_ns() < until) platform::pause();
  wv::block_sync();
}

/// Moves what was put off.
WV_DEVICE void catch_up(const Work* late, bool* is_late) {
  if (!*is_late) return;
  dawdle();
  move(late);
  *is_late = false;
}

/// Gives the QP at `place` a turn. All threads of the block that owns it; the same result for all:
/// whether anything was done. `late` is for `data_late` alone.
template <Defect D>
WV_DEVICE bool serve(const GpuhcaParams& p, Work* work, [[maybe_unused]] Work* late,
                     uint32_t place) {
  HcaQpProgress* const progress = p.qp_progress + place;
  const auto* const entry = reinterpret_cast<const uint64_t*>(p.qps + place);
  auto* const copy = reinterpret_cast<uint64_t*>(&work->qp);
  for (uint32_t i = wv::thread_in_block(); i < sizeof(HcaQp) / 8; i += wv::block_threads()) {
    copy[i] = platform::load_relaxed_sys(entry + i);
  }
  wv::block_sync();
  bool any = false;
  uint64_t bytes = 0;
  [[maybe_unused]] bool is_late = false;
  for (uint32_t wqes = 0; wqes < TURN_WQES && bytes < TURN_BYTES; ++wqes) {
    if (decides()) {
      const bool in_error =
          state_of(work->qp.head) == STATE_ERR || platform::load_relaxed(&progress->failed) != 0;
      if (in_error) {
        flush(p, work, progress, place);
        work->operation.step = Step::stop;
      } else {
        begin(p, work, progress);
      }
      if constexpr (D == Defect::completes_early) {
        const Step step = work->operation.step;
        if (step != Step::stop) finish(p, work, progress);
      }
    }
    wv::block_sync();
    const Step step = work->operation.step;
    if (step == Step::stop) break;
    any = true;
    bytes += work->operation.bytes;
    if constexpr (D == Defect::data_late) {
      if (put_off(work, late, &is_late)) {
        wv::block_sync();
        if (decides()) finish(p, work, progress);
        continue;
      }
    }
    // Acquire: what others have written since the doorbell, for a READ. Pairs with their releases.
    if (step == Step::read) platform::fence_acquire_sys();
    if constexpr (D == Defect::completes_early) dawdle();
    move(work);
    if (step == Step::atomic && decides()) run_atomic(work);
    if constexpr (D == Defect::data_late) catch_up(late, &is_late);
    wv::block_sync();
    if constexpr (D != Defect::completes_early) {
      if (decides()) finish(p, work, progress);
    }
  }
  if constexpr (D == Defect::data_late) catch_up(late, &is_late);
  wv::block_sync();  // all have read the step before the next QP's is written
  return any;
}

}  // namespace gpuhca
