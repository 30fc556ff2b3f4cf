//! An object of the library, closed when it is dropped.

// UNSAFETY: closes objects of the library, and gives them to other threads.
#![expect(unsafe_code, reason = "objects of the library")]

use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;

use libfabric_abi::bindings::{fid, fid_av, fid_cq, fid_domain, fid_ep, fid_fabric, fid_mr};
use libfabric_abi::calls::fi_close;

/// A structure that begins with what all objects have.
pub(super) trait Object {}

impl Object for fid_fabric {}
impl Object for fid_domain {}
impl Object for fid_av {}
impl Object for fid_cq {}
impl Object for fid_ep {}
impl Object for fid_mr {}

/// An object that was opened and is not closed.
pub(super) struct Owned<T: Object>(Option<NonNull<T>>);

// SAFETY: the library is asked for FI_THREAD_SAFE: any thread may call it with any object. No call is made while the object is closed, since
// that takes the value.
unsafe impl<T: Object> Send for Owned<T> {}
// SAFETY: as for Send.
unsafe impl<T: Object> Sync for Owned<T> {}

impl<T: Object> Owned<T> {
    /// Takes an object that the library has just opened.
    ///
    /// # Safety
    /// The object is open and is not closed by others, or the pointer is null.
    pub(super) unsafe fn new(opened: *mut T) -> Self {
        Self(NonNull::new(opened))
    }

    /// Returns the object for a call. Null: the library has said that it opened one, but gave none.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    /// Returns the object as those calls take it that are for all kinds.
    pub(super) fn as_fid(&self) -> *mut fid {
        self.as_ptr().cast()
    }

    /// Closes the object. If the library refuses, the object comes back with the error.
    pub(super) fn close(mut self) -> Result<(), (Self, c_int)> {
        match self.end() {
            0 => {
                self.0 = None;
                Ok(())
            }
            refused => Err((self, refused)),
        }
    }

    fn end(&self) -> c_int {
        match self.0 {
            None => 0,
            // SAFETY: the object is open. Whoever owns this value owns or has closed all objects that use it.
            Some(object) => unsafe { fi_close(object.as_ptr().cast()) },
        }
    }
}

impl<T: Object> Drop for Owned<T> {
    fn drop(&mut self) {
        let refused = self.end();
        if refused != 0 {
            tracing::error!("libfabric does not close an object: {refused}");
        }
    }
}

impl<T: Object> fmt::Debug for Owned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.as_ptr())
    }
}
