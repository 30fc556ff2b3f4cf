//! What all objects have in common: `fi_close`, `fi_bind` and `fi_control`.

use std::ffi::{c_char, c_int, c_void};

use crate::bindings::{FI_ENABLE, FI_GETWAIT, fi_ops, fid};

calls! {
    /// Ends an object. Whatever uses it must have been closed before, or `-FI_EBUSY` comes back.
    ///
    /// Work of an endpoint is dropped without a word, and so may be completions that nobody has read yet. When the call has
    /// returned, nothing of it lands any more.
    fn fi_close(object: *mut fid) -> c_int = fi_ops.close of (*object).ops;

    /// Binds an object to another: `fi_ep_bind`, `fi_mr_bind`, `fi_domain_bind`.
    fn fi_bind(object: *mut fid, other: *mut fid, flags: u64) -> c_int = fi_ops.bind of (*object).ops;

    /// Does what `command` says; the manual's pages say what `arg` is.
    fn fi_control(object: *mut fid, command: c_int, arg: *mut c_void) -> c_int = fi_ops.control of (*object).ops;

    /// Opens a table of operations that a provider has beside those of the headers.
    fn fi_open_ops(object: *mut fid, name: *const c_char, flags: u64, ops: *mut *mut c_void, context: *mut c_void) -> c_int
        = fi_ops.ops_open of (*object).ops;

    /// Enables an endpoint to which all that it needs is bound.
    fn fi_enable(endpoint: *mut fid) -> c_int = fi_ops.control of (*endpoint).ops,
        with (endpoint, FI_ENABLE as c_int, std::ptr::null_mut());

    /// Writes the wait object of a queue that was opened with one: for `FI_WAIT_FD` a descriptor.
    fn fi_get_wait_fd(queue: *mut fid, fd: *mut c_int) -> c_int = fi_ops.control of (*queue).ops,
        with (queue, FI_GETWAIT as c_int, fd.cast());
}
