//! A compiled kernel: its entry, and a call of it with arguments.

// UNSAFETY: calls compiled kernels.
#![expect(
    unsafe_code,
    reason = "an entry is foreign code, its arguments are untyped pointers"
)]

use std::ffi::c_void;

/// The entry that `SIMT_EXPORT(kernel)` makes of a kernel. It is called once per CUDA thread with one pointer per parameter.
pub type Entry = unsafe extern "C-unwind" fn(*mut *mut c_void);

/// A kernel and its name, as [`build`](crate#building-kernels) lists them.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// The name of the `__global__` function.
    pub name: &'static str,
    /// The function that a launch calls once for each thread.
    pub entry: Entry,
}

/// Makes the table that `simt::build` writes: `pub static KERNELS: &[simt::Kernel]`. It is a macro so that the lints of the crate that
/// includes the table do not look at generated code.
#[doc(hidden)]
#[macro_export]
macro_rules! kernel_table {
    ($($name:literal = $entry:ident,)*) => {
        /// The kernels of this package, compiled for the CPU by `simt::build`.
        pub static KERNELS: &[$crate::Kernel] = {
            unsafe extern "C-unwind" {
                $( fn $entry(args: *mut *mut ::core::ffi::c_void); )*
            }
            &[$( $crate::Kernel { name: $name, entry: $entry } ),*]
        };
    };
}

/// The entry and the arguments of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    entry: Entry,
    args: *mut *mut c_void,
}

// SAFETY: the caller of `launch` promises that any number of OS threads may call the entry with these arguments.
unsafe impl Send for Call {}
// SAFETY: as for Send.
unsafe impl Sync for Call {}

impl Call {
    pub(crate) fn new(entry: Entry, args: *mut *mut c_void) -> Self {
        Self { entry, args }
    }

    /// Runs the kernel as the current CUDA thread.
    ///
    /// # Safety
    /// Within the `launch` call that the arguments were given to, on the stack of a CUDA thread.
    pub(crate) unsafe fn run(self) {
        // SAFETY: entry and arguments belong together: the contract of `launch`.
        unsafe { (self.entry)(self.args) };
    }
}
