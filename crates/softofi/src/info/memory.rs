//! Memory of C: programs set texts of hints by `strdup`, and `fi_freeinfo` frees them.

// UNSAFETY: C's allocator.
#![expect(unsafe_code, reason = "malloc and free")]

use std::ffi::{CStr, c_char};

/// A structure of zeros. Null when there is no memory.
pub(crate) fn zeroed<T>() -> *mut T {
    // SAFETY: it takes two numbers.
    unsafe { libc::calloc(1, size_of::<T>()) }.cast()
}

/// A copy of a text.
pub(crate) fn text(text: &CStr) -> *mut c_char {
    // SAFETY: the text ends with zero.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// A copy of a text that may be null.
///
/// # Safety
///
/// It is null or a text that ends with zero.
pub(crate) unsafe fn copy_of(other: *const c_char) -> *mut c_char {
    if other.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the caller's word.
    text(unsafe { CStr::from_ptr(other) })
}

/// A copy of `bytes` bytes, which may be none.
///
/// # Safety
///
/// `other` is null, or there are so many bytes.
pub(crate) unsafe fn bytes(other: *const u8, bytes: usize) -> *mut u8 {
    if other.is_null() || bytes == 0 {
        return std::ptr::null_mut();
    }
    // SAFETY: it takes a number.
    let copy: *mut u8 = unsafe { libc::malloc(bytes) }.cast();
    if !copy.is_null() {
        // SAFETY: the caller's word for the source; the copy has the room and is new.
        unsafe { other.copy_to_nonoverlapping(copy, bytes) };
    }
    copy
}

/// A copy of a structure that may be null, as it is: what it points to is shared.
///
/// # Safety
///
/// It is null or valid.
pub(crate) unsafe fn shallow<T: Copy>(other: *const T) -> *mut T {
    // SAFETY: the caller's word.
    unsafe { bytes(other.cast(), size_of::<T>()) }.cast()
}

/// Frees what may be null.
///
/// # Safety
///
/// It is null or of C's allocator, and used by nobody any more.
pub(crate) unsafe fn free<T>(pointer: *mut T) {
    // SAFETY: the caller's word.
    unsafe { libc::free(pointer.cast()) };
}
