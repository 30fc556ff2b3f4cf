//! Bindings over verbs.h and mlx5dv.h, opened by dlopen: one binary for machines with and without RDMA.
//!
//! [`Rdma`] is the table of functions, resolved once per process through libmlx5, which brings libibverbs with it.
//! Nothing else of the crate names a C symbol. Only functions that the libraries export are in it: what verbs.h defines
//! inline (posting, polling, the extended query of a port) the runtime does not use.

// UNSAFETY: foreign functions are declared and looked up here; calling them is up to `verbs`.
#![expect(unsafe_code, reason = "dlopen and foreign functions")]

#[expect(
    missing_docs,
    non_camel_case_types,
    clippy::all,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
pub mod bindings;

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::OnceLock;

pub(crate) use bindings::Rdma;

/// Where libmlx5 is looked for, in this order. The loader adds LD_LIBRARY_PATH and the system's directories.
const LIBRARIES: [&str; 2] = ["libmlx5.so.1", "libmlx5.so"];

/// libmlx5 could not be opened, or lacks a function.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "no usable libmlx5 (Debian, Ubuntu: apt-get install libibverbs1 ibverbs-providers); tried {}",
    .tried.join("; ")
)]
#[non_exhaustive]
pub struct LoadError {
    /// Each file that was tried, with the loader's reason.
    pub tried: Vec<String>,
}

impl Rdma {
    /// The functions of libibverbs and libmlx5, opened at the first call and kept for the life of the process.
    ///
    /// # Errors
    ///
    /// [`LoadError`] with everything that was tried; the same again at later calls.
    pub fn load() -> Result<&'static Self, LoadError> {
        static TABLE: OnceLock<Result<Rdma, LoadError>> = OnceLock::new();
        TABLE
            .get_or_init(|| open(&LIBRARIES))
            .as_ref()
            .map_err(LoadError::clone)
    }
}

fn open(libraries: &[&str]) -> Result<Rdma, LoadError> {
    let mut tried = Vec::new();
    for name in libraries {
        // SAFETY: libmlx5's initialisers register a provider and nothing else; the table is never dropped, so no function
        // outlives its library; the types are those of the library's own headers (tests/verbs/bindings.rs).
        match unsafe { Rdma::new(name) } {
            Ok(table) => return Ok(table),
            Err(reason) => tried.push(format!("{name}: {}", loader_message(&reason))),
        }
    }
    Err(LoadError { tried })
}

/// What the dynamic loader said; libloading's own text is only which call failed.
fn loader_message(error: &libloading::Error) -> String {
    let said = std::error::Error::source(error);
    said.map_or_else(|| error.to_string(), ToString::to_string)
}

/// What tells a preloaded software HCA of a doorbell; none with a real one, which notices by itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_names_every_file_and_the_package() {
        let error = open(&["libnothing.so.1", "/nowhere/libnothing.so"])
            .err()
            .unwrap()
            .to_string();
        for part in [
            "libnothing.so.1",
            "/nowhere/libnothing.so",
            "No such file or directory",
            "ibverbs-providers",
        ] {
            assert!(error.contains(part), "{part} in {error}");
        }
    }

    #[test]
    fn a_library_without_the_functions_is_an_error_that_names_the_first_one() {
        let error = open(&["libc.so.6"]).err().unwrap().to_string();
        assert!(error.contains("ibv_get_device_list"), "{error}");
    }
}
