//! Words of `fi_strerror` and `fi_tostr`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};

use libfabric_abi::errors::{
    FI_EAVAIL, FI_EBADFLAGS, FI_ECRC, FI_EDOMAIN, FI_ENOAV, FI_ENOCQ, FI_ENOEQ, FI_ENOKEY,
    FI_ENOMR, FI_ENORX, FI_EOPBADSTATE, FI_EOTHER, FI_EOVERRUN, FI_ETOOSMALL, FI_ETRUNC,
};

thread_local! {
    /// What this thread was given last.
    static LAST: RefCell<CString> = RefCell::default();
}

/// Keeps a text until the thread asks again.
fn keep(text: &str) -> *const c_char {
    LAST.with_borrow_mut(|last| {
        *last = CString::new(text).unwrap_or_default();
        last.as_ptr()
    })
}

/// Words for an error of either sign.
pub(crate) fn of_error(error: c_int) -> *const c_char {
    let error = error.saturating_abs();
    match of_libfabric(error) {
        Some(text) => text.as_ptr(),
        None if error == 0 => c"Success".as_ptr(),
        None => {
            let text = std::io::Error::from_raw_os_error(error).to_string();
            keep(text.split(" (os error").next().unwrap_or(&text))
        }
    }
}

fn of_libfabric(error: c_int) -> Option<&'static CStr> {
    Some(match error {
        FI_EOTHER => c"another error",
        FI_ETOOSMALL => c"too little room was given",
        FI_EOPBADSTATE => c"not possible in this state of the object",
        FI_EAVAIL => c"an error can be read",
        FI_EBADFLAGS => c"flags that are not served",
        FI_ENOEQ => c"no event queue",
        FI_EDOMAIN => c"an object of another domain",
        FI_ENOCQ => c"no completion queue",
        FI_ECRC => c"bytes arrived broken",
        FI_ETRUNC => c"a message was cut",
        FI_ENOKEY => c"no such key",
        FI_ENOAV => c"no address vector",
        FI_EOVERRUN => c"a queue was overrun",
        FI_ENORX => c"the receiver has no buffer",
        FI_ENOMR => c"no more registrations",
        _ => return None,
    })
}

/// Words for data of a type: here its number.
pub(crate) fn of_data(kind: u32) -> *const c_char {
    keep(&format!("softofi: data of type {kind}"))
}
