// Every operation, by threads.
#include "ops.cuh"

extern "C" __global__ void wv_test_ops_thread(wv::OpsParams p) {
  wv::testing::Program<wv::Thread, wv::AnyQp<wv::Sharing::shared>> program(wv::Thread{}, p);
  program.run(wv::thread_in_grid(), 0);
}
WV_EXPORT(wv_test_ops_thread)
