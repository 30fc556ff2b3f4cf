// CUDA C++ on the CPU: the one header that a kernel includes so that g++ (or clang++) compiles it
// as plain C++. The Rust crate `simt` runs it, one stackful coroutine per CUDA thread. See
// crates/simt/src/lib.rs for what is and is not the same as on a GPU. System headers come first,
// before any macro of ours.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <type_traits>
#include <utility>

// clang-format off: in the order in which to read them
#include "simt/runtime.h"   // the functions of the Rust side; threadIdx and its like
#include "simt/vector.h"    // uint2, uint4, float4, ...; dim3
#include "simt/keywords.h"  // __global__, __device__, ..., SIMT_DYN_SHARED
#include "simt/bits.h"      // __popc, __clz, ..., min, max
#include "simt/order.h"     // scopes, fences, loads and stores of special kinds
#include "simt/sync.h"      // __syncthreads, fences, __nanosleep
#include "simt/warp.h"      // shuffles, votes, match, reduce
#include "simt/atomics.h"   // atomicAdd, ...
#include "simt/export.h"    // SIMT_EXPORT
// clang-format on
