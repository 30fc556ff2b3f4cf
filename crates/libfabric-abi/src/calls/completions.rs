//! Completion queues.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_cq_err_entry, fi_ops_cq, fid_cq};

calls! {
    /// Takes up to `count` completions, in the format of the queue. It returns how many it took, `-FI_EAGAIN` for none, `-FI_EAVAIL` when an
    /// error is at the head.
    fn fi_cq_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize = fi_ops_cq.read of (*cq).ops;

    /// Takes completions as [`fi_cq_read`] does, and the addresses of the peers whose messages they are of.
    fn fi_cq_readfrom(cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut u64) -> isize
        = fi_ops_cq.readfrom of (*cq).ops;

    /// Takes the error at the head. Programs use the one of [`later`](crate::later::fi_cq_readerr), which later releases fill.
    fn fi_cq_readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize = fi_ops_cq.readerr of (*cq).ops;

    /// Takes completions, and sleeps until there is one or the time is over, in milliseconds.
    fn fi_cq_sread(cq: *mut fid_cq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int) -> isize
        = fi_ops_cq.sread of (*cq).ops;

    /// Wakes threads that sleep in `fi_cq_sread`.
    fn fi_cq_signal(cq: *mut fid_cq) -> c_int = fi_ops_cq.signal of (*cq).ops;
}
