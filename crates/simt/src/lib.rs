//! Runs CUDA C++ kernels on the CPU: one stackful coroutine per CUDA thread.
