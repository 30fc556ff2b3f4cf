// The bytes of a send WQE: control, remote address, then a pointer to the data or the data itself.
// One WQEBB each.
//
// PRM "Send WQE"; struct mlx5_wqe_ctrl_seg, mlx5_wqe_raddr_seg, mlx5_wqe_data_seg,
// mlx5_wqe_inline_seg in rdma-core. Each segment is one 16-byte store; every byte that the NIC
// reads is written.
#pragma once

#include <cstring>

#include "qp.cuh"

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
inline constexpr uint32_t CE_ALWAYS = 2 << 2;  // fm_ce_se: write a CQE
inline constexpr uint32_t FENCE = 4 << 5;      // fm_ce_se: start after earlier reads and atomics
inline constexpr uint32_t INLINE_SEG = 1u << 31;
inline constexpr uint32_t INLINE_WORDS = MAX_INLINE_BYTES / 4;

/// Up to 28 bytes that travel inside the WQE.
struct Payload {
  uint32_t words[INLINE_WORDS];
  uint32_t bytes;
};

/// `value` as it lies in memory. Its size is a multiple of 4 up to MAX_INLINE_BYTES, fixed at
/// compile time.
template <class T>
WV_DEVICE Payload payload(const T& value) {
  static_assert(sizeof(T) % 4 == 0 && sizeof(T) >= 4 && sizeof(T) <= MAX_INLINE_BYTES);
  static_assert(__is_trivially_copyable(T));
  Payload out{};
  memcpy(out.words, &value, sizeof value);
  out.bytes = sizeof value;
  return out;
}

/// The fm_ce_se byte. `ce`: the completion is reported. `fence`: starts when all earlier reads and
/// atomics of the QP are done.
WV_DEVICE uint32_t control(bool ce, bool fence) {
  return (ce ? CE_ALWAYS : 0) | (fence ? FENCE : 0);
}

WV_DEVICE uint64_t pair(uint32_t lo, uint32_t hi) { return uint64_t{hi} << 32 | lo; }

template <class Q>
WV_DEVICE uint8_t* at(const Q& qp, uint64_t index) {
  return qp.sq + (index & qp.mask) * WQEBB_BYTES;
}

template <class Q>
WV_DEVICE void write_ctrl(const Q& qp, uint64_t index, uint32_t opcode, uint32_t ds,
                          uint32_t control) {
  // Big-endian: opmod 0, the low half of `index`, opcode.
  const uint32_t opmod_index_opcode =
      platform::permute(static_cast<uint32_t>(index), opcode, 0x4015);
  const uint64_t first = pair(opmod_index_opcode, qp.qpn_be | ds << 24);
  const uint64_t second = control << 24;  // big-endian: fm_ce_se is the last of four bytes
  platform::store16(at(qp, index), {first, second});
}

WV_DEVICE void write_raddr(uint8_t* segment, RemoteAddr dst) {
  platform::store16(segment, {platform::byteswap(dst.addr), dst.rkey_be});
}

/// RDMA WRITE of `bytes` from local memory.
template <class Q>
WV_DEVICE void write_put(const Q& qp, uint64_t index, uint32_t control, RemoteAddr dst,
                         LocalAddr src, uint32_t bytes) {
  uint8_t* const wqe = at(qp, index);
  write_raddr(wqe + 16, dst);
  platform::store16(wqe + 32,
                    {pair(platform::byteswap(bytes), src.lkey_be), platform::byteswap(src.addr)});
  write_ctrl(qp, index, OPCODE_RDMA_WRITE, 3, control);
}

/// RDMA WRITE of bytes that travel inside the WQE.
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

/// NOP: moves no bytes.
template <class Q>
WV_DEVICE void write_nop(const Q& qp, uint64_t index, uint32_t control) {
  write_ctrl(qp, index, OPCODE_NOP, 1, control);
}

}  // namespace wqe
}  // namespace wv
