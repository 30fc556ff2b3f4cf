// Messages between threads, right and with one thing left out each: what the checker of a
// -fsanitize=thread build must pass and must report.
#include "simt.cuh"

// What is left out.
enum Defect {
  kNone = 0,
  kNoBarrier = 1,
  kNoReleaseFence = 2,
  kNoAcquireFence = 3,
  kFenceTooNarrow = 4,
  kWriteAfterPublication = 5,
  kAcquireTooEarly = 6,
  kAcquireTooNarrow = 7,
  kAtomicTooNarrow = 8,
};

// Each thread writes a word of shared memory and reads its neighbour's.
extern "C" __global__ void order_neighbour(int defect, int* out) {
  SIMT_DYN_SHARED(int, words);
  words[threadIdx.x] = static_cast<int>(threadIdx.x);  // (write own)
  if (defect != kNoBarrier) __syncthreads();
  out[threadIdx.x] = words[(threadIdx.x + 1) % blockDim.x];  // (read neighbour)
}
SIMT_EXPORT(order_neighbour)

// The first thread writes a word that lies in front of the dynamic shared memory, and all read it.
extern "C" __global__ void order_slot(int defect, int* out) {
  SIMT_SHARED(int, slot);
  if (threadIdx.x == 0) *slot = 3;
  if (defect != kNoBarrier) __syncthreads();
  out[threadIdx.x] = *slot;
}
SIMT_EXPORT(order_slot)

// Neighbours within a warp. A shuffle is no barrier.
extern "C" __global__ void order_lanes(int defect, int* out) {
  SIMT_DYN_SHARED(int, words);
  words[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (defect == kNoBarrier) {
    out[threadIdx.x] = __shfl_sync(0xffffffffu, 1, 0);
  } else {
    __syncwarp();
  }
  out[threadIdx.x] += words[threadIdx.x ^ 1];
}
SIMT_EXPORT(order_lanes)

static unsigned poll(unsigned* flag, simt::Scope scope) {
  for (;;) {
    simt_yield();
    const simt::Scoped scoped(scope);
    const unsigned seen = __atomic_load_n(flag, __ATOMIC_RELAXED);
    if (seen != 0) return seen;
    simt_poll();
  }
}

static void post(unsigned* flag, simt::Scope scope) {
  simt_yield();
  const simt::Scoped scoped(scope);
  __atomic_store_n(flag, 1u, __ATOMIC_RELAXED);
  simt_progress();
}

// Block 0 writes a message and sets a flag; block 1 waits for the flag and reads the message.
extern "C" __global__ void order_message(int defect, long* message, unsigned* flag, long* out) {
  if (threadIdx.x != 0) return;
  const simt::Scope atomic = defect == kAtomicTooNarrow ? simt::Scope::block : simt::Scope::gpu;
  if (blockIdx.x == 0) {
    message[0] = 1;
    if (defect == kFenceTooNarrow) {
      simt::fence(simt::Fence::release, simt::Scope::block);
    } else if (defect != kNoReleaseFence) {
      simt::fence(simt::Fence::release, simt::Scope::gpu);
    }
    if (defect == kWriteAfterPublication) message[1] = 2;
    post(flag, atomic);
  } else {
    if (defect == kAcquireTooEarly) simt::fence(simt::Fence::acquire, simt::Scope::gpu);
    poll(flag, atomic);
    if (defect == kAcquireTooNarrow) {
      simt::fence(simt::Fence::acquire, simt::Scope::block);
    } else if (defect != kNoAcquireFence && defect != kAcquireTooEarly) {
      simt::fence(simt::Fence::acquire, simt::Scope::gpu);
    }
    *out = message[0] + message[1];  // (read message)
  }
}
SIMT_EXPORT(order_message)

// The flag is passed on by a thread that takes no fence; release and acquire operations; atomicAdd
// by many as the flag.
extern "C" __global__ void order_relay(long* message, unsigned* flags, long* out) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    message[0] = 5;
    __threadfence();
    atomicAdd(&flags[0], 1u);
  } else if (blockIdx.x == 1) {
    poll(&flags[0], simt::Scope::gpu);
    atomicAdd(&flags[1], 1u);
  } else if (blockIdx.x == 2) {
    poll(&flags[1], simt::Scope::gpu);
    __threadfence();
    message[1] = message[0] + 1;
    simt_yield();
    __atomic_store_n(&flags[2], 1u, __ATOMIC_RELEASE);
    simt_progress();
  } else {
    for (;;) {
      simt_yield();
      if (__atomic_load_n(&flags[2], __ATOMIC_ACQUIRE) != 0) break;
      simt_poll();
    }
    *out = message[0] + message[1];
  }
}
SIMT_EXPORT(order_relay)

// A slot is used again without any fence: a thread that stores after it has seen that the slot is
// free comes after the slot's reader, which had fenced its reads.
extern "C" __global__ void order_reuse(int defect, long* slot, unsigned* flags, long* out) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    *out = *slot;
    if (defect != kNoReleaseFence) simt::fence(simt::Fence::release, simt::Scope::gpu);
    post(&flags[0], simt::Scope::gpu);
  } else {
    poll(&flags[0], simt::Scope::gpu);
    *slot = 7;
  }
}
SIMT_EXPORT(order_reuse)

// Blocks meet at the barrier of the grid.
extern "C" __global__ void order_grid(int defect, int* words, int* out) {
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
  for (int round = 0; round < 3; round++) {
    words[me] = round;
    if (defect != kNoBarrier) simt_grid_sync();
    out[me] = words[(me + blockDim.x) % all];
    if (defect != kNoBarrier) simt_grid_sync();
  }
}
SIMT_EXPORT(order_grid)

// A device that this test plays: the thread writes `source`, rings `bell`, waits for `signal`,
// reads `target`, which it may have read before (`warm`).
extern "C" __global__ void order_device(int defect, int warm, uint64_t* source, uint64_t* bell,
                                        unsigned* signal, uint64_t* target, uint64_t* out) {
  uint64_t old = warm ? *target : 0;  // (warm)
  simt::store_weak16(source, 1, 2);
  if (defect == kFenceTooNarrow) {
    simt::fence(simt::Fence::release, simt::Scope::gpu);
  } else if (defect == kAcquireTooNarrow) {
    simt::fence(simt::Fence::release, simt::Scope::block);
  } else if (defect != kNoReleaseFence) {
    simt::fence(simt::Fence::release, simt::Scope::system);
  }
  if (defect == kWriteAfterPublication) source[1] = 3;  // (write late)
  simt_mmio_store64(bell, 1);
  poll(signal, simt::Scope::system);
  if (defect != kNoAcquireFence) simt::fence(simt::Fence::acquire, simt::Scope::system);
  *out = old + (defect == kAtomicTooNarrow ? __ldg(target) : *target);  // (read target)
}
SIMT_EXPORT(order_device)

// Writes into what it is given as host-mapped memory, by a plain store and by an atomic.
extern "C" __global__ void order_host(uint64_t* words, uint64_t* out) {
  words[1] = 7;
  out[0] = 1;
  atomicAdd(reinterpret_cast<unsigned*>(&words[2]), 1u);
}
SIMT_EXPORT(order_host)
