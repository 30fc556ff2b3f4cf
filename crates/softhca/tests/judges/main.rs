//! The judges of the device: suites and tools from outside this project, as Debian ships them, with `libsofthca.so` preloaded.
//! Every wait is bounded; a judge that is not installed is skipped, and says so.

mod diags;
mod expectation;
mod gids;
mod grid;
mod ipc;
mod loss;
mod mpi;
mod namespace;
mod perftest;
mod pingpong;
mod pyverbs;
mod srq_events;
mod ucx;
