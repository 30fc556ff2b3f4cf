//! Nothing but a place for `tests/`: what simt does with kernels that were compiled for it.
