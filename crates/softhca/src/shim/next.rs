//! The definition of a libc function that would be called without this library.

// UNSAFETY: dlsym.
#![expect(unsafe_code, reason = "the next definitions of libc symbols by dlsym")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

use super::raw;

/// The next definition of a symbol, found on first use.
pub(super) struct Next {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Null if no library defines it (`errno` is `ENOSYS` then).
    pub(super) fn find(&self) -> *mut c_void {
        // Relaxed: the pointer is to code, which existed before; a thread that loses a race stores the same.
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Relaxed);
        }
        if found.is_null() {
            raw::fail(libc::ENOSYS);
        }
        found
    }
}

/// Defines exported C functions that read the file or directory at a path: each calls the next definition of its name with the
/// path that stands for it. `[name: text] (path, more: type) -> result, what it returns where nobody defines it;`.
macro_rules! redirected_symbols {
    ($( [$($name:ident: $text:literal)+] $arguments:tt -> $result:ty, $failure:expr; )+) => { $( $(
        redirected_symbols! { @define $name $text $arguments -> $result, $failure }
    )+ )+ };
    (@define $name:ident $text:literal ($($argument:ident: $type:ty),*) -> $result:ty, $failure:expr) => {
        // SAFETY: the name is libc's, and so are signature and meaning.
        #[cfg_attr(not(miri), unsafe(no_mangle))]
        unsafe extern "C" fn $name(path: *const libc::c_char $(, $argument: $type)*) -> $result {
            type Function = unsafe extern "C" fn(*const libc::c_char $(, $type)*) -> $result;
            static NEXT: Next = Next::new($text);
            let next = NEXT.find();
            if next.is_null() {
                return $failure;
            }
            // SAFETY: the next definition of this symbol, which has libc's signature.
            let next: Function = unsafe { std::mem::transmute(next) };
            // SAFETY: as our caller's.
            let target = unsafe { reading(path) };
            // SAFETY: as our caller's; `target` lives until the call returns.
            unsafe { next(target.place(path) $(, $argument)*) }
        }
    };
}
pub(super) use redirected_symbols;
