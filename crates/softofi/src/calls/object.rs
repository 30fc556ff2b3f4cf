//! What objects have in common that none of these does itself.

use std::ffi::{c_char, c_int, c_void};

use libfabric_abi::bindings::{fi_ops, fid};
use libfabric_abi::errors::FI_ENOSYS;

use crate::guard;
use crate::handles;

use super::c_functions;

/// The table of an object with a close of its own and nothing else.
pub(super) const fn ops(close: unsafe extern "C" fn(*mut fid) -> c_int) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind: Some(bind),
        control: Some(control),
        ops_open: Some(ops_open),
        tostr: None,
        ops_set: None,
    }
}

c_functions! {
    /// `fi_bind` of an object to which nothing is bound.
    fn bind(object: *mut fid, _other: *mut fid, _flags: u64) -> c_int, guard::status {
        handles::object(object)?;
        Err(FI_ENOSYS)
    }

    /// `fi_control` of an object without commands.
    fn control(object: *mut fid, _command: c_int, _arg: *mut c_void) -> c_int, guard::status {
        handles::object(object)?;
        Err(FI_ENOSYS)
    }

    /// `fi_open_ops` of an object without tables of its own.
    fn ops_open(
        object: *mut fid, _name: *const c_char, _flags: u64, _ops: *mut *mut c_void, _context: *mut c_void,
    ) -> c_int, guard::status {
        handles::object(object)?;
        Err(FI_ENOSYS)
    }
}
