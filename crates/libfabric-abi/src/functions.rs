//! The functions of libfabric that are symbols. All others are inline functions over tables, [`calls`](crate::calls).

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::bindings::{fi_fabric_attr, fi_info, fid_fabric};
use crate::version::{LATEST_API, Version};

/// A symbol and the version by which it is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name of the function in C.
    pub name: &'static CStr,
    /// Of the structures that it takes and returns.
    pub version: &'static CStr,
}

impl Symbol {
    const fn new(name: &'static CStr, version: &'static CStr) -> Self {
        Self { name, version }
    }
}

/// The functions of [`Functions`], in the order of its fields, each with the version that it has in libfabric 1.17.
///
/// Without a version the loader would take the newest, whose structures have grown: a program with those of 1.17 must ask for 1.3.
pub const SYMBOLS: [Symbol; 6] = [
    Symbol::new(c"fi_getinfo", c"FABRIC_1.3"),
    Symbol::new(c"fi_freeinfo", c"FABRIC_1.3"),
    Symbol::new(c"fi_dupinfo", c"FABRIC_1.3"),
    Symbol::new(c"fi_fabric", c"FABRIC_1.1"),
    Symbol::new(c"fi_version", c"FABRIC_1.0"),
    Symbol::new(c"fi_strerror", c"FABRIC_1.0"),
];

/// The functions that a library exports. [`Functions::load`] makes it of a file; a library in the same program fills it by itself.
///
/// The functions are unsafe to call: pointers must be null where the manual allows it, or valid. Results are 0 or a negative `FI_E*`.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Finds the ways to communicate that fit the hints: `fi_getinfo(3)`. The list is freed by `fi_freeinfo`.
    pub fi_getinfo: unsafe extern "C" fn(
        version: u32,
        node: *const c_char,
        service: *const c_char,
        flags: u64,
        hints: *const fi_info,
        info: *mut *mut fi_info,
    ) -> c_int,
    /// Frees a list of `fi_getinfo`, or one copy of `fi_dupinfo`.
    pub fi_freeinfo: unsafe extern "C" fn(info: *mut fi_info),
    /// Copies one description with all that it names. Of null it makes an empty one with all its attributes: hints.
    pub fi_dupinfo: unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info,
    /// Opens a fabric: `fi_fabric(3)`.
    pub fi_fabric: unsafe extern "C" fn(
        attr: *mut fi_fabric_attr,
        fabric: *mut *mut fid_fabric,
        context: *mut c_void,
    ) -> c_int,
    /// The latest API that the library speaks; [`Functions::version`] has it as a type.
    pub fi_version: unsafe extern "C" fn() -> u32,
    /// Text of an error number, which is positive. It is of the library and must not be freed.
    pub fi_strerror: unsafe extern "C" fn(errnum: c_int) -> *const c_char,
}

// UNSAFETY: two functions without pointers are called.
#[expect(unsafe_code, reason = "functions of the library are called")]
impl Functions {
    /// The version of the library.
    #[must_use]
    pub fn version(&self) -> Version {
        // SAFETY: it takes nothing; who made the table vouches for its type.
        Version(unsafe { (self.fi_version)() })
    }

    /// The API version to ask for: that of the library, but none later than the structures of this crate.
    #[must_use]
    pub fn api_version(&self) -> Version {
        self.version().min(LATEST_API)
    }

    /// The library's words for an error. The sign does not matter.
    #[must_use]
    pub fn error_text(&self, error: c_int) -> String {
        // SAFETY: it takes a number; who made the table vouches for its type.
        let text = unsafe { (self.fi_strerror)(error.saturating_abs()) };
        if text.is_null() {
            return format!("error {error}");
        }
        // SAFETY: the library returns a string that ends with zero, and which stays until the next call of this thread at least.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}
