//! Registrations of memory.

use std::ffi::{c_int, c_void};

use libc::iovec;

use crate::bindings::{fi_mr_attr, fi_ops_mr, fid_domain, fid_mr};

calls! {
    /// Registers one range of the host's memory.
    fn fi_mr_reg(
        domain: *mut fid_domain, buf: *const c_void, len: usize, access: u64, offset: u64, requested_key: u64,
        flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
    ) -> c_int = fi_ops_mr.reg of (*domain).mr,
        with (&raw mut (*domain).fid, buf, len, access, offset, requested_key, flags, mr, context);

    /// Registers several ranges of the host's memory.
    fn fi_mr_regv(
        domain: *mut fid_domain, iov: *const iovec, count: usize, access: u64, offset: u64, requested_key: u64,
        flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
    ) -> c_int = fi_ops_mr.regv of (*domain).mr,
        with (&raw mut (*domain).fid, iov, count, access, offset, requested_key, flags, mr, context);

    /// Registers what a structure says. Programs use the one of [`later`](crate::later::fi_mr_regattr), which later releases read.
    fn fi_mr_regattr(domain: *mut fid_domain, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr) -> c_int
        = fi_ops_mr.regattr of (*domain).mr,
        with (&raw mut (*domain).fid, attr, flags, mr);
}

/// What operations name for their own memory in this registration.
///
/// # Safety
///
/// See [the module](crate::calls#safety).
pub unsafe fn fi_mr_desc(mr: *mut fid_mr) -> *mut c_void {
    // SAFETY: the registration is open, by the caller's word.
    unsafe { (*mr).mem_desc }
}

/// What peers name for memory in this registration.
///
/// # Safety
///
/// See [the module](crate::calls#safety).
pub unsafe fn fi_mr_key(mr: *mut fid_mr) -> u64 {
    // SAFETY: the registration is open, by the caller's word.
    unsafe { (*mr).key }
}
