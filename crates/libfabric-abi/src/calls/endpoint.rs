//! Endpoints, without what they post.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_ops_cm, fi_ops_ep, fid, fid_ep};

calls! {
    /// Writes the address of an endpoint, by which peers reach it; `addrlen` is the room, and then the length. With too little room
    /// it is `-FI_ETOOSMALL`.
    fn fi_getname(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int = fi_ops_cm.getname of (*ep).cm,
        with (&raw mut (*ep).fid, addr, addrlen);

    /// Sets an option, before the endpoint is enabled.
    fn fi_setopt(ep: *mut fid_ep, level: c_int, optname: c_int, optval: *const c_void, optlen: usize) -> c_int
        = fi_ops_ep.setopt of (*ep).ops,
        with (&raw mut (*ep).fid, level, optname, optval, optlen);

    /// Reads an option; `optlen` is the room, and then the length.
    fn fi_getopt(ep: *mut fid_ep, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize) -> c_int
        = fi_ops_ep.getopt of (*ep).ops,
        with (&raw mut (*ep).fid, level, optname, optval, optlen);

    /// Asks for the end of an operation, by its context.
    fn fi_cancel(ep: *mut fid_ep, context: *mut c_void) -> isize = fi_ops_ep.cancel of (*ep).ops,
        with (&raw mut (*ep).fid, context);
}

/// Binds a queue or a vector to an endpoint.
///
/// # Safety
///
/// See [the module](crate::calls#safety).
pub unsafe fn fi_ep_bind(ep: *mut fid_ep, other: *mut fid, flags: u64) -> c_int {
    // SAFETY: the caller's word; an endpoint begins with what all objects have.
    unsafe { super::fi_bind(&raw mut (*ep).fid, other, flags) }
}
