//! Finds the definition of a libc function that would be called if this library were not there.

// UNSAFETY: dlsym.
#![expect(unsafe_code, reason = "the next definitions of libc symbols by dlsym")]

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_void;

use super::raw;

/// The next definition of a symbol, which is looked up on first use.
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

    /// Returns the next definition; null if no library defines the symbol (`errno` is `ENOSYS` then).
    pub(super) fn find(&self) -> *mut c_void {
        // Relaxed: the pointer is to code, which existed before. A thread that loses a race stores the same pointer.
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: `name` is a C string.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.found.store(found, Ordering::Relaxed);
        }
        if found.is_null() {
            raw::fail(libc::ENOSYS);
        }
        found
    }
}

/// Defines exported C functions that read the file or directory at a path. Each function calls the next definition of its name, with the
/// path that stands for the given path. The form is `[name: text] (more: type) -> result, what the function returns if no library defines
/// it;`.
macro_rules! redirected_symbols {
    ($( [$($name:ident: $text:literal)+] $arguments:tt -> $result:ty, $failure:expr; )+) => { $( $(
        redirected_symbols! { @define $name $text $arguments -> $result, $failure }
    )+ )+ };
    (@define $name:ident $text:literal ($($argument:ident: $type:ty),*) -> $result:ty, $failure:expr) => {
        // SAFETY: the name, the signature and the meaning are those of libc.
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
            // SAFETY: the caller of this function keeps the same contract.
            let target = unsafe { reading(path) };
            // SAFETY: the caller of this function keeps the same contract; `target` lives until the call returns.
            unsafe { next(target.place(path) $(, $argument)*) }
        }
    };
}
pub(super) use redirected_symbols;
