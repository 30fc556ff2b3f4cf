// What the Rust side (crates/simt/src/hooks.rs) offers to compiled kernels. Layout and numbers must
// agree with it: `Ctx` in thread.rs, `Op` in op.rs; tests/kernels run every operation.
#pragma once

#include <cstdint>

#include "vector.h"

// One CUDA thread. All but `credit` is constant while the thread runs.
struct simt_ctx {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
  unsigned short lane;    // 0..31 in its warp
  unsigned short warp;    // in its block
  int credit;             // schedule points left before one switches
  unsigned char* shared;  // dynamic shared memory of the block, 128-byte aligned
};
static_assert(sizeof(simt_ctx) == 64, "agrees with Ctx in thread.rs");

extern "C" {

// The current CUDA thread; null outside a launch. A block never moves between OS threads, so a
// cached address stays right.
extern __thread simt_ctx* simt_cur_tls __attribute__((tls_model("initial-exec")));

// Switches to another thread of the launch, and decides how many schedule points the caller passes
// before the next switch.
void simt_yield_slow(void);
// This thread did something that others may see (a store, a read-modify-write that changed its
// word).
void simt_progress(void);
// This thread looked and found nothing. Others run; when all runnable threads of the launch poll,
// the OS thread sleeps.
void simt_poll(void);
// Front and end of a part of the code that lanes of a warp leave together. After a divergent
// branch or loop the compiler makes lanes wait for each other. With `LaunchConfig::reconverge`
// lanes that come to one front together wait for each other at its end. Else both calls do nothing.
void simt_diverge(void);
void simt_reconverge(void);
// Counts `loads` loads that this thread issues before it uses any of them (`LaunchStats::loads`).
void simt_count_loads(uint32_t loads);
// CLOCK_MONOTONIC in ns: one clock for all processes of the machine.
uint64_t simt_now_ns(void);
// 8-byte release store to a device register. Then it calls the kick hook, if a software device in
// this process has set one.
void simt_mmio_store64(uint64_t* reg, uint64_t value);
// Lane of the calling thread, 0..31.
uint32_t simt_lane_id(void);
// Ends the launch with an error that names this thread and carries the text. Nothing is unwound.
[[noreturn]] void simt_fail(const char* message);
// Barrier of the whole grid; cooperative launches only, every thread of the grid must come.
void simt_grid_sync(void);

// A warp operation: waits for all lanes of `mask` (the calling lane must be in it), then gives each
// lane its result.
uint64_t simt_warp_op(uint32_t mask, uint32_t op, uint64_t value, uint32_t source);
// A block barrier: waits for all threads of the block that have not exited.
uint32_t simt_block_op(uint32_t op, uint32_t value);

// A schedule point: another thread of the launch may run here. Every load that looks at memory
// others write passes one.
inline void simt_yield(void) {
  simt_ctx* const me = simt_cur_tls;
  if (me != nullptr && --me->credit < 0) simt_yield_slow();
}

}  // extern "C"

namespace simt {

// Numbers of warp operations (`Op` in op.rs).
enum WarpOp : uint32_t {
  kSyncWarp = 0,
  kShfl = 1,
  kShflUp = 2,
  kShflDown = 3,
  kShflXor = 4,
  kBallot = 5,
  kAny = 6,
  kAll = 7,
  kMatchAny = 8,
  kMatchAll = 9,
  kReduceAdd = 10,
  kReduceMin = 11,
  kReduceMax = 12,
  kReduceMinSigned = 13,
  kReduceMaxSigned = 14,
  kReduceAnd = 15,
  kReduceOr = 16,
  kReduceXor = 17,
};

// Numbers of block barriers.
enum BlockOp : uint32_t { kSync = 32, kSyncCount = 33, kSyncAnd = 34, kSyncOr = 35 };

}  // namespace simt
