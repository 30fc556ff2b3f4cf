//! How kernels on the CPU and a software HCA in the same process find each other.
//!
//! The HCA exports a futex word that it bumps when it has written something, and a function that announces a doorbell to it. They are found
//! by name in a preloaded HCA. A test binary that links the HCA in does not export them; in it `test_support::hca` calls [`connect`] with
//! them. A real NIC has neither, and needs neither.

// UNSAFETY: dlsym, and the types of what it finds.
#![expect(unsafe_code, reason = "two C symbols, found by name")]

use std::ffi::{CStr, c_void};
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::AtomicU32;

/// Registers the wake word and the kick hook of a software HCA that is linked into this program, for launches that start later.
pub(crate) fn connect(wake: &'static AtomicU32, kick: extern "C" fn()) {
    ::simt::set_wake_word(wake);
    ::simt::set_kick_hook(kick);
}

/// Looks for a preloaded HCA, once in a process.
pub(super) fn find() {
    static LOOKED: Once = Once::new();
    LOOKED.call_once(|| {
        if let (Some(wake), Some(kick)) = (symbol(c"softhca_wake_word"), symbol(c"softhca_kick")) {
            // SAFETY: libsofthca declares it as `const uint32_t *softhca_wake_word(void)`.
            let wake =
                unsafe { transmute::<NonNull<c_void>, extern "C" fn() -> *const AtomicU32>(wake) };
            // SAFETY: libsofthca declares it as `void softhca_kick(void)`.
            let kick = unsafe { transmute::<NonNull<c_void>, extern "C" fn()>(kick) };
            // SAFETY: the word lives as long as the library, which is never unloaded, and all threads use it atomically.
            if let Some(wake) = unsafe { wake().as_ref() } {
                connect(wake, kick);
            }
        }
    });
}

fn symbol(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: RTLD_DEFAULT searches the libraries of the process; `name` is a C string.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}
