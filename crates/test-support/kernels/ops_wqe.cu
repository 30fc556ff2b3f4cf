// One WQE of each format, written into a ring that no NIC reads: what the bytes are checked with.
#include <warpverbs/put.cuh>

#include "abi.h"

using wv::LocalAddr;
using wv::RemoteAddr;

namespace {

// Different in every byte.
constexpr uint64_t REMOTE = 0x0102'0304'0506'0708, LOCAL = 0x1112'1314'1516'1718;
constexpr uint64_t A = 0x2122'2324'2526'2728, B = 0x3132'3334'3536'3738;
constexpr uint64_t C = 0x4142'4344'4546'4748, D = 0x5152'5354'5556'5758;
constexpr uint32_t RKEY = 0x6162'6364, LKEY = 0x7172'7374, IMM = 0x8182'8384;

struct Seven {
  uint32_t words[7];
};
struct Three {
  uint32_t words[3];
};

}  // namespace

extern "C" __global__ void wv_test_ops_wqe(wv::OpsWqeParams p) {
  wv::Qp<wv::Sharing::shared> qp;
  *p.status = wv::open_qp(p.qp, &qp);
  if (*p.status != wv::Status::ok) return;
  const uint32_t control = wv::wqe::control((p.flags & 1) != 0, (p.flags & 2) != 0);
  const RemoteAddr remote{REMOTE, wv::platform::byteswap(RKEY)};
  const LocalAddr local{LOCAL, wv::platform::byteswap(LKEY)};
  const LocalAddr second{LOCAL + 0x1000, wv::platform::byteswap(LKEY + 1)};
  uint64_t index = p.index;
  const auto next = [&] { return (index += 2) - 2; };
  wv::wqe::write_put(qp, next(), control, remote, local, 0x9192);
  wv::wqe::write_put_two(qp, next(), control, remote, local, 0x9192, second, 0x91);
  wv::wqe::write_put_imm(qp, next(), control, remote, local, 0x9192, IMM);
  wv::wqe::write_put_imm(qp, next(), control, remote, local, 0, IMM);
  wv::wqe::write_get(qp, next(), control, local, remote, 0x9192);
  wv::wqe::write_inline(qp, next(), control, remote, wv::wqe::payload(Three{{1, 2, 3}}));
  wv::wqe::write_inline(qp, next(), control, remote,
                        wv::wqe::payload(Seven{{1, 2, 3, 4, 5, 6, 7}}));
  wv::wqe::write_fetch_add(qp, next(), control, remote, A, local);
  wv::wqe::write_compare_swap(qp, next(), control, remote, A, B, local);
  wv::wqe::write_masked_add(qp, next(), control, remote, static_cast<uint32_t>(A),
                            static_cast<uint32_t>(B), local);
  wv::wqe::write_masked_add(qp, next(), control, remote, A, B, local);
  wv::wqe::write_masked_swap(
      qp, next(), control, remote,
      wv::wqe::MaskedSwap<uint32_t>{static_cast<uint32_t>(A), static_cast<uint32_t>(B),
                                    static_cast<uint32_t>(C), static_cast<uint32_t>(D)},
      local);
  wv::wqe::write_masked_swap(qp, next(), control, remote, wv::wqe::MaskedSwap<uint64_t>{A, B, C, D},
                             local);
  wv::wqe::write_nop(qp, next(), control);
}
WV_EXPORT(wv_test_ops_wqe)
