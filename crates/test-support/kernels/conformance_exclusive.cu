// The conformance kernels for exclusive QPs, by scope.
#include "conformance.cuh"

extern "C" __global__ void wv_test_conformance_exclusive_thread(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::exclusive>(p, wv::Thread{}, wv_test::thread_seat());
}
WV_EXPORT(wv_test_conformance_exclusive_thread)

extern "C" __global__ void wv_test_conformance_exclusive_warp(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::exclusive>(p, wv::Warp{}, wv_test::warp_seat());
}
WV_EXPORT(wv_test_conformance_exclusive_warp)

extern "C" __global__ void wv_test_conformance_exclusive_block(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::exclusive>(p, wv::Block{}, wv_test::block_seat());
}
WV_EXPORT(wv_test_conformance_exclusive_block)
