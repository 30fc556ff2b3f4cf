//! Runs CUDA C++ kernels on the CPU: one stackful coroutine per CUDA thread.
//!
//! A kernel source includes `simt.cuh` instead of nvcc's headers, is compiled by g++ as plain C++, and is launched on a grid of
//! any shape. Threads of a launch make progress independently of each other, within and across blocks. So kernels that wait for
//! each other through memory work, and a software device in the same process can be on the other side.
//!
//! # What is the same as on a GPU, and what is not
//!
//! - `__syncthreads` waits for all threads of the block that have not exited; an exited thread counts as arrived, as on sm_70
//!   and later.
//! - Warp operations meet by mask. Stricter than CUDA: naming a lane that has exited is an error, and so is meeting in
//!   different operations. Lanes beyond the end of a partial warp may be named. A shuffle from a lane outside the mask gives
//!   all ones.
//! - Lanes run in no lock-step at all: code that relies on convergence without `__syncwarp` fails here, at some seed. With
//!   [`LaunchConfig::reconverge`] lanes wait for each other after the parts that kernels mark as divergent. Code that does not
//!   bear convergence then fails: lanes that hold something would wait for lanes that spin for it. `__activemask` is refused at
//!   compile time, as are static `__shared__` variables (`SIMT_SHARED` instead).
//! - Memory is that of the CPU: orders weaker than x86's cannot be seen, scopes make no difference.
//! - A switch happens at schedule points only: meetings, barriers, atomics, `simt_yield`, `simt_poll`, `__nanosleep`. A spin on
//!   a plain variable never ends; polls must go through functions that call `simt_yield` or `simt_poll`.
//! - Shared memory starts as 0xa5 bytes, since on a GPU it holds what the last block left.
//!
//! - A failed assertion, `simt_fail`, `__trap`, a C++ exception, a deadlock or an overflowed stack ends the launch with an
//!   error; the process goes on. A wild pointer is not caught: that is a signal, as in any C++ code.
//!
//! # Schedules
//!
//! Seed 0 runs warps in turn and is the fastest. Any other seed picks warps and lanes at random. It draws how many loads a thread
//! passes before it gives way and how many steps a warp gets in a row. With one worker, the same seed gives the same schedule.
//!
//! # Polling
//!
//! A thread that waits for memory calls `simt_poll` (or `__nanosleep`) after each look in vain. The OS thread of a worker sleeps
//! when all its threads that can run have looked in vain since the last progress. Its sleeps double from 1 µs to 200 µs. It wakes
//! early when the word named by [`set_wake_word`] is bumped, or when a thread on another worker did something. Stores and
//! read-modify-writes that others wait for call `simt_progress`; CUDA's atomics do so by themselves.
//!
//! # Building kernels
//!
//! [`build`] compiles `.cu` files from a build script and lists the kernels that `SIMT_EXPORT` names. This crate's own build script
//! and every dependant's need a C++ compiler and nothing else. The module is no feature: Cargo would build everything that uses
//! this crate once with it and once without.
//!
//! # Rooms
//!
//! Each floor may name those below it, and none above or beside it. A CUDA thread that runs finds its warp, seat and turns by pointers
//! whose types are parameters, so that `thread.rs` does not name `warp.rs`.
//!
//! ```text
//! launch.rs hooks.rs   the call that runs a grid; the functions that compiled kernels call
//! worker.rs            the scheduler of one OS thread, and its sleeps
//! seats.rs             rooms for blocks, and reports of what their threads do
//! warp.rs              one warp: its meetings, divergent parts and schedule points
//! thread.rs turns.rs   one CUDA thread on its stack; which warps of a worker wait for a turn
//! shared.rs            what the workers of a launch share, with the barrier of the grid
//! config.rs kernel.rs stats.rs idle.rs   the configuration, the kernel and the counts of a launch; sleeps on words
//! error.rs build/ poison.rs   why a launch failed; build scripts; memory that kernels must not touch
//! check/               the checker of the order of memory accesses
//! coordinates.rs       sizes and positions in a grid
//! ```

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::panic))]

pub mod build;
pub mod check;
mod config;
mod coordinates;
mod error;
mod hooks;
mod idle;
mod kernel;
mod launch;
pub mod poison;
mod seats;
mod shared;
mod stats;
mod thread;
mod turns;
mod warp;
mod worker;

pub use config::LaunchConfig;
pub use coordinates::{Dim3, ThreadId};
pub use error::LaunchError;
pub use idle::{set_kick_hook, set_wake_word};
pub use kernel::{Entry, Kernel};
pub use launch::launch;
pub use stats::LaunchStats;
