// Every operation, by blocks.
#include "ops.cuh"

extern "C" __global__ void wv_test_ops_block(wv::OpsParams p) {
  wv::testing::Program<wv::Block, wv::AnyQp<wv::Sharing::shared>> program(wv::Block{}, p);
  program.run(wv::block_in_grid(), wv::thread_in_block());
}
WV_EXPORT(wv_test_ops_block)
