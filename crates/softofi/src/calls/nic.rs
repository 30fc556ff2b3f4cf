//! The device in a description: a program may close it by itself.

use std::ffi::c_int;

use libfabric_abi::bindings::{fi_ops, fid, fid_nic};

use crate::guard;
use crate::info::free_nic;

use super::{c_functions, object, table};

static OPS: fi_ops = object::ops(close);

pub(crate) fn ops() -> *mut fi_ops {
    table(&OPS)
}

c_functions! {
    /// `fi_close`.
    fn close(object: *mut fid) -> c_int, guard::status {
        // SAFETY: a device of a description of this library, by the word of C.
        unsafe { free_nic(object.cast::<fid_nic>()) };
        Ok(())
    }
}
