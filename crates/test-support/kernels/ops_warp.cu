// Every operation, by warps.
#include "ops.cuh"

extern "C" __global__ void wv_test_ops_warp(wv::OpsParams p) {
  wv::testing::Program<wv::Warp, wv::AnyQp<wv::Sharing::shared>> program(wv::Warp{}, p);
  program.run(wv::warp_in_grid(), wv::lane());
}
WV_EXPORT(wv_test_ops_warp)
