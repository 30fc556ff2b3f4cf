// The conformance kernels for shared QPs, by scope.
#include "conformance.cuh"

extern "C" __global__ void wv_test_conformance_shared_thread(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::shared>(p, wv::Thread{}, wv_test::thread_seat());
}
WV_EXPORT(wv_test_conformance_shared_thread)

extern "C" __global__ void wv_test_conformance_shared_warp(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::shared>(p, wv::Warp{}, wv_test::warp_seat());
}
WV_EXPORT(wv_test_conformance_shared_warp)

extern "C" __global__ void wv_test_conformance_shared_block(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::shared>(p, wv::Block{}, wv_test::block_seat());
}
WV_EXPORT(wv_test_conformance_shared_block)
