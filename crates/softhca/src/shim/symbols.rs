//! How exported functions are defined, and what they give back.

use super::raw;
use crate::errno::Errno;
use libc::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Defines exported C functions: `[names] (arguments) -> result => body;`.
///
/// Variadic functions are defined with their last argument fixed. On x86-64 and AArch64 Linux a variadic integer or pointer
/// travels in the register that a fixed one would. Where the caller passed none, the kernel does not look at it.
macro_rules! symbols {
    ($( [$($name:ident)+] $arguments:tt -> $result:ty => $body:expr; )+) => { $( symbols! {
        // SAFETY: our caller keeps the contract of libc's function of this name, which is that of the body.
        @define [$($name)+] $arguments -> $result, unsafe { $body }
    } )+ };
    (@define [$($name:ident)+] $arguments:tt -> $result:ty, $body:expr) => { $(
        // SAFETY: the name is libc's, and so are signature and meaning.
        // Miri has symbols of its own by these names.
        #[cfg_attr(not(miri), unsafe(no_mangle))]
        #[expect(clippy::allow_attributes, reason = "the compilers of today do not know the lint that newer ones deny")]
        #[allow(unknown_lints, invalid_runtime_symbol_definitions, reason = "stable Rust defines no variadic function")]
        unsafe extern "C" fn $name $arguments -> $result {
            $body
        }
    )+ };
}

/// [`symbols`] whose bodies are safe.
macro_rules! safe_symbols {
    ($( [$($name:ident)+] $arguments:tt -> $result:ty => $body:expr; )+) => {
        $( symbols!(@define [$($name)+] $arguments -> $result, $body); )+
    };
}

/// Runs the body of a call that is ours and turns its outcome into what C expects. A panic becomes `EIO`.
pub(super) fn answer(body: impl FnOnce() -> Result<c_int, Errno>) -> c_int {
    // Unwind safety: shared state is behind mutexes that tolerate poisoning.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(Errno(value))) => raw::fail(value),
        Err(_) => raw::fail(libc::EIO),
    }
}
