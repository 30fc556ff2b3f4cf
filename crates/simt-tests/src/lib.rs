//! The kernels of the tests in `tests/`, which show what simt does with kernels that were compiled for it.

include!(concat!(env!("OUT_DIR"), "/simt_kernels.rs"));
