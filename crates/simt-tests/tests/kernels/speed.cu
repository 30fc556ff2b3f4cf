// What `cargo test -p simt --test speed -- --ignored --nocapture` measures.
#include "simt.cuh"

// Polls that never let the launch sleep.
extern "C" __global__ void speed_polls(int n) {
  for (int i = 0; i < n; i++) {
    simt_progress();
    simt_poll();
  }
}
SIMT_EXPORT(speed_polls)

extern "C" __global__ void speed_yields(int n) {
  for (int i = 0; i < n; i++) simt_yield();
}
SIMT_EXPORT(speed_yields)

extern "C" __global__ void speed_shuffles(int n, unsigned* out) {
  unsigned v = threadIdx.x;
  for (int i = 0; i < n; i++) v += __shfl_xor_sync(0xffffffffu, v, 1 + (i & 15));
  if (v == 12345) *out = v;
}
SIMT_EXPORT(speed_shuffles)

extern "C" __global__ void speed_barriers(int n) {
  for (int i = 0; i < n; i++) __syncthreads();
}
SIMT_EXPORT(speed_barriers)

extern "C" __global__ void speed_nothing() {}
SIMT_EXPORT(speed_nothing)

extern "C" __global__ void speed_grid_sync() { simt_grid_sync(); }
SIMT_EXPORT(speed_grid_sync)

// A loop without schedule points, and the same as a plain function.
static __attribute__((noinline)) float saxpy_sum(const float* x, float a, int n) {
  float sum = 0;
  for (int i = 0; i < n; i++) sum += a * x[i];
  return sum;
}
extern "C" __global__ void speed_compute(const float* x, float a, int n, float* out) {
  float sum = 0;
  for (int i = 0; i < n; i++) sum += a * x[i];
  out[threadIdx.x] = sum;
}
SIMT_EXPORT(speed_compute)
extern "C" float speed_plain(const float* x, float a, int n) { return saxpy_sum(x, a, n); }
