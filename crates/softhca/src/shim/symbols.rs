//! Macros that define exported functions, and the conversion of their results to C.

use super::raw;
use crate::errno::Errno;
use libc::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Defines exported C functions. The form is `[names] (arguments) -> result => body;`.
///
/// Variadic functions are defined with a fixed last argument. On x86-64 and AArch64 Linux a variadic integer or pointer travels in the same
/// register as a fixed argument. If the caller passed no last argument, the kernel does not look at it.
macro_rules! symbols {
    ($( [$($name:ident)+] $arguments:tt -> $result:ty => $body:expr; )+) => { $( symbols! {
        // SAFETY: the caller keeps the contract of libc's function of this name, and the body has the same contract.
        @define [$($name)+] $arguments -> $result, unsafe { $body }
    } )+ };
    (@define [$($name:ident)+] $arguments:tt -> $result:ty, $body:expr) => { $(
        // SAFETY: the name, the signature and the meaning are those of libc.
        // Miri has symbols of its own by these names.
        #[cfg_attr(not(miri), unsafe(no_mangle))]
        #[expect(clippy::allow_attributes, reason = "the compilers of today do not know the lint that newer ones deny")]
        #[allow(unknown_lints, invalid_runtime_symbol_definitions, reason = "stable Rust defines no variadic function")]
        unsafe extern "C" fn $name $arguments -> $result {
            $body
        }
    )+ };
}

/// Defines exported C functions, like [`symbols`], whose bodies are safe.
macro_rules! safe_symbols {
    ($( [$($name:ident)+] $arguments:tt -> $result:ty => $body:expr; )+) => {
        $( symbols!(@define [$($name)+] $arguments -> $result, $body); )+
    };
}

/// Runs `body`, the part of a call that this library answers, and turns its outcome into what C expects. A panic becomes `EIO`.
pub(super) fn answer(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    // Unwind safety: shared state is behind mutexes that tolerate poisoning.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(Errno(value))) => raw::fail(value),
        Err(_) => raw::fail(libc::EIO),
    }
}
