//! The calls of C: tables of functions, which look up their objects, check what the manual demands and hand over.
//!
//! Each function catches panics ([`guard`](crate::guard)) and reports broken rules ([`Rule`](crate::Rule)).

// UNSAFETY: functions that C calls, with pointers of C.
#![expect(unsafe_code, reason = "functions of a C interface")]

mod completions;
mod domain;
mod endpoint;
mod fabric;
mod nic;
mod none;
mod object;
mod post;
mod registration;
mod rma;
mod vector;

pub(crate) use fabric::open as open_fabric;
pub(crate) use nic::ops as nic_ops;

use std::ffi::c_int;

use libfabric_abi::bindings::{fi_ops, fid};

use crate::rules::Rule;

/// A table of functions, as C has it. It is never written.
fn table<T>(table: &'static T) -> *mut T {
    std::ptr::from_ref(table).cast_mut()
}

/// What each object begins with.
fn head(class: u32, ops: &'static fi_ops, context: *mut std::ffi::c_void) -> fid {
    fid {
        fclass: class as usize,
        context,
        ops: table(ops),
    }
}

/// Refuses a null where the manual demands a pointer.
fn given<T>(pointer: *const T, name: &str) -> Result<(), c_int> {
    if pointer.is_null() {
        return Err(Rule::NullPointer.broken(format_args!("({name})")));
    }
    Ok(())
}

/// Writes a new object where C wants it.
///
/// # Safety
///
/// `place` is null or may be written.
unsafe fn hand_over<T>(place: *mut *mut T, object: *mut T) {
    if !place.is_null() {
        // SAFETY: the caller's word.
        unsafe { place.write(object) };
    }
}

/// The functions for C by their types, as the fields of a table take them.
macro_rules! c_functions {
    ($(
        $(#[doc = $doc:literal])*
        fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty, $guard:path $body:block
    )*) => {$(
        $(#[doc = $doc])*
        ///
        /// # Safety
        ///
        /// C calls it: pointers are null, or valid for what the manual says.
        unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
            $guard(|| $body)
        }
    )*};
}
use c_functions;
