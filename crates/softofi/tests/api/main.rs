//! softofi as a program sees it, through the C interface of the shared library; and what a program may expect of any libfabric, on
//! Debian's providers tcp;ofi_rxm and shm too.

// UNSAFETY: a C interface is called with memory of the tests.
#![expect(unsafe_code, reason = "calls through a C interface")]

mod any;
mod bad;
mod bounds;
mod faults;
mod keys;
mod loose;
mod manual;
mod processes;
mod ranges;
mod rig;
mod speed;
mod symbols;
