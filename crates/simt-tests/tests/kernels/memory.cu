// Wild accesses, for AddressSanitizer builds.
#include "simt.cuh"

// Thread `who` stores to element `at` of `words`, and of an array of its own if `words` is null.
extern "C" __global__ void memory_store(int* words, int at, int who) {
  volatile int own[8] = {};
  if (static_cast<int>(threadIdx.x) != who) return;
  if (words == nullptr) {
    own[at] = 1;
  } else {
    words[at] = 1 + own[0];
  }
}
SIMT_EXPORT(memory_store)
