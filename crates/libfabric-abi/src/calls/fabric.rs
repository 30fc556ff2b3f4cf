//! What a fabric opens.

use std::ffi::{c_int, c_void};

use crate::bindings::{fi_eq_attr, fi_info, fi_ops_fabric, fid, fid_domain, fid_eq, fid_fabric};

calls! {
    /// Opens a domain: a device, or what stands for one.
    fn fi_domain(fabric: *mut fid_fabric, info: *mut fi_info, domain: *mut *mut fid_domain, context: *mut c_void) -> c_int
        = fi_ops_fabric.domain of (*fabric).ops;

    /// Opens a queue of events of control.
    fn fi_eq_open(fabric: *mut fid_fabric, attr: *mut fi_eq_attr, eq: *mut *mut fid_eq, context: *mut c_void) -> c_int
        = fi_ops_fabric.eq_open of (*fabric).ops;

    /// Says whether a thread may sleep on the descriptors of these objects: 0, or `-FI_EAGAIN` while there is something to read.
    fn fi_trywait(fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int
        = fi_ops_fabric.trywait of (*fabric).ops;
}
