//! The software HCA of this process, if one is preloaded.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Returns the function that announces a doorbell to a preloaded software HCA; none with a real one, which notices by itself.
#[must_use]
pub(crate) fn softhca_kick() -> Option<extern "C" fn()> {
    static KICK: OnceLock<Option<extern "C" fn()>> = OnceLock::new();
    *KICK.get_or_init(|| {
        // SAFETY: RTLD_DEFAULT searches the libraries of the process for a C string's name.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"softhca_kick".as_ptr()) };
        let found = NonNull::new(found)?;
        // SAFETY: libsofthca declares it as `void softhca_kick(void)`, and is never unloaded.
        Some(unsafe { std::mem::transmute::<NonNull<c_void>, extern "C" fn()>(found) })
    })
}
