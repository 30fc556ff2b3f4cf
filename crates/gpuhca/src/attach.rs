//! The softhca of this process, as C functions. It is preloaded, or linked into a test.

// UNSAFETY: dlsym, and calls of what it finds.
#![expect(unsafe_code, reason = "two C functions, found by name")]

use std::ffi::CStr;
use std::io;
use std::mem::transmute;
use std::ptr::NonNull;
use std::sync::Arc;

use super::GpuhcaError;
use super::executor::Shared;
use gpuhca_abi::Executor;

/// The type of `softhca_attach`.
type Attach = unsafe extern "C" fn(*const Executor) -> i32;
/// The type of `softhca_detach`.
type Detach = extern "C" fn();

/// The two functions of this process's softhca.
#[derive(Clone, Copy, Debug)]
pub struct Softhca {
    attach: Attach,
    detach: Detach,
}

impl Softhca {
    /// Returns the functions of `libsofthca.so`, which must be preloaded.
    ///
    /// # Errors
    ///
    /// [`GpuhcaError::NoSofthca`] if it is not.
    pub fn preloaded() -> Result<Self, GpuhcaError> {
        let find = |name: &CStr| -> Result<NonNull<libc::c_void>, GpuhcaError> {
            // SAFETY: RTLD_DEFAULT searches the libraries of the process; `name` is a C string.
            NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
                .ok_or(GpuhcaError::NoSofthca)
        };
        let (attach, detach) = (find(c"softhca_attach")?, find(c"softhca_detach")?);
        // SAFETY: libsofthca declares them as `int softhca_attach(const Executor *)` and `void softhca_detach(void)`.
        unsafe {
            Ok(Self {
                attach: transmute::<NonNull<libc::c_void>, Attach>(attach),
                detach: transmute::<NonNull<libc::c_void>, Detach>(detach),
            })
        }
    }

    /// Returns the functions of a softhca that is linked into this program.
    ///
    /// # Safety
    ///
    /// `attach` is `softhca_attach` and `detach` is `softhca_detach`.
    #[must_use]
    pub unsafe fn linked(attach: Attach, detach: Detach) -> Self {
        Self { attach, detach }
    }

    /// Attaches the executor, whose functions use `shared`.
    pub(super) fn attach(&self, executor: &Executor, shared: &Shared) -> Result<(), GpuhcaError> {
        shared.set_attached(true);
        // SAFETY: the struct is softhca's, of the same version (it compares version and sizes). What it names lives until `detach` has
        // returned: `Gpuhca` detaches before it lets go.
        match unsafe { (self.attach)(executor) } {
            0 => Ok(()),
            errno => {
                shared.set_attached(false);
                let source = io::Error::from_raw_os_error(errno);
                Err(GpuhcaError::Attach { source })
            }
        }
    }

    /// Detaches the executor, if it is attached.
    pub(super) fn detach(&self, shared: &Arc<Shared>) {
        if shared.set_attached(false) {
            (self.detach)();
        }
    }
}
