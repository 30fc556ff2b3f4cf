// The conformance kernels for cta QPs, by scope.
#include "conformance.cuh"

extern "C" __global__ void wv_test_conformance_cta_thread(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::cta>(p, wv::Thread{}, wv_test::thread_seat());
}
WV_EXPORT(wv_test_conformance_cta_thread)

extern "C" __global__ void wv_test_conformance_cta_warp(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::cta>(p, wv::Warp{}, wv_test::warp_seat());
}
WV_EXPORT(wv_test_conformance_cta_warp)

extern "C" __global__ void wv_test_conformance_cta_block(wv::ConformanceParams p) {
  wv_test::by_mode<wv::Sharing::cta>(p, wv::Block{}, wv_test::block_seat());
}
WV_EXPORT(wv_test_conformance_cta_block)
