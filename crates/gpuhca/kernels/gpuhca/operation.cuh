// Send WQEs, from the bytes of a ring to an operation whose keys and bounds have been checked.
//
// PRM "Send WQE Format". One thread of the block that owns the QP decides; nothing of a WQE is
// trusted.
#pragma once

#include "cq.cuh"
#include "keys.cuh"
#include "qp.cuh"

namespace gpuhca {

inline constexpr uint32_t OPCODE_NOP = 0x00;
inline constexpr uint32_t OPCODE_WRITE = 0x08;
inline constexpr uint32_t OPCODE_WRITE_IMM = 0x09;
inline constexpr uint32_t OPCODE_READ = 0x10;
inline constexpr uint32_t OPCODE_ATOMIC_CS = 0x11;
inline constexpr uint32_t OPCODE_ATOMIC_FA = 0x12;
inline constexpr uint32_t OPCODE_ATOMIC_MASKED_CS = 0x14;
inline constexpr uint32_t OPCODE_ATOMIC_MASKED_FA = 0x15;

inline constexpr uint32_t MAX_WQE_WORDS = 128;  // 63 units of 16 bytes, in whole WQEBBs
inline constexpr uint32_t MAX_PIECES = 61;
inline constexpr uint64_t MAX_MESSAGE = uint64_t{1} << 30;

/// What the block does next for a QP.
enum class Step : uint32_t {
  /// Nothing: no WQE is due, or the QP waits for its peer.
  stop,
  /// Bytes of this rank to the peer.
  write,
  /// Bytes of the peer to this rank.
  read,
  /// A word of the peer, by one thread.
  atomic,
  /// Nothing moves; the WQE is over and well.
  nothing,
  /// The WQE has failed: `syndrome`.
  fail,
};

/// Local bytes of a message: memory, or bytes of the WQE itself.
struct Piece {
  /// First byte in memory; of an inline piece the offset in the WQE.
  uint64_t from;
  uint32_t bytes;
  uint32_t is_inline;
};

/// One WQE.
struct Operation {
  Step step;
  uint32_t index;
  uint32_t blocks;
  uint32_t opcode;
  uint32_t signalled;
  uint32_t solicited;
  uint32_t imm;
  uint32_t bytes;
  uint32_t pieces;
  uint32_t syndrome;
  /// The peer refused it: the syndrome that it got, and its QP is in error too.
  uint32_t refused;
  /// Takes a receive WQE of the peer.
  uint32_t takes_receive;
  uint32_t inline_only;
  uint32_t atomic_bytes;
  uint32_t peer;
  uint32_t opmod;
  /// First byte at the peer.
  uint64_t remote;
  uint64_t now_ns;
  Piece piece[MAX_PIECES];
};

/// What a block works on, in shared memory.
struct Work {
  HcaQp qp;
  Operation operation;
  uint64_t wqe[MAX_WQE_WORDS];
};

/// A dword of the WQE, as a number.
WV_DEVICE uint32_t dword(const Work* work, uint32_t offset) {
  const uint64_t word = work->wqe[offset / 8];
  return be32(static_cast<uint32_t>(offset % 8 == 0 ? word : word >> 32));
}
/// 8 bytes of the WQE, as a number.
WV_DEVICE uint64_t qword(const Work* work, uint32_t offset) { return be64(work->wqe[offset / 8]); }

/// Copies the block of the ring at `index` to place `number` of the WQE.
WV_DEVICE void fetch_block(Work* work, uint32_t index, uint32_t number) {
  const uint64_t from = work->qp.ring + (index & (work->qp.depth - 1)) * 64;
  uint64_t words[8];
  for (uint32_t i = 0; i < 8; ++i)
    words[i] = platform::load_relaxed_sys(at<uint64_t>(from + 8 * i));
  for (uint32_t i = 0; i < 8; ++i) work->wqe[8 * number + i] = words[i];
}

/// The WQE fails with `syndrome`.
WV_DEVICE void fail(Operation* operation, uint32_t syndrome) {
  operation->step = Step::fail;
  operation->syndrome = syndrome;
}

/// The peer refuses the request: both QPs go into error.
WV_DEVICE void refuse(Operation* operation, uint32_t syndrome) {
  operation->refused = syndrome;
  fail(operation, syndrome);
}

/// Fetches the WQE that is due. False: its block holds something else, so where the next one begins
/// is unknown.
WV_DEVICE bool fetch(Work* work, HcaQpProgress* progress, uint32_t posted) {
  Operation* const op = &work->operation;
  const uint32_t index = op->index;
  fetch_block(work, index, 0);
  const uint32_t first = dword(work, 0), second = dword(work, 4), last = dword(work, 8);
  const uint32_t ds = second & 0x3f;
  op->opcode = first & 0xff;
  op->opmod = first >> 24;
  op->signalled = (last & 0xc) == 0x8;
  op->solicited = (last & 0x2) != 0;
  op->imm = static_cast<uint32_t>(work->wqe[1] >> 32);
  op->blocks = (ds + 3) / 4;
  const uint32_t left = (posted - index) & 0xffff;
  uint32_t odd = 0;
  if ((first >> 8 & 0xffff) != index) {
    odd = ODD_INDEX;
  } else if (second >> 8 != work->qp.qpn) {
    odd = ODD_QPN;
  } else if (ds == 0 || op->blocks > work->qp.depth || op->blocks > left) {
    odd = ODD_LENGTH;
  }
  if (odd != 0) {
    note_odd(progress, odd);
    op->blocks = left;
    return false;
  }
  for (uint32_t i = 1; i < op->blocks; ++i) fetch_block(work, index + i, i);
  op->pieces = ds;  // for `decode`, which counts the pieces
  return true;
}

/// Reads the data segments and inline data from unit `unit` on. False: they make no sense.
WV_DEVICE bool pieces(Work* work, uint32_t unit, uint32_t ds, uint64_t* bytes) {
  Operation* const op = &work->operation;
  op->pieces = 0;
  op->inline_only = unit < ds;
  *bytes = 0;
  while (unit < ds) {
    const uint32_t length = dword(work, unit * 16);
    Piece* const piece = &op->piece[op->pieces++];
    if ((length >> 31) != 0) {
      piece->bytes = length & 0x3ff;
      piece->from = unit * 16 + 4;
      piece->is_inline = 1;
      if (piece->bytes > ds * 16 - unit * 16 - 4) return false;
      unit += (piece->bytes + 4 + 15) / 16;
    } else {
      // A length of 0 stands for 2^31, which is more than a message may have.
      *bytes += length == 0 ? uint64_t{1} << 31 : 0;
      piece->bytes = length;
      piece->from = unit * 16;  // the segment, until its key has been looked up
      piece->is_inline = 0;
      op->inline_only = 0;
      ++unit;
    }
    *bytes += piece->bytes;
  }
  return true;
}

/// What a WQE asks for, without its keys. False: it makes no sense, and `syndrome` says so.
WV_DEVICE bool decode(Work* work, HcaQpProgress* progress, uint64_t* va, uint32_t* rkey) {
  Operation* const op = &work->operation;
  const uint32_t ds = op->pieces;
  op->pieces = 0;
  op->bytes = 0;
  const auto senseless = [&] {
    note_odd(progress, ODD_SEGMENT);
    fail(op, SYNDROME_LOCAL_OPERATION);
    return false;
  };
  if (op->opcode == OPCODE_NOP) {
    op->step = Step::nothing;
    return true;
  }
  uint32_t operands = 0;
  switch (op->opcode) {
    case OPCODE_WRITE:
    case OPCODE_WRITE_IMM:
      op->step = Step::write;
      break;
    case OPCODE_READ:
      op->step = Step::read;
      break;
    case OPCODE_ATOMIC_CS:
    case OPCODE_ATOMIC_FA:
      op->step = Step::atomic;
      op->atomic_bytes = 8;
      operands = 1;
      break;
    case OPCODE_ATOMIC_MASKED_CS:
    case OPCODE_ATOMIC_MASKED_FA:
      op->step = Step::atomic;
      if (op->opmod != 8 && op->opmod != 9) return senseless();
      op->atomic_bytes = op->opmod == 8 ? 4 : 8;
      operands = op->opcode == OPCODE_ATOMIC_MASKED_CS && op->opmod == 9 ? 2 : 1;
      break;
    default:
      return senseless();
  }
  if (ds < 2 + operands) return senseless();
  *va = qword(work, 16);
  *rkey = dword(work, 24);
  uint64_t bytes;
  if (!pieces(work, 2 + operands, ds, &bytes)) return senseless();
  const bool writes_back = op->step != Step::write;
  for (uint32_t i = 0; i < op->pieces; ++i) {
    if (writes_back && op->piece[i].is_inline != 0) return senseless();
  }
  const bool too_long = bytes > MAX_MESSAGE;
  if (too_long || (op->step == Step::atomic && bytes != op->atomic_bytes)) {
    note_odd(progress, ODD_SEGMENT);
    fail(op, SYNDROME_LOCAL_LENGTH);
    return false;
  }
  op->bytes = static_cast<uint32_t>(bytes);
  op->takes_receive = op->opcode == OPCODE_WRITE_IMM;
  return true;
}

/// Looks the local keys up. False: one does not give its memory.
WV_DEVICE bool resolve_local(const GpuhcaParams& p, Work* work, HcaQpProgress* progress) {
  Operation* const op = &work->operation;
  const uint32_t need = op->step == Step::write ? ACCESS_LOCAL_READ : ACCESS_LOCAL_WRITE;
  for (uint32_t i = 0; i < op->pieces; ++i) {
    Piece* const piece = &op->piece[i];
    if (piece->is_inline != 0) continue;
    const auto segment = static_cast<uint32_t>(piece->from);
    const uint32_t lkey = dword(work, segment + 4);
    piece->from = resolve(p, work->qp, lkey, qword(work, segment + 8), piece->bytes, need);
    if (piece->from != 0) continue;
    note_odd(progress, ODD_LOCAL_KEY);
    fail(op, SYNDROME_LOCAL_PROTECTION);
    return false;
  }
  return true;
}

/// Looks the peer's key up. False: the peer refuses.
WV_DEVICE bool resolve_remote(const GpuhcaParams& p, Work* work, uint64_t va, uint32_t rkey) {
  Operation* const op = &work->operation;
  const HcaQp* const entry = p.qps + op->peer;
  uint32_t right = QP_RIGHT_WRITE, need = ACCESS_REMOTE_WRITE;
  if (op->step == Step::read) right = QP_RIGHT_READ, need = ACCESS_REMOTE_READ;
  if (op->step == Step::atomic) right = QP_RIGHT_ATOMIC, need = ACCESS_REMOTE_ATOMIC;
  if ((platform::load_relaxed(&entry->flags) & right) == 0) {
    refuse(op, SYNDROME_REMOTE_INVALID_REQUEST);
    return false;
  }
  HcaQp peer{};
  peer.qpn = platform::load_relaxed(&entry->qpn);
  peer.pdn = platform::load_relaxed(&entry->pdn);
  peer.first_key = platform::load_relaxed(&entry->first_key);
  peer.keys = platform::load_relaxed(&entry->keys);
  op->remote = resolve(p, peer, rkey, va, op->bytes, need);
  if (op->remote == 0) {
    note_odd(p.qp_progress + op->peer, ODD_REMOTE_KEY);
    refuse(op, SYNDROME_REMOTE_ACCESS);
    return false;
  }
  const bool aligned = ((va | op->remote) & (op->bytes - 1)) == 0;
  if (op->step == Step::atomic && !aligned) {
    refuse(op, SYNDROME_REMOTE_INVALID_REQUEST);
    return false;
  }
  return true;
}

}  // namespace gpuhca
