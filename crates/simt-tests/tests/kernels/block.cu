// Blocks and grids: barriers, shared memory, memory between blocks, atomics, coordinates.
#include "simt.cuh"

namespace {

__device__ unsigned load(const unsigned* p) {
  simt_yield();
  return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

__device__ void store(unsigned* p, unsigned v) {
  __atomic_store_n(p, v, __ATOMIC_RELEASE);
  simt_progress();
}

__device__ void wait_for(const unsigned* p, unsigned v) {
  while (load(p) != v) simt_poll();
}

}  // namespace

// Two blocks take turns through flags[0] and flags[1]; *data must be what the other one wrote.
extern "C" __global__ void ping_pong(unsigned* flags, unsigned* data, unsigned* bad, int rounds) {
  if (threadIdx.x == 0) {
    for (unsigned round = 1; round <= static_cast<unsigned>(rounds); round++) {
      if (blockIdx.x == 0) {
        *data = round * 7;
        store(&flags[0], round);
        wait_for(&flags[1], round);
      } else {
        wait_for(&flags[0], round);
        if (*data != round * 7) atomicAdd(bad, 1);
        store(&flags[1], round);
      }
    }
  }
  __syncthreads();
}
SIMT_EXPORT(ping_pong)

// Each block writes its word, all meet, each block reads the word of another one; many times.
extern "C" __global__ void grid_rounds(unsigned* words, unsigned* bad, int rounds) {
  for (int round = 0; round < rounds; round++) {
    if (threadIdx.x == 0) words[blockIdx.x] = round * 1000 + blockIdx.x;
    simt_grid_sync();
    const unsigned other = (blockIdx.x + 1 + threadIdx.x) % gridDim.x;
    if (words[other] != round * 1000 + other) atomicAdd(bad, 1);
    simt_grid_sync();
  }
}
SIMT_EXPORT(grid_rounds)

// Every atomic function, from all threads of the grid, with results that no order changes.
extern "C" __global__ void atomics(unsigned* u, int* i, unsigned long long* l, float* f) {
  const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&u[0], 1);
  atomicSub(&u[1], 2u);
  atomicMax(&u[2], t);
  atomicMin(&u[3], t + 5);
  atomicOr(&u[4], 1u << (t & 31));
  atomicAnd(&u[5], ~(1u << (t & 15)));
  atomicXor(&u[6], t);
  atomicInc(&u[7], 9);
  while (atomicCAS(&u[8], t, t + 1) != t) simt_poll();  // in order of t
  if (atomicExch(&u[9], t + 1) == t + 1) atomicAdd(&u[10], 1);
  atomicAdd(&i[0], -3);
  atomicMin(&i[1], -static_cast<int>(t));
  atomicMax(&i[2], static_cast<int>(t) - 100000);
  atomicAdd(&l[0], 0x100000000ull + t);
  atomicMax(&l[1], static_cast<unsigned long long>(t) << 33);
  atomicAdd(&f[0], 0.5f);
}
SIMT_EXPORT(atomics)

// Threads leave one after the other; the remaining ones meet at barriers, which count the arrivals.
extern "C" __global__ void leaving(unsigned* out) {
  for (unsigned round = 0; round < blockDim.x; round++) {
    if (threadIdx.x < round) return;
    const int came = __syncthreads_count(1);
    if (threadIdx.x == blockDim.x - 1) out[round] = static_cast<unsigned>(came);
  }
}
SIMT_EXPORT(leaving)

extern "C" __global__ void block_votes(unsigned* out) {
  const unsigned t = threadIdx.x;
  const int count = __syncthreads_count(t % 3 == 0), all = __syncthreads_and(t < 100),
            one = __syncthreads_or(t == 99);
  const int none = __syncthreads_or(t == 100), not_all = __syncthreads_and(t != 50);
  out[t] = static_cast<unsigned>(count << 4 | all << 3 | one << 2 | none << 1 | not_all);
}
SIMT_EXPORT(block_votes)

// Where each thread is, in a grid and block of three dimensions; *fresh counts shared bytes that
// are not 0xa5.
extern "C" __global__ void coordinates(unsigned* seen, unsigned* wrong, int shared_bytes) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  atomicAdd(&seen[block * blockDim.x * blockDim.y * blockDim.z + thread], 1);
  if (simt_lane_id() != thread % warpSize) atomicAdd(wrong, 1);
  SIMT_DYN_SHARED(unsigned char, shared);
  if (reinterpret_cast<uintptr_t>(shared) % 128 != 0) atomicAdd(wrong, 1);
  for (int i = 0; i < shared_bytes; i++) {
    if (thread == 0 && shared[i] != 0xa5) atomicAdd(wrong, 1);
  }
  __syncthreads();
  if (thread == 0) memset(shared, 0, shared_bytes);
}
SIMT_EXPORT(coordinates)

// Threads queue up by tickets and append to a log: any order is right, none may be lost. log[0] is
// the length.
extern "C" __global__ void ticket_log(unsigned* log, unsigned* lock) {
  const unsigned mine = atomicAdd(&lock[0], 1);
  wait_for(&lock[1], mine);
  const unsigned length = load(&log[0]);
  log[1 + length] = blockIdx.x * blockDim.x + threadIdx.x;
  simt_yield();
  store(&log[0], length + 1);
  store(&lock[1], mine + 1);
}
SIMT_EXPORT(ticket_log)

// Waits until the host sets the flag, or for ever; *looks counts the polls of thread 0.
extern "C" __global__ void poll_flag(unsigned* flag, unsigned* looks) {
  while (load(flag) == 0) {
    if (threadIdx.x == 0 && blockIdx.x == 0) ++*looks;
    simt_poll();
  }
}
SIMT_EXPORT(poll_flag)

// The same with a count of looks for each block.
extern "C" __global__ void poll_flag_each(unsigned* flag, unsigned* looks) {
  while (load(flag) == 0) {
    if (threadIdx.x == 0) ++looks[blockIdx.x];
    simt_poll();
  }
}
SIMT_EXPORT(poll_flag_each)

// The same with a warp operation in the loop, as waits of a whole warp are written.
extern "C" __global__ void warp_poll_flag(unsigned* flag, unsigned* looks) {
  for (;;) {
    unsigned v = threadIdx.x % 32 == 0 ? load(flag) : 0;
    v = __shfl_sync(0xffffffffu, v, 0);
    if (v != 0) break;
    if (threadIdx.x == 0 && blockIdx.x == 0) ++*looks;
    simt_poll();
  }
}
SIMT_EXPORT(warp_poll_flag)

extern "C" __global__ void doorbell(unsigned long* reg, unsigned long* now) {
  now[0] = simt_now_ns();
  simt_mmio_store64(reg, 0x1122334455667788ull + threadIdx.x);
  now[1] = simt_now_ns();
}
SIMT_EXPORT(doorbell)

// Each block shares words through static shared memory: a word of its own per place and per type.
template <class T>
__device__ T share(T value, unsigned from) {
  SIMT_SHARED(T, slot);
  if (threadIdx.x == from) *slot = value;
  __syncthreads();
  value = *slot;
  __syncthreads();
  return value;
}

struct Words {
  unsigned of[16];
};

extern "C" __global__ void static_shared(unsigned* bad) {
  SIMT_SHARED(Words, words);
  if (threadIdx.x < 16) words->of[threadIdx.x] = blockIdx.x;
  __syncthreads();
  for (unsigned round = 0; round < 20; round++) {
    const unsigned from = round % blockDim.x, mine = blockIdx.x * 1000 + threadIdx.x;
    if (share(mine, from) != blockIdx.x * 1000 + from) atomicAdd(bad, 1);
    if (share(uint64_t{mine} << 32, from) >> 32 != blockIdx.x * 1000 + from) atomicAdd(bad, 1);
    if (words->of[round % 16] != blockIdx.x) atomicAdd(bad, 1);
  }
}
SIMT_EXPORT(static_shared)
