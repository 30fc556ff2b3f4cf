//! The functions that the headers of libfabric define inline: each calls one entry of a table that an object points to.
//!
//! Names and arguments are those of the manual, which has a page for each object (`fi_cq(3)`). A table that is too short for an entry, or has
//! none, gives `-FI_ENOSYS`, as the headers do for entries of later releases; so no call jumps to null.
//!
//! # Safety
//!
//! Of all functions here: each object is one that the library has given out and that was not closed; calls obey the threading model that
//! was asked for; pointers are valid for what the manual says of the function, null where it allows that. Memory of an operation
//! stays valid, and its context (`FI_CONTEXT2`) alone, until the completion was read or `fi_close` of the endpoint has returned.

// UNSAFETY: all of them call through C tables.
#![expect(unsafe_code, reason = "calls through C tables")]
#![expect(clippy::too_many_arguments, reason = "arguments of C functions")]

/// Defines functions that call an entry of a table.
///
/// `fn NAME(ARGUMENTS) -> RESULT = TABLE.ENTRY of POINTER;` calls the entry of the structure `TABLE` to which the expression
/// `POINTER` leads, with the same arguments; or with those in parentheses at the end.
macro_rules! calls {
    ($(
        $(#[doc = $doc:literal])*
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty = $table:ident . $entry:ident of $ops:expr
            $(, with ($($given:expr),*))?;
    )*) => {$(
        $(#[doc = $doc])*
        ///
        /// # Safety
        ///
        /// See [the module](crate::calls#safety).
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: objects are valid by the caller's word, and point to their tables; an entry is read where the table has it.
            let entry = unsafe {
                let ops: *const $table = $ops;
                if ops.is_null() || (*ops).size <= std::mem::offset_of!($table, $entry) {
                    None
                } else {
                    (*ops).$entry
                }
            };
            match entry {
                // SAFETY: the caller's word for all arguments.
                Some(entry) => unsafe { calls!(@call entry, ($($arg),*) $(, ($($given),*))?) },
                None => -(crate::bindings::FI_ENOSYS as $ret),
            }
        }
    )*};
    (@call $entry:ident, ($($arg:ident),*)) => { $entry($($arg),*) };
    (@call $entry:ident, ($($arg:ident),*), ($($given:expr),*)) => { $entry($($given),*) };
}

mod completions;
mod domain;
mod endpoint;
mod fabric;
mod object;
mod registration;
mod rma;
mod vector;

pub use completions::*;
pub use domain::*;
pub use endpoint::*;
pub use fabric::*;
pub use object::*;
pub use registration::*;
pub use rma::*;
pub use vector::*;

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::ptr::null_mut;

    use super::*;
    use crate::bindings::{FI_ENOSYS, fi_ops, fi_ops_fabric, fid, fid_fabric};

    unsafe extern "C" fn close(object: *mut fid) -> c_int {
        // SAFETY: the test's own object.
        c_int::try_from(unsafe { (*object).fclass }).unwrap()
    }

    #[test]
    fn an_entry_is_called_where_the_table_has_it() {
        let mut ops = fi_ops {
            size: size_of::<fi_ops>(),
            close: Some(close),
            ..fi_ops::default()
        };
        let mut object = fid {
            fclass: 7,
            ops: &raw mut ops,
            ..fid::default()
        };
        // SAFETY: object and table live here.
        assert_eq!(unsafe { fi_close(&raw mut object) }, 7);
        // SAFETY: as above.
        let bound = unsafe { fi_control(&raw mut object, 0, null_mut()) };
        assert_eq!(bound, -FI_ENOSYS);
    }

    #[test]
    fn a_short_table_and_no_table_are_functions_not_implemented() {
        let mut ops = fi_ops_fabric {
            size: std::mem::offset_of!(fi_ops_fabric, domain),
            ..fi_ops_fabric::default()
        };
        let mut fabric = fid_fabric::default();
        for ops in [&raw mut ops, null_mut()] {
            fabric.ops = ops;
            let mut domain = null_mut();
            // SAFETY: the object lives here, and its table has no entry that could be called.
            let opened =
                unsafe { fi_domain(&raw mut fabric, null_mut(), &raw mut domain, null_mut()) };
            assert_eq!(opened, -FI_ENOSYS);
        }
    }
}
