// The bytes of a send WQE: a control segment, a remote address, then operands and a pointer to
// local memory, or the data itself.
//
// PRM "Send WQE"; struct mlx5_wqe_ctrl_seg, mlx5_wqe_raddr_seg, mlx5_wqe_data_seg,
// mlx5_wqe_inline_seg, mlx5_wqe_atomic_seg and mlx5_wqe_masked_atomic_seg in rdma-core. Each
// segment is one 16-byte store, and every byte that the NIC reads is written. A WQE takes one
// WQEBB, except the masked compare-and-swap of 8 bytes, which takes two.
#pragma once

#include <cstring>

#include "../qp.cuh"

namespace wv {

/// Bytes of a peer's memory, as a WQE names them.
struct RemoteAddr {
  uint64_t addr;
  uint32_t rkey_be;
};

/// Bytes of this rank's memory, as a WQE names them.
struct LocalAddr {
  uint64_t addr;
  uint32_t lkey_be;
};

namespace wqe {

inline constexpr uint32_t OPCODE_NOP = 0x00;
inline constexpr uint32_t OPCODE_RDMA_WRITE = 0x08;
inline constexpr uint32_t OPCODE_RDMA_WRITE_IMM = 0x09;
inline constexpr uint32_t OPCODE_RDMA_READ = 0x10;
inline constexpr uint32_t OPCODE_ATOMIC_CS = 0x11;
inline constexpr uint32_t OPCODE_ATOMIC_FA = 0x12;
inline constexpr uint32_t OPCODE_ATOMIC_MASKED_CS = 0x14;
inline constexpr uint32_t OPCODE_ATOMIC_MASKED_FA = 0x15;
inline constexpr uint32_t OPMOD_4_BYTES = 8u << 24;  // of a masked atomic, above index and opcode
inline constexpr uint32_t OPMOD_8_BYTES = 9u << 24;
inline constexpr uint32_t CE_ALWAYS = 2 << 2;  // fm_ce_se: write a CQE
inline constexpr uint32_t FENCE = 4 << 5;      // fm_ce_se: start after earlier reads and atomics
inline constexpr uint32_t INLINE_SEG = 1u << 31;
inline constexpr uint32_t INLINE_WORDS = MAX_INLINE_BYTES / 4;

/// Up to 28 bytes that travel inside the WQE.
struct Payload {
  uint32_t words[INLINE_WORDS];
  uint32_t bytes;
};

/// Returns `value` as it lies in memory. Its size is a multiple of 4 up to MAX_INLINE_BYTES, fixed
/// at compile time.
template <class T>
WV_DEVICE Payload payload(const T& value) {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) >= 4 && sizeof(T) <= MAX_INLINE_BYTES);
  static_assert(__is_trivially_copyable(T));
  Payload out{};
  memcpy(out.words, &value, sizeof value);
  out.bytes = sizeof value;
  return out;
}

/// Returns the fm_ce_se byte of a WQE. `ce`: its completion is reported. `fence`: it starts when
/// all earlier reads and atomics of the QP are done.
WV_DEVICE uint32_t control(bool ce, bool fence) {
  return (ce ? CE_ALWAYS : 0) | (fence ? FENCE : 0);
}

WV_DEVICE uint64_t pair(uint32_t lo, uint32_t hi) { return uint64_t{hi} << 32 | lo; }
/// Packs two words as big-endian words.
WV_DEVICE uint64_t pair_be(uint32_t first, uint32_t second) {
  return pair(platform::byteswap(first), platform::byteswap(second));
}

template <class Q>
WV_DEVICE uint8_t* at(const Q& qp, uint64_t index) {
  return qp.sq + (index & qp.mask) * WQEBB_BYTES;
}

/// Writes the control segment. `operation`: the opcode, and the modifier from bit 24 on. `ds`: the
/// number of 16-byte units of the WQE, the control segment included.
template <class Q>
WV_DEVICE void write_ctrl(const Q& qp, uint64_t index, uint32_t operation, uint32_t ds,
                          uint32_t control, uint32_t imm = 0) {
  // Big-endian: opmod, the low half of `index`, opcode.
  const uint32_t opmod_index_opcode =
      platform::permute(static_cast<uint32_t>(index), operation, 0x4017);
  const uint64_t first = pair(opmod_index_opcode, qp.qpn_be | ds << 24);
  // Big-endian: fm_ce_se is the last of four bytes.
  platform::store16(at(qp, index), {first, pair(control << 24, platform::byteswap(imm))});
}

WV_DEVICE void write_raddr(uint8_t* segment, RemoteAddr dst) {
  platform::store16(segment, {platform::byteswap(dst.addr), dst.rkey_be});
}

WV_DEVICE void write_data(uint8_t* segment, LocalAddr local, uint32_t bytes) {
  platform::store16(
      segment, {pair(platform::byteswap(bytes), local.lkey_be), platform::byteswap(local.addr)});
}

/// Writes an RDMA WRITE of `bytes` from local memory.
template <class Q>
WV_DEVICE void write_put(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                         LocalAddr src, uint32_t bytes) {
  uint8_t* const wqe = at(qp, index);
  write_raddr(wqe + 16, dst);
  write_data(wqe + 32, src, bytes);
  write_ctrl(qp, index, OPCODE_RDMA_WRITE, 3, control);
}

/// Writes an RDMA WRITE of two pieces of local memory, one after the other at the peer.
template <class Q>
WV_DEVICE void write_put_two(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                             LocalAddr first, uint32_t first_bytes, LocalAddr second,
                             uint32_t second_bytes) {
  uint8_t* const wqe = at(qp, index);
  write_raddr(wqe + 16, dst);
  write_data(wqe + 32, first, first_bytes);
  write_data(wqe + 48, second, second_bytes);
  write_ctrl(qp, index, OPCODE_RDMA_WRITE, 4, control);
}

/// Writes an RDMA WRITE with immediate: as write_put, but it also takes a receive WQE of the peer,
/// whose completion brings `imm`. With 0 bytes the WQE has no data segment.
template <class Q>
WV_DEVICE void write_put_imm(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                             LocalAddr src, uint32_t bytes, uint32_t imm) {
  uint8_t* const wqe = at(qp, index);
  write_raddr(wqe + 16, dst);
  if (bytes != 0) write_data(wqe + 32, src, bytes);
  write_ctrl(qp, index, OPCODE_RDMA_WRITE_IMM, bytes != 0 ? 3 : 2, control, imm);
}

/// Writes an RDMA READ of `bytes` into local memory.
template <class Q>
WV_DEVICE void write_get(const Q& qp, uint64_t index, uint32_t control, LocalAddr dst,
                         RemoteAddr src, uint32_t bytes) {
  uint8_t* const wqe = at(qp, index);
  write_raddr(wqe + 16, src);
  write_data(wqe + 32, dst, bytes);
  write_ctrl(qp, index, OPCODE_RDMA_READ, 3, control);
}

/// Writes an RDMA WRITE of bytes that travel inside the WQE.
template <class Q>
WV_DEVICE void write_inline(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                            const Payload& data) {
  uint8_t* const wqe = at(qp, index);
  const uint32_t header = platform::byteswap(INLINE_SEG | data.bytes);
  write_raddr(wqe + 16, dst);
  platform::store16(wqe + 32, {pair(header, data.words[0]), pair(data.words[1], data.words[2])});
  const bool long_form = data.bytes > 12;
  if (long_form) {
    platform::store16(wqe + 48,
                      {pair(data.words[3], data.words[4]), pair(data.words[5], data.words[6])});
  }
  write_ctrl(qp, index, OPCODE_RDMA_WRITE, long_form ? 4 : 3, control);
}

// Writes an atomic of one WQEBB: remote word, operands, address of the old value, control segment.
template <class Q>
WV_DEVICE void write_atomic(const Q& qp, uint64_t index, uint32_t control, uint32_t operation,
                            RemoteAddr dst, platform::Vec16 operands, LocalAddr result,
                            uint32_t bytes) {
  uint8_t* const wqe = at(qp, index);
  write_raddr(wqe + 16, dst);
  platform::store16(wqe + 32, operands);
  write_data(wqe + 48, result, bytes);
  write_ctrl(qp, index, operation, 4, control);
}

/// Writes a fetch-and-add of 8 bytes. The old value goes to `result`.
template <class Q>
WV_DEVICE void write_fetch_add(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                               uint64_t add, LocalAddr result) {
  write_atomic(qp, index, control, OPCODE_ATOMIC_FA, dst, {platform::byteswap(add), 0}, result, 8);
}

/// Writes a compare-and-swap of 8 bytes.
template <class Q>
WV_DEVICE void write_compare_swap(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                                  uint64_t compare, uint64_t swap, LocalAddr result) {
  write_atomic(qp, index, control, OPCODE_ATOMIC_CS, dst,
               {platform::byteswap(swap), platform::byteswap(compare)}, result, 8);
}

/// Writes a fetch-and-add of 4 or 8 bytes in which no bit that is set in `boundary` carries.
template <class Q>
WV_DEVICE void write_masked_add(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                                uint32_t add, uint32_t boundary, LocalAddr result) {
  write_atomic(qp, index, control, OPCODE_ATOMIC_MASKED_FA | OPMOD_4_BYTES, dst,
               {pair_be(add, boundary), 0}, result, 4);
}
template <class Q>
WV_DEVICE void write_masked_add(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                                uint64_t add, uint64_t boundary, LocalAddr result) {
  write_atomic(qp, index, control, OPCODE_ATOMIC_MASKED_FA | OPMOD_8_BYTES, dst,
               {platform::byteswap(add), platform::byteswap(boundary)}, result, 8);
}

/// Operands of a masked compare-and-swap: if the word equals `compare` in the bits of
/// `compare_mask`, its bits of `swap_mask` become the bits of `swap`.
template <class T>
struct MaskedSwap {
  T swap, compare, swap_mask, compare_mask;
};

/// Writes a masked compare-and-swap of 4 bytes.
template <class Q>
WV_DEVICE void write_masked_swap(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                                 const MaskedSwap<uint32_t>& what, LocalAddr result) {
  write_atomic(qp, index, control, OPCODE_ATOMIC_MASKED_CS | OPMOD_4_BYTES, dst,
               {pair_be(what.swap, what.compare), pair_be(what.swap_mask, what.compare_mask)},
               result, 4);
}

/// Writes a masked compare-and-swap of 8 bytes: two WQEBBs, `index` and `index + 1`. It is never
/// signalled, since its CQE would name the first WQEBB only.
template <class Q>
WV_DEVICE void write_masked_swap(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                                 const MaskedSwap<uint64_t>& what, LocalAddr result) {
  uint8_t* const wqe = at(qp, index);
  write_raddr(wqe + 16, dst);
  platform::store16(wqe + 32, {platform::byteswap(what.swap), platform::byteswap(what.compare)});
  platform::store16(wqe + 48,
                    {platform::byteswap(what.swap_mask), platform::byteswap(what.compare_mask)});
  write_data(at(qp, index + 1), result, 8);  // the ring may end between the two
  write_ctrl(qp, index, OPCODE_ATOMIC_MASKED_CS | OPMOD_8_BYTES, 5, control & ~CE_ALWAYS);
}

/// Writes a NOP, which moves no bytes.
template <class Q>
WV_DEVICE void write_nop(const Q& qp, uint64_t index, uint32_t control) {
  write_ctrl(qp, index, OPCODE_NOP, 1, control);
}

}  // namespace wqe
}  // namespace wv
