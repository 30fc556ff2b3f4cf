//! Opens a library and looks up its functions by their versions.

// UNSAFETY: a library is opened, and its symbols become functions.
#![expect(unsafe_code, reason = "dlopen and dlvsym")]

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::functions::{Functions, SYMBOLS, Symbol};
use crate::version::{LEAST_API, Version};

/// Why a library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The loader did not open the file.
    #[error("{} cannot be opened: {reason}", .path.display())]
    NotOpened {
        /// As the loader was given it: a name that it searches for, or a path.
        path: PathBuf,
        /// The loader's words.
        reason: String,
    },
    /// It is no libfabric, or one whose symbols have other versions.
    #[error("{} has no {symbol} of version {version}: {reason}", .path.display())]
    NoSymbol {
        /// The library that was opened.
        path: PathBuf,
        /// Name of the function.
        symbol: &'static str,
        /// The version of the symbol, not of the library.
        version: &'static str,
        /// The loader's words.
        reason: String,
    },
    /// It is older than the headers from which the structures are made.
    #[error("{} is libfabric {found}, and {least} is the least that can be used", .path.display())]
    TooOld {
        /// The library that was opened.
        path: PathBuf,
        /// What it says of itself.
        found: Version,
        /// The least that is taken.
        least: Version,
    },
}

impl Functions {
    /// Opens a library by a path, or by a name that the loader searches for, such as `libfabric.so.1`. It is never closed: providers
    /// leave threads and handlers.
    ///
    /// # Errors
    ///
    /// [`LoadError`] names the file, and what it lacks.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let library = open(path)?;
        let mut found = SYMBOLS.iter().map(|symbol| lookup(path, library, symbol));
        let mut next = || found.next().expect("one symbol for each field");
        // SAFETY: the library has these symbols in these versions, whose types are those of its headers (tests/bindings.rs has
        // the structures). Fields stand in the order of SYMBOLS. The library stays open.
        let functions = unsafe {
            Self {
                fi_getinfo: as_function(next()?),
                fi_freeinfo: as_function(next()?),
                fi_dupinfo: as_function(next()?),
                fi_fabric: as_function(next()?),
                fi_version: as_function(next()?),
                fi_strerror: as_function(next()?),
            }
        };
        let version = functions.version();
        if version < LEAST_API {
            return Err(LoadError::TooOld {
                path: path.to_owned(),
                found: version,
                least: LEAST_API,
            });
        }
        Ok(functions)
    }
}

fn open(path: &Path) -> Result<NonNull<c_void>, LoadError> {
    let not_opened = |reason| LoadError::NotOpened {
        path: path.to_owned(),
        reason,
    };
    let name = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| not_opened("its name has a byte of zero".to_owned()))?;
    // SAFETY: the name ends with zero. What the library runs when it is opened is up to it: the caller has chosen it.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    NonNull::new(library).ok_or_else(|| not_opened(loader_message()))
}

fn lookup(
    path: &Path,
    library: NonNull<c_void>,
    symbol: &Symbol,
) -> Result<NonNull<c_void>, LoadError> {
    // SAFETY: the handle is of an open library, and both strings end with zero.
    let found = unsafe {
        libc::dlvsym(
            library.as_ptr(),
            symbol.name.as_ptr(),
            symbol.version.as_ptr(),
        )
    };
    NonNull::new(found).ok_or_else(|| LoadError::NoSymbol {
        path: path.to_owned(),
        symbol: text(symbol.name),
        version: text(symbol.version),
        reason: loader_message(),
    })
}

fn text(name: &'static CStr) -> &'static str {
    name.to_str().unwrap_or("?")
}

/// What the loader said last in this thread.
fn loader_message() -> String {
    // SAFETY: it takes nothing, and returns null or a string of the loader that stays until the next call of this thread.
    let message = unsafe { libc::dlerror() };
    if message.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: not null, and ends with zero.
    let message = unsafe { CStr::from_ptr(message) };
    message.to_string_lossy().into_owned()
}

/// Makes a pointer to a function of a symbol.
///
/// # Safety
///
/// `F` is the type of the function that the symbol names.
unsafe fn as_function<F: Copy>(symbol: NonNull<c_void>) -> F {
    const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
    // SAFETY: of the same size, and a function by the caller's word.
    unsafe { std::mem::transmute_copy::<NonNull<c_void>, F>(&symbol) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_named_with_the_words_of_the_loader() {
        let error = Functions::load(Path::new("/nowhere/libfabric.so.1")).unwrap_err();
        assert!(matches!(error, LoadError::NotOpened { .. }));
        let text = error.to_string();
        assert!(
            text.contains("/nowhere/libfabric.so.1") && text.contains("No such file"),
            "{text}"
        );
        let error = Functions::load(Path::new("a\0b")).unwrap_err().to_string();
        assert!(error.contains("a byte of zero"), "{error}");
    }

    #[test]
    fn a_library_that_is_not_libfabric_is_named_with_symbol_and_version() {
        let error = Functions::load(Path::new("libc.so.6")).unwrap_err();
        let text = error.to_string();
        for part in ["libc.so.6", "fi_getinfo", "FABRIC_1.3"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn an_older_release_is_refused_with_both_versions() {
        let error = LoadError::TooOld {
            path: "libfabric.so.1".into(),
            found: Version::new(1, 11),
            least: LEAST_API,
        };
        let text = "libfabric.so.1 is libfabric 1.11, and 1.17 is the least that can be used";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn the_installed_library_has_all_functions_and_words_for_errors() {
        let functions = match Functions::load(Path::new("libfabric.so.1")) {
            Ok(functions) => functions,
            Err(error) => return println!("left out: the installed libfabric: {error}"),
        };
        assert!(functions.version() >= LEAST_API);
        assert!(functions.api_version() <= crate::LATEST_API);
        let text = functions.error_text(-crate::bindings::FI_EAGAIN);
        assert!(text.contains("temporarily unavailable"), "{text}");
    }
}
